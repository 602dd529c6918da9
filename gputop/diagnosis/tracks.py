"""One GPU over time: takes a sample and the host's side of it in, gives the signals that the rules read.

Everything kept is bounded, and a tick costs the same whatever went before.
"""

from __future__ import annotations

from collections import Counter, deque
from math import ceil, exp

from gputop.diagnosis import thresholds as at
from gputop.diagnosis.account import Account, Filled
from gputop.diagnosis.attribution import Correlation
from gputop.diagnosis.fabric_window import FabricSignals
from gputop.diagnosis.feeder_window import FeederWindow
from gputop.diagnosis.hardware_health import Health, MemoryTrend
from gputop.diagnosis.host_side import NOBODY, HostTick
from gputop.diagnosis.hysteresis import (
    Holds,
    Standing,
    Stands,
    WindowMeans,
    feeders_state,
    main_state,
    next_holds,
    saves_pct,
)
from gputop.diagnosis.idle_runs import ZERO_UTIL, Alternations, Births, Demand, ZeroRuns
from gputop.diagnosis.readings import BROKEN, busy_pct, busy_second_pct, is_broken, is_refuted
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
    pcie_capacity,
    row_of,
    why_dark,
)
from gputop.model.derived import lacks_sm
from gputop.model.feeders import SERVED_BY_PARENT
from gputop.model.quantity import duration
from gputop.model.sm import MEASURED, SmLack
from gputop.model.snapshot import GAP_INTERVALS, Event, GpuSample, HostSample, Lasting

# When what is remembered says nothing any more: a job that begins to work, and a cause that has changed.

WORKS_UTIL = 5.0
WORKED_OF_S, WORKED_S = 15.0, 10.0
"""Kernels in ten of the last fifteen seconds: the job trains."""
STEADY_S, STEADY_PARTS, STEADY_EACH_S = 24.0, 3, 2.0
"""Kernels in two seconds of each third of the last 24: its steps are slow, but they come [judged]."""
KNOWN_WITHIN_S = 10.0
"""A process that is not known so long after the first kernels is not waited for [judged]."""
YOUNG_S = 60.0
"""Age of a GPU process below which it may still be starting up [judged]."""
CHANGE_S, BEFORE_S = 8.0, 8.0
"""The last eight seconds against at least so many before."""
COMPARE_S = 3.0
CLEARLY = 0.5
"""Two means of a share this far apart do not come from one cause: at eight samples of a yes or no that is 2.8 times
the standard error."""
_WATCHED = ("main", "main_network", "main_sleep", "main_lock", "main_poll", "main_disk", "workers")


class Startup:
    """Whether one job trains already: the times of samples with kernels, of the last seconds."""

    __slots__ = ("_any", "_first_kernels_at", "_has_begun", "_has_trained", "_loud", "_trains_since", "_was_quiet")

    def __init__(self) -> None:
        self._loud: deque[float] = deque()
        self._any: deque[float] = deque()
        self._was_quiet = self._has_begun = self._has_trained = False
        self._first_kernels_at: float | None = None
        self._trains_since: float | None = None

    def begins_to_work(self, t: float, util: float, *, age_known: bool) -> bool:
        """Take a sample in; True once, where the job runs its first kernels after a quiet time.

        What came before was importing and warming up: no part of a window that judges training. A process may be seen
        on the GPU, or its age be known, only some samples after its kernels: it is waited for. A job that pauses later
        goes on being judged.
        """
        for times, seconds in ((self._loud, WORKED_OF_S), (self._any, STEADY_S)):
            while times and times[0] <= t - seconds:
                times.popleft()
        if util >= ZERO_UTIL:
            self._any.append(t)
        if util < WORKS_UTIL:
            self._was_quiet = True
        else:
            self._loud.append(t)
            if not self._has_begun:
                self._has_begun = True
                self._first_kernels_at = t if self._was_quiet else None
        first = self._first_kernels_at
        if first is None or (not age_known and t - first < KNOWN_WITHIN_S):
            return False
        self._first_kernels_at = None
        return age_known

    @property
    def has_worked(self) -> bool:
        """Whether any kernel of the job was seen."""
        return self._has_begun

    def kernels_s(self, t: float, interval_s: float) -> float:
        """Seconds of the last fifteen in which any kernel ran; a sample stands for one interval."""
        return interval_s * sum(1 for at in self._any if at > t - WORKED_OF_S)

    @property
    def has_trained(self) -> bool:
        """Whether the job was seen training. One that pauses then is not starting up, however young it is."""
        return self._has_trained

    def trains_s(self, t: float) -> float | None:
        """Seconds since the job was first seen training; None where it was not."""
        return None if self._trains_since is None else t - self._trains_since

    def end(self) -> None:
        """It trains, as others have seen."""
        self._has_trained = True

    def began_to_train(self, t: float, interval_s: float) -> float | None:
        """Once, where it is seen that the job trains: when it began to. A sample stands for one interval.

        That is where kernels have run in ten of fifteen seconds, or have come again and again for longer.
        """
        if self._has_trained:
            return None
        loud = sum(1 for at in self._loud if at > t - WORKED_OF_S)
        if loud * interval_s >= WORKED_S - 1e-6:
            self._has_trained = True
            self._trains_since = self._loud[0]
            return self._loud[0]
        part_s = STEADY_S / STEADY_PARTS
        parts = Counter(int((t - at) / part_s) for at in self._any)
        if all(parts[n] * interval_s >= STEADY_EACH_S - 1e-6 for n in range(STEADY_PARTS)):
            self._has_trained = True
            self._trains_since = self._any[0]
            return self._any[0]
        return None


