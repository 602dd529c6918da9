"""One GPU over time: from samples to the signals that rules read.

``GpuTrack.add_sample`` goes through a sample from top to bottom: the job (``JobState``), the restarts of the window
(``restarts``), the sample itself (``Second``), and the means and attributions of the window (``Signals``). All memory
is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import ceil, exp

from msgspec.structs import replace

from gputop.diagnosis import thresholds
from gputop.diagnosis.host.idle_attribution import IdleAttribution, IdleSample, idle_attribution
from gputop.diagnosis.host.idle_runs import (
    Alternations,
    Pause,
)
from gputop.diagnosis.host.workers import feeders, main_address, waited_for, without_bystanders
from gputop.diagnosis.memory_trend import MemoryTrend
from gputop.diagnosis.restarts import (
    CHANGE_S,
    COMPARE_S,
    KEEPS_SOME,
    Arrival,
    Restart,
    is_long_enough,
    reasons_to_restart,
)
from gputop.diagnosis.signals import LEAST_SAMPLES, HostSide, Signals
from gputop.diagnosis.sm_remedy import how_to_measure
from gputop.diagnosis.track_state import Holes, JobState, TickContext, WindowState
from gputop.diagnosis.window.conditions import update_conditions
from gputop.diagnosis.window.device_signs import DeviceWatch
from gputop.diagnosis.window.doubtful_util import ReadingDoubts
from gputop.diagnosis.window.hardware_health import Health
from gputop.diagnosis.window.host_activity import (
    NO_PROCESSES,
    FeederRow,
    GpuHostActivity,
    why_no_reads,
    why_no_waits,
    working_child,
)
from gputop.diagnosis.window.host_side import HostMeans, saves_pct
from gputop.diagnosis.window.sample_facts import (
    degraded_link,
    is_split,
    is_stale,
    memory_of,
    missing_host_reason,
    pcie_capacity,
    why_no_processes,
)  # fmt: skip
from gputop.diagnosis.window.sanity import (
    BROKEN,
    busy_pct,
    busy_second_pct,
    has_impossible_power,
    is_broken,
    is_refuted,
    kernels_pct,
)  # fmt: skip
from gputop.diagnosis.window.window import (
    WINDOW_S,
    GpuMeans,
    Second,
    evenly,
    gpu_means,
    host_means,
    is_steady,
    second_of,
)  # fmt: skip
from gputop.model.derived import lacks_sm
from gputop.model.durations import duration
from gputop.model.feeders import SERVED_BY_PARENT
from gputop.model.sm import MEASURED, SmLack
from gputop.model.snapshot import GAP_INTERVALS, GpuSample, HostSample, OngoingConditions

LOUD_SHARE = thresholds.Threshold(0.05, leave=0.1)
JOB_GONE_S = 3.0
"""A job is over once its processes have been gone this long: process lists may miss a beat."""
OLD_S = 10.0
"""Process data older than this are no evidence."""
REPEATS_S = 0.9
"""A sample of which nothing has moved for less is one that the driver has not renewed. One that rests for longer is a
sample like any other."""
WAITS_BELOW_UTIL = 90.0
"""Above this mean utilisation idle time is attributed to no worker: there is nearly none."""


class GpuTrack:
    """Memory of one GPU."""

    def __init__(self) -> None:
        self.health = Health()
        self.device = DeviceWatch()
        self._doubts = ReadingDoubts()
        self.util_now: float | None = None
        """The latest sample's util, percent."""
        self.first_kernels_t = float("-inf")
        """When a job was seen that begins to work."""
        self._job, self._window = JobState(), WindowState()
        self._trend = MemoryTrend()
        self._alternations = Alternations()
        self._falls = 0
        self._comes_and_goes = False
        self._slow_idle: float | None = None
        self._last_t: float | None = None
        self._holes = Holes()
        self._renewed_t = self._compared_at = float("-inf")
        self._changed_at: float | None = None
        """When the window was restarted because the cause had changed."""
        self._before, self._before_t = OngoingConditions(-1), float("-inf")
        self._sm_source = ""

    def mark_started(self) -> None:
        """Mark the present job as past its start, whatever it does from now on."""
        self._job.startup.has_trained = True

    def restore_conditions(self, t: float, before: OngoingConditions) -> None:
        """Restore conditions that were active when a recording begins, at Unix time ``t``."""
        self._before, self._before_t = before, t

    def ongoing_conditions(self, gpu: int) -> OngoingConditions:
        """Start times of the present conditions, for the GPU with that index."""
        return replace(self._window.since, gpu=gpu)

    def skip_sample(self, now: TickContext, gpu: GpuSample, tick: GpuHostActivity | None) -> None:
        """Take a sample of a GPU that cannot be read: only its errors count."""
        self._note_device(now, gpu, tick)
        self._restart(Restart.UNREADABLE)
        self.util_now = None

    def _note_device(self, now: TickContext, gpu: GpuSample, tick: GpuHostActivity | None) -> None:
        """Take in what a sample says of the device itself."""
        self.health.observe(gpu, now.events)
        self.device.add_sample(
            now.t,
            gpu,
            has_processes=tick is not None and bool(tick.owners),
            had_xid=self.health.had_xid,
            links_expected=gpu.static.name in now.linked_models,
        )

    def add_sample(
        self, now: TickContext, gpu: GpuSample, tick: GpuHostActivity | None
    ) -> Signals | None:
        """Add a sample and return the signals, or None while util itself is not measured."""
        since_last_s = self._pass_time(now)
        dt = _longest_sample_s(now, since_last_s)
        self._doubts.add_sample(now.t, dt, gpu)
        measured = tick if now.host_is_new else None
        self._note_device(now, gpu, tick)
        had_job = bool(self._job.pids)
        arrival = self._arrival(now, gpu, tick, since_last_s, dt)
        reasons = reasons_to_restart(arrival, self._window.seconds, self._window.runs.current())
        for reason in reasons:
            self._restart(reason, arrival, had_job=had_job, interval_s=now.interval_s)
        self._note_reasons(now.t, arrival, reasons)
        sm_off = self._sm_off(gpu)
        second = arrival.second.without_sm() if sm_off else arrival.second
        self._add_second(second)
        self.util_now = gpu.util_pct
        self._note_idle_runs(now.t, dt, gpu, arrival.busy_pct, measured)
        means = gpu_means(evenly(self._window.seconds))
        if measured is not None and (idle_by := kernels_pct(gpu, gpu.util_pct)) is not None:
            self._attribute(second, idle_by, means.util_pct, measured)
        self._note_slow_idle(dt, gpu.util_pct)
        is_judged_by_sm = gpu.static.mig_parent is not None and gpu.sm_active_pct is not None
        if means.util_pct is None and not is_judged_by_sm:
            return None
        return self._signals(now, gpu, NO_PROCESSES if tick is None else tick, sm_off, means)

    def _pass_time(self, now: TickContext) -> float:
        """Return the seconds since the last sample; those that it does not cover are a hole."""
        since_last_s = now.interval_s if self._last_t is None else now.t - self._last_t
        self._last_t = now.t
        hole_s = since_last_s - _longest_sample_s(now, since_last_s)
        if hole_s > 0.0:
            self._holes.add(now.t - (since_last_s - hole_s), hole_s)
            self._job.pass_hole(hole_s)
            self._doubts.forget()
        return since_last_s

    def _arrival(
        self,
        now: TickContext,
        gpu: GpuSample,
        tick: GpuHostActivity | None,
        since_last_s: float,
        dt: float,
    ) -> Arrival:
        """Follow the job through a sample, and return what the sample says of the window."""
        t, measured = now.t, tick if now.host_is_new else None
        busy = busy_second_pct(gpu)
        ran = kernels_pct(gpu, busy)
        job_is_over = self._update_job(t, tick)
        job, startup = self._job, self._job.startup
        has_first_kernels, trains_since = False, None
        if busy is not None and ran is not None:
            knows_job = tick is not None and tick.knows_feeders
            knows_age = knows_job and tick is not None and tick.age_s is not None
            has_first_kernels = startup.begins_to_work(
                t, now.interval_s, max(busy, ran), age_known=knows_age
            )
            trains_since = startup.began_to_train(t) if knows_job else None
        if measured is not None:
            used, total = memory_of(gpu, now.host)
            free = None if total is None or used is None else total - used
            self._trend.observe(t, measured.owners, free)
            job.observe(t, measured)
        # Of the window a sample can cover no more than all, whatever interval a recording names.
        covered_s = min(dt, WINDOW_S)
        return Arrival(
            since_last_s=since_last_s,
            second=second_of(t, covered_s, gpu, gpu.sm_active_pct, measured),
            job_is_over=job_is_over,
            refutes_util=self.util_now is not None and is_refuted(gpu),
            has_first_kernels=has_first_kernels,
            busy_pct=busy,
            sm_source=gpu.sm_source,
            sm_source_before=self._sm_source,
            trains_since=trains_since,
            is_compared=measured is not None and self._is_time_to_compare(t),
        )

    def _is_time_to_compare(self, t: float) -> bool:
        """Whether the last seconds are compared with the window at Unix time ``t``."""
        if self._changed_at is not None and t - self._changed_at < WINDOW_S:
            return False
        return t - self._compared_at >= COMPARE_S and is_long_enough(self._window.seconds, t)

    def _note_reasons(self, t: float, arrival: Arrival, reasons: Sequence[Restart]) -> None:
        """Remember the reasons that a sample brought, and its comparison."""
        self._sm_source = arrival.sm_source
        if Restart.FIRST_KERNELS in reasons:
            self.first_kernels_t = t
        if Restart.CAUSE_CHANGED in reasons:
            self._changed_at = t
        if arrival.is_compared and KEEPS_SOME.issuperset(reasons):
            self._compared_at = t

    def _add_second(self, second: Second) -> None:
        """Add a sample to the window, and count it unless it repeats the one before."""
        window = self._window
        has_moved = second.has_moved(window.seconds[-1] if window.seconds else None)
        if has_moved or second.t - self._renewed_t >= REPEATS_S:
            window.fresh += 1
        if has_moved:
            self._renewed_t = second.t
        window.add(second)

    def _note_idle_runs(
        self,
        t: float,
        dt: float,
        gpu: GpuSample,
        busy: float | None,
        measured: GpuHostActivity | None,
    ) -> None:
        """Follow pauses, falls and bursts of the GPU through a sample."""
        ran = kernels_pct(gpu, busy)
        if busy is None or ran is None:
            return
        write_bytes, saves = None, 0.0
        if measured is not None:
            write_bytes, saves = measured.write_bytes, saves_pct(measured.primary) / 100.0
        self._window.runs.observe(t, dt, busy, write_bytes, saves)
        self._falls = self._alternations.observe(t, ran)
        self._comes_and_goes = self._job.bursts.observe(t, busy)

    def _note_slow_idle(self, dt: float, util: float | None) -> None:
        """Follow the idle time by a slow mean."""
        if util is None:
            return
        idle, part = 100.0 - util, 1.0 - exp(-dt / thresholds.DEMAND_SLOW_S)
        before = idle if self._slow_idle is None else self._slow_idle
        self._slow_idle = before + part * (idle - before)

    def _update_job(self, t: float, tick: GpuHostActivity | None) -> bool:
        """Follow the processes on this GPU; True if its job is over.

        Return True if the job that the window describes is over.
        """
        pids, job = (
            frozenset(p.pid for p in tick.owners) if tick is not None else frozenset(),
            self._job,
        )
        is_over = (
            bool(job.pids) and not pids & job.pids and (bool(pids) or t - job.seen_t >= JOB_GONE_S)
        )
        if is_over:
            self._job = JobState(pids)
        elif pids or not job.pids:
            job.pids = pids
        if pids:
            self._job.seen_t = t
        return is_over

    def _restart(
        self,
        reason: Restart,
        arrival: Arrival | None = None,
        *,
        had_job: bool = False,
        interval_s: float = 0.0,
    ) -> None:
        """Drop samples before their time: the only place where that is done.

        ``had_job``: there was a job before the sample that arrived.
        """
        if reason is Restart.JOB_CHANGED:
            self._doubts.forget()
        window = self._window
        if reason is Restart.SM_SOURCE_CHANGED:
            window.seconds = deque(second.without_counters() for second in window.seconds)
        elif reason is Restart.CAUSE_CHANGED and arrival is not None:
            self._keep_after(arrival.second.t - CHANGE_S)
        elif reason is Restart.TRAINING_BEGAN and arrival is not None:
            if arrival.trains_since is not None:
                self._keep_after(arrival.trains_since - 0.5 * interval_s)
        elif reason is Restart.GAP:
            self._window = WindowState(window.conditions, window.since)
            self._window.resumed = had_job
        else:
            self._window = WindowState()

    def _keep_after(self, t: float) -> None:
        """Drop what the window has up to Unix time ``t``."""
        self._window.keep_after(t)
        self._window.idle.keep_after(t)

    def _attribute(
        self, second: Second, ran: float, util: float | None, tick: GpuHostActivity
    ) -> None:
        """Add the idle time of a sample.

        ``ran`` is the percentage of it in which kernels ran.
        """
        looks = None if tick.primary is None else tick.primary.main_looks
        workers: Sequence[FeederRow] = ()
        if util is None or util < WAITS_BELOW_UTIL:
            seconds, workers = self._window.seconds, second.workers
            if workers and (named := waited_for(seconds)):
                every = {row.key for other in seconds for row in other.workers}
                feeding = set(without_bystanders([row.key for row in workers], named, every))
                workers = [row for row in workers if row.key in feeding]
        counted = 1 if looks is None else max(1, looks.total)
        self._window.idle.add(
            IdleSample(second.t, second.dt, ran, counted, second.host or HostMeans(), workers)
        )

    def _sm_off(self, gpu: GpuSample) -> SmLack | None:
        """Why SM activity does not count now.

        None if it does.
        """
        if is_split(gpu):
            return SmLack(("MIG: whole-GPU SM activity says nothing about an instance",))
        if gpu.sm_source not in MEASURED:
            return gpu.sm_lack or SmLack(("no SM counter",))
        if lacks_sm(gpu) and self._has_no_sm():
            return gpu.sm_lack
        if is_stale(gpu) and self._has_no_sm():
            return SmLack((f"the last SM activity is {gpu.sm_age_s or 0.0:.0f} s old",))
        return SmLack((BROKEN,)) if is_broken(gpu) else None

    def _has_no_sm(self) -> bool:
        return not self._window.seconds or gpu_means(self._window.seconds).sm is None

    def _age(self, since: float | None, t: float, interval_s: float) -> float:
        """Recorded time for which a condition has held, with the interval before its first sample."""
        return 0.0 if since is None else t - since - self._holes.since(since) + interval_s

    def _signals(
        self,
        now: TickContext,
        gpu: GpuSample,
        tick: GpuHostActivity,
        sm_off: SmLack | None,
        means: GpuMeans,
    ) -> Signals:
        t, interval_s, window, startup = now.t, now.interval_s, self._window, self._job.startup
        means = means._replace(sm=None) if sm_off else means
        if means.util_pct is None:
            util = max(means.sm or 0.0, means.tensor or 0.0, means.dram or 0.0)
        else:
            util = busy_pct(gpu, means.util_pct, means.sm) or 0.0
        oldest_t = window.seconds[0].t
        n = min(len(window.seconds), window.fresh)
        min_samples = min(LEAST_SAMPLES, max(2, int(WINDOW_S / interval_s)))
        by_demand = tick.primary is None or tick.server is not None
        if n >= min_samples:
            window.conditions = update_conditions(
                window.conditions,
                means,
                util,
                may_be_hollow=not now.listed
                if tick is NO_PROCESSES
                else tick.computing > 0 and not tick.renders,
                slow_idle=self._slow_idle if by_demand else None,
                has_nvlink=bool(gpu.static.nvlink_peak_bytes_per_s or gpu.nvlink_rx_bytes_per_s),
                limits_known=(gpu.throttle_reasons is not None or means.power is not None)
                and not tick.draws,
                power_is_impossible=has_impossible_power(gpu),
            )
        since = window.since
        quiet = means.util_pct is not None and means.loud <= (
            LOUD_SHARE if since.quiet_since is None else LOUD_SHARE.leave
        )
        uses_link = util >= thresholds.DEGRADED_UTIL or (means.pcie or 0.0) >= thresholds.PCIE_FULL
        degraded = degraded_link(gpu) if uses_link else ""
        before = self._before if oldest_t <= self._before_t else OngoingConditions(-1)
        window.since = since = OngoingConditions(
            gpu=-1,
            quiet_since=_since(since.quiet_since, quiet, oldest_t, before.quiet_since),
            little_tensor_since=_since(
                since.little_tensor_since,
                window.conditions.little_tensor,
                oldest_t,
                before.little_tensor_since,
            ),
            degraded_since=_since(since.degraded_since, bool(degraded), t, before.degraded_since),
        )
        run = window.runs.current()
        is_old = now.host_age_s > OLD_S
        return Signals(
            t=t,
            gpu=gpu,
            tick=tick,
            machine=now.host,
            host=_too_old(now.host_age_s)
            if is_old
            else self._host_side(t, gpu, tick, now.host, run, util),
            samples=n,
            min_samples=min_samples,
            covered_s=t - oldest_t + interval_s,
            util_pct=util,
            idle=round(100.0 - util, 6),
            is_steady=not quiet
            and (tick.server is None or util > 100.0 - thresholds.IDLE_PCT)
            and is_steady(window.seconds),
            util_known=means.util_pct is not None,
            mean=means,
            sm_off=sm_off,
            measure="" if means.sm is not None else how_to_measure(gpu),
            conditions=window.conditions,
            comes_and_goes=by_demand and self._comes_and_goes,
            pcie_bytes_per_s=pcie_capacity(gpu),
            quiet=quiet,
            quiet_s=self._age(since.quiet_since, t, interval_s),
            quiet_hole_s=self._holes.since(since.quiet_since),
            stopped_s=0.0 if run is None else run.length_s,
            falls=self._falls,
            degraded=degraded,
            degraded_s=self._age(since.degraded_since, t, interval_s),
            little_tensor_s=self._age(since.little_tensor_since, t, interval_s),
            errors=self.health.errors,
            xids=self.health.xids,
            hardware_xids=self.health.hardware_xids,
            other_xids=self.health.other_xids,
            device=self.device.signs,
            doubts=self._doubts.signs,
            leak=self._trend.leak,
            has_trained=tick.knows_feeders and startup.has_trained,
            kernels_s=startup.kernels_s(t),
            has_worked=not tick.knows_feeders or startup.has_worked,
            changed_s=None if self._changed_at is None else t - self._changed_at,
            resumed=window.resumed and n < min_samples,
            trains_s=startup.trains_s(t),
            steps_now=startup.is_busy(t),
            job_ended=bool(self._job.pids) and not tick.owners and why_no_processes(gpu) is None,
            fabric=now.fabric,
            is_thinned=now.is_thinned,
        )

    def _host_side(
        self,
        t: float,
        gpu: GpuSample,
        tick: GpuHostActivity,
        host: HostSample,
        run: Pause | None,
        util: float,
    ) -> HostSide:
        """Host activity for this GPU over the window."""
        p, job, window = tick.primary, self._job, self._window
        seconds = evenly(list(window.seconds))
        loaders = len(tick.loaders)
        if not loaders:
            loaders = ceil(
                sum([(second.host and second.host.loaders) or 0.0 for second in seconds])
                / len(seconds)
            )
        pauses = window.runs.ended if run is None else (*window.runs.ended, run)
        is_idle = 100.0 - util >= thresholds.IDLE_PCT
        found, address, attribution = None, "", IdleAttribution()
        if is_idle:
            found, address = feeders(seconds, window.leading), main_address(seconds)
            if found is not None:
                window.leading = found.leading
                if found.resolved_by == "child":
                    found = replace(found, child=working_child(tick.tree, found.pid))
            attribution, window.named = idle_attribution(
                window.idle.intervals,
                None if found is None else found.key,
                moments=window.idle.moments,
                named=window.named,
            )
        return HostSide(
            reason=missing_host_reason(p, gpu),
            mean=host_means(seconds, is_idle=is_idle),
            # A proof stays for the window: a socket is not asked at each look.
            fetches=is_idle and any(second.fetches for second in seconds),
            served=p is not None and p.feed_by == SERVED_BY_PARENT,
            rx=None if p is None else p.net_rx_bytes_per_s,
            address=address,
            loaders=loaders,
            feeders=found,
            accounted=window.idle.says_something,
            attribution=attribution,
            named=window.named if is_idle else frozenset(),
            why_no_waits=why_no_waits(tick.loaders),
            why_no_reads=why_no_reads(tick),
            restarts=job.restarts.recent(t, pauses),
            born_kind=job.worker_kind,
            pauses=pauses,
            main_state=job.main.state,
            worker_state=job.workers.state,
            outsiders=host.outsiders or (),
            outsider_cores=None
            if host.cpu_outsiders_pct is None
            else host.cpu_outsiders_pct / 100.0,
            cores=host.cpu_count if p is None or p.allowed_cores is None else p.allowed_cores,
        )


def _longest_sample_s(now: TickContext, since_last_s: float) -> float:
    """Seconds that a sample covers: an interval where the last one is too long ago."""
    return since_last_s if since_last_s <= GAP_INTERVALS * now.interval_s else now.interval_s


def _too_old(age_s: float) -> HostSide:
    """Host side without any evidence: the process data are ``age_s`` old."""
    return HostSide(
        reason=f"process data are {duration(age_s)} old: /proc does not answer", is_old=True
    )


def _since(since: float | None, holds: bool, begin: float, before: float | None) -> float | None:
    """Start time of a condition, or None if it does not hold.

    ``before``: an earlier start known from a recording.
    """
    if not holds:
        return None
    return since if since is not None else min(begin, begin if before is None else before)
