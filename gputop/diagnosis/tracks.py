"""One GPU over time: takes a sample and the host's side of it in, gives the signals that the rules read.

Everything kept is bounded, and a tick costs the same whatever went before.
"""

from __future__ import annotations

from math import ceil, exp

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis import thresholds as at
from gputop.diagnosis.account import Account, IdleAttribution
from gputop.diagnosis.attribution import Correlation
from gputop.diagnosis.conditions import Conditions, update_conditions
from gputop.diagnosis.fabric_window import FabricSignals
from gputop.diagnosis.feeder_window import FeederWindow
from gputop.diagnosis.hardware_health import Health, MemoryTrend
from gputop.diagnosis.host_side import (
    NO_PROCESSES,
    GpuHostActivity,
    SteadyStateTracker,
    saves_pct,
    state_of_main,
    state_of_workers,
)
from gputop.diagnosis.idle_runs import Alternations, BurstDetector, IdleRuns, Startup, WorkerRestarts
from gputop.diagnosis.sanity import (
    BROKEN,
    busy_pct,
    busy_second_pct,
    has_impossible_power,
    is_broken,
    is_refuted,
    kernels_pct,
)
from gputop.diagnosis.signals import LEAST_SAMPLES, WINDOW_S, HostSide, Pause, Signals
from gputop.diagnosis.sm_remedy import how_to_measure
from gputop.diagnosis.window import (
    ACTIVITY,
    GpuMeans,
    HostMeans,
    Window,
    degraded_link,
    is_split,
    is_stale,
    memory_of,
    missing_host_reason,
    pcie_capacity,
    row_of,
)
from gputop.model.derived import lacks_sm
from gputop.model.feeders import SERVED_BY_PARENT
from gputop.model.quantity import duration
from gputop.model.sm import MEASURED, SmLack
from gputop.model.snapshot import GAP_INTERVALS, Event, GpuSample, HostSample, Lasting

CHANGE_S, BEFORE_S, COMPARE_S = 8.0, 8.0, 3.0
"""The last eight seconds are compared with at least so many before, so often."""
CLEARLY = 0.5
"""Two means of a share this far apart do not come from one cause: at eight samples of a yes or no that is 2.8 times
the standard error."""
_WATCHED = ("main", "main_network", "main_sleep", "main_lock", "main_poll", "main_disk", "workers")
LOUD_SHARE = at.Threshold(0.05, leave=0.1)
RESTART_AFTER_ZERO_S = 60.0
JOB_GONE_S = 3.0
"""A job is over once its processes have been gone this long: process lists may miss a beat."""
DEGRADED_UTIL = 50.0
OLD_S = 10.0
"""Process data older than this are no evidence."""
REPEATS_S = 0.9
"""A util that has not moved for less is one that the driver has not renewed: a GeForce of the Blackwell generation does
it once a second. One that rests for longer is a sample like any other."""
WAITS_BELOW_UTIL = 90.0
"""Above this mean utilisation no account is kept of feeders: there is nearly no idle time to be theirs."""


class TickContext(Struct, frozen=True):
    """What the samples of all GPUs of a snapshot have in common.

    A host's side that is not new still says whose GPU it is, but is no sample of what it does; one that is older than
    ``OLD_S`` is no evidence of anything. ``listed``: there is a list of processes, whether or not one is on a GPU.
    """

    t: float
    interval_s: float
    host: HostSample
    events: tuple[Event, ...] = ()
    fabric: FabricSignals | None = None
    host_is_new: bool = True
    host_age_s: float = 0.0
    listed: bool = True


class _OfJob:
    """What is remembered of the job that a GPU has, and forgotten with it."""

    def __init__(self, pids: frozenset[int] = frozenset()) -> None:
        self.pids = pids
        self.seen_t = 0.0
        self.startup = Startup()
        self.births = WorkerRestarts()
        self.born_kind: str | None = None
        self.main, self.feeders = SteadyStateTracker(), SteadyStateTracker()
        self.demand = BurstDetector()