def contradicts(window: Window, feeders: FeederWindow) -> bool:
    """Whether the last seconds contradict what came before: another state fills the main thread's or feeders' time."""
    for means in window.latest(CHANGE_S, _WATCHED):
        if means is not None and abs(means[0] - means[1]) >= CLEARLY:
            return True
    return any(abs(new - old) >= CLEARLY for new, old in feeders.latest(CHANGE_S))


LOUD_SHARE, LOUD_SHARE_LEAVE = 0.05, 0.1
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
FEEDERS_FROM_IDLE = 20.0
"""Below this idle time the feeders of the GPU are not looked at."""


class GpuTrack:
    """What is remembered of one GPU."""

    def __init__(self) -> None:
        self.window = Window(WINDOW_S)
        self.feeders = FeederWindow(WINDOW_S)
        self.account = Account(WINDOW_S)
        self._startup = Startup()
        self._compared_at = float("-inf")
        self.restarted_at: float | None = None
        """When the window was restarted because the cause had changed."""
        self.correlation = Correlation()
        self.health = Health()
        self._trend = MemoryTrend()
        self._runs = ZeroRuns()
        self._births = Births()
        self._born_kind: str | None = None
        self._main_standing, self._feeder_standing = Standing(), Standing()
        self._main_stands: Stands | None = None
        self._feeders_stand: Stands | None = None
        self._alternations = Alternations()
        self._demand = Demand()
        self._has_pauses = False
        self._slow_idle: float | None = None
        self._job: frozenset[int] = frozenset()
        self._job_seen = 0.0
        self._last_t: float | None = None
        self._quiet_since: float | None = None
        self._holds = Holds()
        self._tensor_since: float | None = None
        self._degraded_since: float | None = None
        self._before = Lasting(-1)
        self._before_t = float("-inf")
        self._resumed = False
        """Whether the window began anew because of a hole, with the job that had run before it."""
        self._sm_source = ""
        self._util: float | None = None
        self._renewed_t = float("-inf")
        self._fresh = 0
        """Samples of the window, at most, that are no repeats of the one before."""
        self._falls = 0

    def has_started(self) -> None:
        """The job that runs now is past its start, whatever it does from now on."""
        self._startup.end()

    @property
    def util_now(self) -> float | None:
        """The latest sample's util, percent."""
        return self._util

    def has_lasted(self, t: float, before: Lasting) -> None:
        """Take over what had held until a sample, the first of a recording, that is yet to be observed."""
        self._before, self._before_t = before, t

    def lasting(self, gpu: int) -> Lasting:
        """Since when what holds now has held, for the GPU with that index."""
        return Lasting(gpu, self._quiet_since, self._tensor_since, self._degraded_since)

    def skip(self, gpu: GpuSample, events: tuple[Event, ...]) -> None:
        """A sample of a GPU that cannot be read: only its errors count, and the window starts over afterwards."""
        self.health.observe(gpu, events)
        self._restart()
        self._util = None

    def observe(
        self, t: float, interval_s: float, gpu: GpuSample, tick: HostTick | None, host: HostSample,
        events: tuple[Event, ...], fabric: FabricSignals | None = None, *, host_is_new: bool = True,
        host_age_s: float = 0.0, listed: bool = True,
    ) -> Signals | None:  # fmt: skip
        """The signals at this moment, or None while util itself is not measured.

        A host's side that is not new still says whose GPU it is, but is no sample of what it does; one that is older
        than ``OLD_S`` is no evidence of anything. ``listed``: there is a list of processes, whether or not one of them
        is on this GPU.
        """
        since_last = interval_s if self._last_t is None else t - self._last_t
        self._last_t = t
        if since_last > WINDOW_S:
            # A hole is no information: what held before it, and is found again after it, goes on.
            lasted = self._quiet_since, self._tensor_since, self._degraded_since, self._holds
            self._restart()
            self._quiet_since, self._tensor_since, self._degraded_since, self._holds = lasted
            self._resumed = bool(self._job)
        self._watch_job(t, tick)
        self.health.observe(gpu, events)
        used, total = memory_of(gpu, host)
        measured = tick if host_is_new else None
        if measured is not None:
            self._trend.observe(t, measured.owners, None if total is None or used is None else total - used)
        before, util = self._util, gpu.util_pct
        busy = busy_second_pct(gpu)
        self._util = util
        if before is not None and is_refuted(gpu):
            self._restart()
        dt = since_last if since_last <= GAP_INTERVALS * interval_s else interval_s
        write = None if measured is None else measured.write_bytes
        primary = None if measured is None else measured.primary
        if busy is not None and self._runs.observe(t, dt, busy, write, saves_pct(primary)) > RESTART_AFTER_ZERO_S:
            self._restart()
        knows = tick is not None and tick.knows_feeders
        age = tick.age_s if tick is not None and knows else None
        if busy is not None and self._startup.begins_to_work(t, busy, age_known=age is not None):
            self._restart()
        trains_since = None if util is None or not knows else self._startup.began_to_train(t, interval_s)
        if measured is not None:
            self._births.observe(t, measured.births, age)
            if measured.births and (self._born_kind is None or measured.kinds == "torch"):
                # A spawned worker is a plain Python before it names itself: the kind is the last that was known.
                self._born_kind = measured.kinds
            p = measured.primary
            self._main_stands = self._main_standing.observe(t, main_state(p), None if p is None else p.mount)
            self._feeders_stand = self._feeder_standing.observe(t, *feeders_state(measured))
        sm_off = self._sm_off(gpu)
        capacity = pcie_capacity(gpu)
        self._fresh += util != before or t - self._renewed_t >= REPEATS_S
        if util != before:
            self._renewed_t = t
        row = row_of(gpu, util, None if sm_off else gpu.sm_active_pct, measured, capacity)
        self.window.push(t, row)
        if measured is not None:
            self.feeders.push(t, tuple(measured.feeders), measured.ends)
            if util is not None:
                mean = self.window.means().gpu.u
                waits = mean is None or mean < WAITS_BELOW_UTIL
                rows = [feeder for feeder in measured.feeders if waits and self.feeders.feeds(feeder.key)]
                main = HostMeans._make(row[len(GpuMeans._fields) :])
                self.account.add(t, dt, util, _looks(measured), main, rows)
            self._restart_window(t)
        if trains_since is not None:
            # A pause before that, for compiling say, was a part of starting up.
            self.window.keep(t - trains_since + 0.5 * interval_s)
            self.feeders.keep(t - trains_since + 0.5 * interval_s)
            self.account.restart(t - trains_since + 0.5 * interval_s)
        if util is not None and busy is not None:
            self._falls = self._alternations.observe(t, busy)
            self._has_pauses = self._demand.observe(t, busy)
            idle, part = 100.0 - util, 1.0 - exp(-dt / at.DEMAND_SLOW_S)
            self._slow_idle = idle if self._slow_idle is None else self._slow_idle + part * (idle - self._slow_idle)
        if util is not None and measured is not None and measured.scheduled:
            self.correlation.add(util, measured.workers / measured.scheduled)
        if self.window.means().gpu.u is None and (gpu.static.mig_parent is None or gpu.sm_active_pct is None):
            return None
        return self._signals(t, interval_s, gpu, tick, host, sm_off, capacity, fabric, host_age_s, listed=listed)

    def _restart(self) -> None:
        self.window.clear()
        self.feeders.clear()
        self.account.clear()
        self.correlation.clear()
        self._runs.clear()
        self._fresh = 0
        self._quiet_since = self._tensor_since = self._degraded_since = None
        self._holds = Holds()
        self._resumed = False

    def _restart_window(self, t: float) -> None:
        """Where the last seconds contradict the window clearly, the cause has changed: what was before says nothing."""
        if self.restarted_at is not None and t - self.restarted_at < WINDOW_S:
            return
        if t - self.window.oldest_t < CHANGE_S + BEFORE_S or t - self._compared_at < COMPARE_S:
            return
        self._compared_at = t
        u = self.window.means().gpu.u
        if u is None or 100.0 - u < FEEDERS_FROM_IDLE:
            return
        if contradicts(self.window, self.feeders):
            self.restarted_at = t
            self.window.keep(CHANGE_S)
            self.feeders.keep(CHANGE_S)
            self.account.restart(CHANGE_S)

    def _watch_job(self, t: float, tick: HostTick | None) -> None:
        """When the job that the window describes is over, the window is too."""
        pids = frozenset(p.pid for p in tick.owners) if tick is not None else frozenset()
        if pids & self._job or not self._job:
            if pids:
                self._job, self._job_seen = pids, t
            return
        if pids or t - self._job_seen >= JOB_GONE_S:
            self._job, self._job_seen = pids, t
            self._births.clear()
            self._demand.clear()
            self._born_kind = None
            self._main_stands = self._feeders_stand = None
            self._main_standing.clear()
            self._feeder_standing.clear()
            self._startup = Startup()
            self._restart()

    def _sm_off(self, gpu: GpuSample) -> SmLack | None:
        """Why SM activity does not count now; keeps two sources apart and notices a broken counter."""
        source = gpu.sm_source
        if source != self._sm_source:
            if self._sm_source in MEASURED:
                self.window.forget(*ACTIVITY, "void")
            self._sm_source = source
        if is_split(gpu):
            return SmLack(("MIG: whole-GPU SM activity says nothing about an instance",))
        if source not in MEASURED:
            return gpu.sm_lack or SmLack(("no SM counter",))
        if lacks_sm(gpu) and self.window.means().gpu.sm is None:
            return gpu.sm_lack
        if is_stale(gpu) and self.window.means().gpu.sm is None:
            return SmLack((f"the last SM activity is {gpu.sm_age_s or 0.0:.0f} s old",))
        return SmLack((BROKEN,)) if is_broken(gpu) else None

    def _signals(
        self, t: float, interval_s: float, gpu: GpuSample, tick: HostTick | None, host: HostSample,
        sm_off: SmLack | None, capacity: float | None, fabric: FabricSignals | None, host_age_s: float, *,
        listed: bool,
    ) -> Signals:  # fmt: skip
        window = self.window
        mean = window.means()
        util, sm = mean.gpu.u, None if sm_off else mean.gpu.sm
        if util is None:
            u = max(sm or 0.0, mean.gpu.tensor or 0.0, mean.gpu.dram or 0.0)
        else:
            u = busy_pct(gpu, util, sm) or 0.0
        tick = NOBODY if tick is None else tick
        hollow = not listed if tick is NOBODY else tick.computing > 0 and not tick.renders()
        n, least = min(len(window), self._fresh), min(LEAST_SAMPLES, max(2, int(WINDOW_S / interval_s)))
        by_demand = tick.primary is None or tick.server is not None
        if n >= least:
            slow = self._slow_idle if by_demand else None
            now = _activity(mean.gpu, gpu, sm, u, slow, util_known=util is not None, hollow=hollow)
            self._holds = next_holds(self._holds, now)
        share = LOUD_SHARE if self._quiet_since is None else LOUD_SHARE_LEAVE
        quiet = util is not None and mean.gpu.loud <= share
        oldest_t = window.oldest_t
        before = self._before if oldest_t <= self._before_t else Lasting(-1)
        self._quiet_since = _since(self._quiet_since, quiet, oldest_t, before.quiet_since)
        little = self._holds.little_tensor
        self._tensor_since = _since(self._tensor_since, little, oldest_t, before.little_tensor_since)
        degraded = degraded_link(gpu) if u >= DEGRADED_UTIL else ""
        self._degraded_since = _since(self._degraded_since, bool(degraded), t, before.degraded_since)
        run = self._runs.current()
        return Signals(
            t=t,
            gpu=gpu,
            tick=tick,
            machine=host,
            host=self._host_side(t, tick, host, mean.host, run, u) if host_age_s <= OLD_S else _too_old(host_age_s),
            n=n,
            least=least,
            covered_s=t - oldest_t + interval_s,
            u=u,
            idle=round(100.0 - u, 6),
            util_known=util is not None,
            mean=mean.gpu._replace(sm=sm),
            sm_off=sm_off,
            measure="" if sm is not None else how_to_measure(gpu),
            holds=self._holds,
            comes_and_goes=by_demand and self._has_pauses,
            pcie_bytes_per_s=capacity,
            quiet=quiet,
            quiet_s=_age(self._quiet_since, t, interval_s),
            stopped_s=0.0 if run is None else run.length_s,
            falls=self._falls,
            degraded=degraded,
            degraded_s=_age(self._degraded_since, t, interval_s),
            little_tensor_s=_age(self._tensor_since, t, interval_s),
            errors=self.health.errors,
            xids=self.health.xids,
            leak=self._trend.leak,
            worked=tick.knows_feeders and self._startup.has_trained,
            kernels_s=self._startup.kernels_s(t, interval_s),
            has_worked=not tick.knows_feeders or self._startup.has_worked,
            changed_s=None if self.restarted_at is None else t - self.restarted_at,
            resumed=self._resumed and n < least,
            trains_s=self._startup.trains_s(t),
            fabric=fabric,
        )

    def _host_side(
        self, t: float, tick: HostTick, host: HostSample, mean: HostMeans, run: Pause | None, u: float
    ) -> HostSide:
        """What the host did for this GPU: its main thread, its loaders, the machine around them."""
        p = tick.primary
        pauses = self._runs.ended if run is None else (*self._runs.ended, run)
        births, beside_s, of_all_s = self._births.recent(t, pauses)
        feeders = self.feeders.feeders() if 100.0 - u >= FEEDERS_FROM_IDLE else None
        key = None if feeders is None else feeders.pid
        if key is not None and feeders is not None and feeders.what in ("threads", "children"):
            key = -key
        filled, mostly = self.account.filled(key) if 100.0 - u >= FEEDERS_FROM_IDLE else (Filled(), frozenset[str]())
        return HostSide(
            reason=why_dark(p),
            mean=mean,
            waits=mean.waits,
            fetches=p is not None and p.feed_by == "main socket",
            served=p is not None and p.feed_by == SERVED_BY_PARENT,
            rx=None if p is None else p.net_rx_bytes_per_s,
            loaders=tick.loader_count or ceil(self.window.total("loaders") / len(self.window)),
            feeders=feeders,
            accounted=self.account.says_something,
            filled=filled,
            mostly=mostly,
            waits_known=not tick.loader_count or tick.wait_channels > 0,
            io_known=not tick.loader_count or tick.read_bytes is not None,
            births=births,
            birth_gap_s=beside_s,
            restart_s=of_all_s,
            born_kind=self._born_kind,
            pauses=pauses,
            main_stands=self._main_stands,
            feeders_stand=self._feeders_stand,
            outsiders=host.outsiders or (),
            outsider_cores=None if host.cpu_outsiders_pct is None else host.cpu_outsiders_pct / 100.0,
            cores=host.cpu_count if p is None or p.allowed_cores is None else p.allowed_cores,
        )


def _looks(tick: HostTick) -> int:
    """How often the main thread was looked at in a sample."""
    looks = None if tick.primary is None else tick.primary.main_looks
    return 1 if looks is None else max(1, looks.total)


def _too_old(age_s: float) -> HostSide:
    """Nothing that processes did is known: what was read of them is ``age_s`` old."""
    return HostSide(reason=f"process data are {duration(age_s)} old: /proc does not answer", is_old=True)


def _since(since: float | None, holds: bool, begin: float, before: float | None) -> float | None:
    """Since when something has held that holds now: from ``before`` on, if it held then and counts only now."""
    if not holds:
        return None
    return since if since is not None else min(begin, begin if before is None else before)


def _age(since: float | None, t: float, interval_s: float) -> float:
    """How long something has held; a sample stands for the interval before it."""
    return 0.0 if since is None else t - since + interval_s


def _activity(
    mean: GpuMeans, gpu: GpuSample, sm: float | None, u: float, slow: float | None, *, util_known: bool, hollow: bool
) -> WindowMeans:
    """What the conditions of a busy GPU are made of."""
    received, sent = mean.pcie_rx, mean.pcie_tx
    links: tuple[float | None, ...] = (None if received is None or sent is None else max(received, sent),)
    if gpu.static.nvlink_peak_bytes_per_s or gpu.nvlink_rx_bytes_per_s:
        links = (*links, mean.nvlink)
    return WindowMeans(
        u, util_known, mean.u_of_sm, mean.u_of_dram, sm, mean.tensor, mean.dram, mean.fp64,
        mean.fp32, mean.fp16, mean.integer, mean.power, hollow, slow, mean.nvlink,
        None if received is None or sent is None else min(received, sent), links,
    )  # fmt: skip