class _OfWindow:
    """What is summed up since the window began."""

    def __init__(self) -> None:
        self.sums = Window(WINDOW_S)
        self.feeders = FeederWindow(WINDOW_S)
        self.account = Account(WINDOW_S)
        self.correlation = Correlation()
        self.runs = IdleRuns()
        self.fresh = 0
        """Samples, at most, that are no repeats of the one before."""
        self.holds = Conditions()
        self.since = Lasting(-1)
        """Since when it has been quiet, the tensor cores have hardly been used and the PCIe link has been degraded."""
        self.resumed = False
        """Whether it began because of a hole, with the job that had run before it."""

    def keep(self, seconds: float) -> None:
        """Drop what is older: it says nothing of what is now."""
        self.sums.keep(seconds)
        self.feeders.keep(seconds)
        self.account.restart(seconds)


class GpuTrack:
    """What is remembered of one GPU."""

    def __init__(self) -> None:
        self.health = Health()
        self.util_now: float | None = None
        """The latest sample's util, percent."""
        self._job, self._window = _OfJob(), _OfWindow()
        self._trend = MemoryTrend()
        self._alternations = Alternations()
        self._falls = 0
        self._has_pauses = False
        self._slow_idle: float | None = None
        self._last_t: float | None = None
        self._renewed_t = self._compared_at = float("-inf")
        self._changed_at: float | None = None
        """When the window was restarted because the cause had changed."""
        self._before, self._before_t = Lasting(-1), float("-inf")
        self._sm_source = ""

    @property
    def correlation(self) -> Correlation:
        """Whether GPU and loaders move together."""
        return self._window.correlation

    def mark_started(self) -> None:
        """The job that runs now is past its start, whatever it does from now on."""
        self._job.startup.has_trained = True

    def restore_conditions(self, t: float, before: Lasting) -> None:
        """Take over what had held until a sample, the first of a recording, that is yet to be observed."""
        self._before, self._before_t = before, t

    def lasting(self, gpu: int) -> Lasting:
        """Since when what holds now has held, for the GPU with that index."""
        return replace(self._window.since, gpu=gpu)

    def skip(self, gpu: GpuSample, events: tuple[Event, ...]) -> None:
        """A sample of a GPU that cannot be read: only its errors count, and the window starts over afterwards."""
        self.health.observe(gpu, events)
        self._window = _OfWindow()
        self.util_now = None

    def observe(self, now: TickContext, gpu: GpuSample, tick: GpuHostActivity | None) -> Signals | None:
        """The signals at this moment, or None while util itself is not measured."""
        t, interval_s = now.t, now.interval_s
        since_last = interval_s if self._last_t is None else t - self._last_t
        self._last_t = t
        if since_last > WINDOW_S:
            # A hole is no information: what held before it, and is found again after it, goes on.
            before_hole, self._window = self._window, _OfWindow()
            self._window.since, self._window.holds = before_hole.since, before_hole.holds
            self._window.resumed = bool(self._job.pids)
        dt = since_last if since_last <= GAP_INTERVALS * interval_s else interval_s
        self._watch_job(t, tick)
        self.health.observe(gpu, now.events)
        measured = tick if now.host_is_new else None
        before, util, busy = self.util_now, gpu.util_pct, busy_second_pct(gpu)
        self.util_now = util
        if before is not None and is_refuted(gpu):
            self._window = _OfWindow()
        ran = kernels_pct(gpu, busy)
        began = None if busy is None or ran is None else self._works(now, dt, busy, ran, tick, measured)
        if measured is not None:
            self._observe_host(t, gpu, now.host, measured)
        window, sm_off = self._window, self._sm_off(gpu)
        window.fresh += util != before or t - self._renewed_t >= REPEATS_S
        if util != before:
            self._renewed_t = t
        row = row_of(gpu, util, None if sm_off else gpu.sm_active_pct, measured, pcie_capacity(gpu))
        window.sums.push(t, row)
        if measured is not None:
            self._account(t, dt, kernels_pct(gpu, util), HostMeans._make(row[len(GpuMeans._fields) :]), measured)
            self._restart_window(t)
        if began is not None:
            # A pause before that, for compiling say, was a part of starting up.
            window.keep(t - began + 0.5 * interval_s)
        if util is not None:
            idle, part = 100.0 - util, 1.0 - exp(-dt / at.DEMAND_SLOW_S)
            self._slow_idle = idle if self._slow_idle is None else self._slow_idle + part * (idle - self._slow_idle)
        if util is not None and measured is not None and measured.scheduled:
            window.correlation.add(util, measured.workers / measured.scheduled)
        if window.sums.means().gpu.u is None and (gpu.static.mig_parent is None or gpu.sm_active_pct is None):
            return None
        return self._signals(now, gpu, NO_PROCESSES if tick is None else tick, sm_off)

    def _account(self, t: float, dt: float, ran: float | None, main: HostMeans, tick: GpuHostActivity) -> None:
        """Follow what the main thread and its feeders did, and how much of the idle time that was.

        ``ran`` is the percentage of the sample in which kernels ran.
        """
        window = self._window
        window.feeders.push(t, tick.feeders, tick.ends)
        if ran is None:
            return
        mean, looks = window.sums.means().gpu.u, None if tick.primary is None else tick.primary.main_looks
        rows = window.feeders.feeding(tick.feeders) if mean is None or mean < WAITS_BELOW_UTIL else ()
        window.account.add(t, dt, ran, 1 if looks is None else max(1, looks.total), main, rows)

    def _works(
        self,
        now: TickContext,
        dt: float,
        busy: float,
        ran: float,
        tick: GpuHostActivity | None,
        measured: GpuHostActivity | None,
    ) -> float | None:
        """Follow when kernels run and when none does; when training began, where that is seen now. ``ran``: percent of
        the sample in which any did, which says nothing of pauses: their first and last seconds are busy in part."""
        t, interval_s = now.t, now.interval_s
        write = None if measured is None else measured.write_bytes
        primary = None if measured is None else measured.primary
        if self._window.runs.observe(t, dt, busy, write, saves_pct(primary)) > RESTART_AFTER_ZERO_S:
            self._window = _OfWindow()
        knows = tick is not None and tick.knows_feeders
        startup = self._job.startup
        if startup.begins_to_work(t, max(busy, ran), age_known=knows and tick is not None and tick.age_s is not None):
            self._window = _OfWindow()
        self._falls = self._alternations.observe(t, ran)
        self._has_pauses = self._job.demand.observe(t, busy)
        return startup.began_to_train(t, interval_s) if knows else None

    def _observe_host(self, t: float, gpu: GpuSample, host: HostSample, tick: GpuHostActivity) -> None:
        """Follow what outlives the window: memory, births, and what threads have been in without a break."""
        used, total = memory_of(gpu, host)
        self._trend.observe(t, tick.owners, None if total is None or used is None else total - used)
        job, p = self._job, tick.primary
        job.births.observe(t, tick.births, tick.age_s if tick.knows_feeders else None)
        if tick.births and (job.born_kind is None or tick.kinds == "torch"):
            # A spawned worker is a plain Python before it names itself: the kind is the last that was known.
            job.born_kind = tick.kinds
        job.main.observe(t, state_of_main(p), None if p is None else p.mount)
        job.feeders.observe(t, *state_of_workers(tick))

    def _restart_window(self, t: float) -> None:
        """Where the last seconds contradict the window clearly, the cause has changed: what was before says nothing."""
        if self._changed_at is not None and t - self._changed_at < WINDOW_S:
            return
        window = self._window
        if t - window.sums.oldest_t < CHANGE_S + BEFORE_S or t - self._compared_at < COMPARE_S:
            return
        self._compared_at = t
        u = window.sums.means().gpu.u
        if u is None or 100.0 - u < at.IDLE:
            return
        pairs = [means for means in window.sums.latest(CHANGE_S, _WATCHED) if means is not None]
        if any(abs(new - old) >= CLEARLY for new, old in (*pairs, *window.feeders.latest(CHANGE_S))):
            self._changed_at = t
            window.keep(CHANGE_S)

    def _watch_job(self, t: float, tick: GpuHostActivity | None) -> None:
        """When the job that the window describes is over, the window is too."""
        pids, job = frozenset(p.pid for p in tick.owners) if tick is not None else frozenset(), self._job
        if not job.pids:
            job.pids = pids
        elif not pids & job.pids and (pids or t - job.seen_t >= JOB_GONE_S):
            self._job, self._window = _OfJob(pids), _OfWindow()
        elif pids:
            job.pids = pids
        if pids:
            self._job.seen_t = t

    def _sm_off(self, gpu: GpuSample) -> SmLack | None:
        """Why SM activity does not count now; keeps two sources apart and notices a broken counter."""
        source = gpu.sm_source
        if source != self._sm_source:
            if self._sm_source in MEASURED:
                self._window.sums.forget(*ACTIVITY, "void")
            self._sm_source = source
        if is_split(gpu):
            return SmLack(("MIG: whole-GPU SM activity says nothing about an instance",))
        if source not in MEASURED:
            return gpu.sm_lack or SmLack(("no SM counter",))
        if lacks_sm(gpu) and self._window.sums.means().gpu.sm is None:
            return gpu.sm_lack
        if is_stale(gpu) and self._window.sums.means().gpu.sm is None:
            return SmLack((f"the last SM activity is {gpu.sm_age_s or 0.0:.0f} s old",))
        return SmLack((BROKEN,)) if is_broken(gpu) else None

    def _signals(self, now: TickContext, gpu: GpuSample, tick: GpuHostActivity, sm_off: SmLack | None) -> Signals:
        t, interval_s, window, startup = now.t, now.interval_s, self._window, self._job.startup
        mean = window.sums.means()
        util, sm = mean.gpu.u, None if sm_off else mean.gpu.sm
        means = mean.gpu._replace(sm=sm)
        if util is None:
            u = max(sm or 0.0, means.tensor or 0.0, means.dram or 0.0)
        else:
            u = busy_pct(gpu, util, sm) or 0.0
        n, least = min(len(window.sums), window.fresh), min(LEAST_SAMPLES, max(2, int(WINDOW_S / interval_s)))
        by_demand = tick.primary is None or tick.server is not None
        if n >= least:
            window.holds = update_conditions(
                window.holds,
                means,
                u,
                may_be_hollow=not now.listed if tick is NO_PROCESSES else tick.computing > 0 and not tick.renders(),
                slow_idle=self._slow_idle if by_demand else None,
                has_nvlink=bool(gpu.static.nvlink_peak_bytes_per_s or gpu.nvlink_rx_bytes_per_s),
                limits_known=(gpu.throttle_reasons is not None or means.power is not None) and not tick.draws,
                power_is_impossible=has_impossible_power(gpu),
            )
        quiet = util is not None and means.loud <= (
            LOUD_SHARE if window.since.quiet_since is None else LOUD_SHARE.leave
        )
        degraded = degraded_link(gpu) if u >= DEGRADED_UTIL else ""
        since, oldest_t = window.since, window.sums.oldest_t
        before = self._before if oldest_t <= self._before_t else Lasting(-1)
        window.since = since = Lasting(
            -1,
            _still(since.quiet_since, quiet, oldest_t, before.quiet_since),
            _still(since.little_tensor_since, window.holds.little_tensor, oldest_t, before.little_tensor_since),
            _still(since.degraded_since, bool(degraded), t, before.degraded_since),
        )
        run = window.runs.current()
        is_old = now.host_age_s > OLD_S
        return Signals(
            t=t,
            gpu=gpu,
            tick=tick,
            machine=now.host,
            host=_too_old(now.host_age_s) if is_old else self._host_side(t, tick, now.host, mean.host, run, u),
            n=n,
            least=least,
            covered_s=t - oldest_t + interval_s,
            u=u,
            idle=round(100.0 - u, 6),
            util_known=util is not None,
            mean=means,
            sm_off=sm_off,
            measure="" if sm is not None else how_to_measure(gpu),
            holds=window.holds,
            comes_and_goes=by_demand and self._has_pauses,
            pcie_bytes_per_s=pcie_capacity(gpu),
            quiet=quiet,
            quiet_s=_age(since.quiet_since, t, interval_s),
            stopped_s=0.0 if run is None else run.length_s,
            falls=self._falls,
            degraded=degraded,
            degraded_s=_age(since.degraded_since, t, interval_s),
            little_tensor_s=_age(since.little_tensor_since, t, interval_s),
            errors=self.health.errors,
            xids=self.health.xids,
            leak=self._trend.leak,
            worked=tick.knows_feeders and startup.has_trained,
            kernels_s=startup.kernels_s(t, interval_s),
            has_worked=not tick.knows_feeders or startup.has_worked,
            changed_s=None if self._changed_at is None else t - self._changed_at,
            resumed=window.resumed and n < least,
            trains_s=startup.trains_s(t),
            steps_now=startup.is_busy(t, interval_s),
            job_ended=bool(self._job.pids) and not tick.owners,
            fabric=now.fabric,
        )

    def _host_side(
        self, t: float, tick: GpuHostActivity, host: HostSample, mean: HostMeans, run: Pause | None, u: float
    ) -> HostSide:
        """What the host did for this GPU: its main thread, its loaders, the machine around them."""
        p = tick.primary
        job, window = self._job, self._window
        pauses = window.runs.ended if run is None else (*window.runs.ended, run)
        births, beside_s, of_all_s = job.births.recent(t, pauses)
        feeders, address, filled, mostly = None, "", IdleAttribution(), frozenset[str]()
        if 100.0 - u >= at.IDLE:
            feeders, address = window.feeders.feeders(), window.feeders.address
            filled, mostly = window.account.filled(None if feeders is None else feeders.key)
        return HostSide(
            reason=missing_host_reason(p),
            mean=mean,
            waits=mean.waits,
            fetches=p is not None and p.feed_by == "main socket",
            served=p is not None and p.feed_by == SERVED_BY_PARENT,
            rx=None if p is None else p.net_rx_bytes_per_s,
            address=address,
            loaders=tick.loader_count or ceil(window.sums.total("loaders") / len(window.sums)),
            feeders=feeders,
            accounted=window.account.says_something,
            filled=filled,
            mostly=mostly,
            waits_known=not tick.loader_count or tick.wait_channels > 0,
            io_known=not tick.loader_count or tick.read_bytes is not None,
            births=births,
            birth_gap_s=beside_s,
            restart_s=of_all_s,
            born_kind=job.born_kind,
            pauses=pauses,
            main_state=job.main.stands,
            worker_state=job.feeders.stands,
            outsiders=host.outsiders or (),
            outsider_cores=None if host.cpu_outsiders_pct is None else host.cpu_outsiders_pct / 100.0,
            cores=host.cpu_count if p is None or p.allowed_cores is None else p.allowed_cores,
        )


def _too_old(age_s: float) -> HostSide:
    """Nothing that processes did is known: what was read of them is ``age_s`` old."""
    return HostSide(reason=f"process data are {duration(age_s)} old: /proc does not answer", is_old=True)


def _still(since: float | None, holds: bool, begin: float, before: float | None) -> float | None:
    """Since when something has held that holds now: from ``before`` on, if it held then and counts only now."""
    if not holds:
        return None
    return since if since is not None else min(begin, begin if before is None else before)


def _age(since: float | None, t: float, interval_s: float) -> float:
    """How long something has held; a sample stands for the interval before it."""
    return 0.0 if since is None else t - since + interval_s
