"""Patterns over time that means hide: idle runs, restarts, falls, starts, steady states."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from msgspec import Struct

from gputop.diagnosis.window.host_activity import (
    HALTED,
    GpuHostActivity,
    address_of,
)
from gputop.model.snapshot import ProcessSample

QUIET_UTIL = 5.0
ZERO_UTIL = 1.0
"""Util below this is "no kernel ran": the driver gives whole percents."""
MEMORY_S = 27.0
"""How long a pause or a birth counts after its end: with eight ticks of hysteresis a verdict leaves within 35 s."""
BESIDE_S = 5.0
"""A birth and a run without a kernel belong together when at most this lies between them."""
RECENT_S, BIRTHS_REMEMBERED_S = 30.0, 120.0
FOUND_WITHIN_S = 10.0
"""Processes are looked for every few seconds: the age of one older than this when first seen says nothing, and one
first seen this soon after the job is not a birth."""
YOUNGER_S = 20.0
"""Loaders that start this long after their job are not its first [judged]."""
ALTERNATION_S = 30.0
ALTERNATION_STEP_S = 0.9
"""Samples closer together than this do not count: at 4 Hz the steps of any training job alternate."""
BUSY_UTIL, IDLE_UTIL = 60.0, 20.0
MOST_RUNS = 30


class Pause(Struct, frozen=True):
    """A run of samples without any kernel.

    Its end, its length, and the writes of the job's tree during it. ``main_saves`` is the share of it in which the main
    thread waited for a file to be written.
    """

    ended: float
    length_s: float
    write_bytes_per_s: float | None
    main_saves: float = 0.0


class IdleRuns:
    """Runs of samples without a kernel, and writes during them."""

    def __init__(self) -> None:
        self._begin: float | None = None
        self._last = self._hole_s = 0.0
        self._writes: list[tuple[float, float]] = []
        """Bytes a second, and the share of the main thread's waits for them."""
        self.ended: tuple[Pause, ...] = ()
        """Runs whose last sample is at most ``MEMORY_S`` old, oldest first."""

    def observe(
        self, t: float, dt: float, util: float, writes: float | None, main_saves: float = 0.0
    ) -> None:
        """Add a sample.

        ``main_saves``: the share of it in which the main thread waited for a file to be written.
        """
        if util < ZERO_UTIL:
            if self._begin is None:
                self._begin, self._writes, self._hole_s = t - dt, [], 0.0
            else:
                self._hole_s += max(0.0, t - dt - self._last)
            if writes is not None:
                self._writes.append((writes, main_saves))
            self._last = t
        elif (run := self.current()) is not None:
            self.ended, self._begin = (*self.ended, run)[-MOST_RUNS:], None
        if self.ended and self.ended[0].ended <= t - MEMORY_S:
            self.ended = tuple([run for run in self.ended if run.ended > t - MEMORY_S])

    def current(self) -> Pause | None:
        """The run that is still going on."""
        if self._begin is None:
            return None
        n, length_s = len(self._writes), self._last - self._begin - self._hole_s
        if not n:
            return Pause(self._last, length_s, None)
        writes, saves = map(sum, zip(*self._writes, strict=True))
        return Pause(self._last, length_s, writes / n, saves / n)


DEMAND_PAUSE_S, DEMAND_PAUSES = 2.0, 3
"""Pauses of so many seconds at least, and so many of them, make a load that comes and goes."""
DEMAND_MEMORY_S, DEMAND_ENDS_S = 600.0, 120.0
"""How long a pause counts, and the pause after which nothing comes any more."""


class BurstDetector:
    """Detects a GPU that is used now and then, as by requests."""

    def __init__(self) -> None:
        self._quiet_since: float | None = None
        self._ended: deque[float] = deque(maxlen=DEMAND_PAUSES)

    def pass_hole(self, hole_s: float) -> None:
        """Leave so many seconds without samples out of the present pause."""
        if self._quiet_since is not None:
            self._quiet_since += hole_s

    def observe(self, t: float, util: float) -> bool:
        """Add a sample; True if work has come and gone lately and may come again."""
        quiet_s = 0.0 if self._quiet_since is None else t - self._quiet_since
        if util >= QUIET_UTIL:
            if quiet_s >= DEMAND_PAUSE_S:
                self._ended.append(t)
            self._quiet_since = None
        elif self._quiet_since is None:
            self._quiet_since = t
        elif quiet_s >= DEMAND_ENDS_S:
            self._ended.clear()
        return len(self._ended) == DEMAND_PAUSES and self._ended[0] > t - DEMAND_MEMORY_S


class Restarts(Struct, frozen=True):
    """Workers that were started again."""

    count: int = 0
    """New workers in the last 30 s."""
    longest_pause_s: float = 0.0
    """Longest run without a kernel while any worker started; 0 for a single batch of them."""
    full_restart_s: float = 0.0
    """Runs without a kernel while every worker was new."""


class WorkerRestarts:
    """New loaders of one GPU. Loaders found with the job are none."""

    def __init__(self) -> None:
        self._starttimes: dict[int, int | None] = {}
        self._parents: dict[int, int] = {}
        """The processes that have had loaders, with the most that one had at once."""
        self._births: deque[tuple[float, bool]] = deque(maxlen=1024)
        """Start of each, and whether no older one was left."""
        self._begun: float | None = None

    def observe(
        self, t: float, loaders: Sequence[ProcessSample], job_age_s: float | None = None
    ) -> None:
        """Note which loaders were not there before.

        With the job's age, loaders found with it that are much younger and all of one age were started later.
        """
        starttimes, births = self._starttimes, self._births
        if not starttimes and job_age_s is not None:
            ages = [p.age_s for p in loaders if p.age_s is not None]
            if ages and max(ages) - min(ages) <= BESIDE_S and max(ages) <= BIRTHS_REMEMBERED_S / 2:
                births.extend((t - age, True) for age in ages if job_age_s - max(ages) >= YOUNGER_S)
        siblings = Counter(p.ppid for p in loaders if p.ppid is not None)
        new = [p for p in loaders if p.pid not in starttimes or starttimes[p.pid] != p.starttime]
        # However young the job: where none of those seen before is left, these have replaced them.
        replaced = bool(starttimes) and len(new) == len(loaders)
        of_all = len(new) == len(loaders) or all(
            (p.age_s or BESIDE_S + 1.0) <= BESIDE_S for p in loaders
        )
        late = self._begun is not None and t - self._begun >= FOUND_WITHIN_S
        for p in new:
            starttimes[p.pid] = p.starttime
            # One that follows another of the same parent, which never has two, is a child per shard and no worker.
            # PyTorch's workers name themselves: one that is started again each epoch is a restart.
            follows = (
                p.static.rule != "R1"
                and siblings[p.ppid or 0] == 1
                and self._parents.get(p.ppid or 0) == 1
            )
            if (late or replaced) and not follows:
                births.append(
                    (t if p.age_s is None or p.age_s > FOUND_WITHIN_S else t - p.age_s, of_all)
                )
        for parent, count in siblings.items():
            self._parents[parent] = max(count, self._parents.get(parent, 0))
        if self._begun is None:
            self._begun = t
        if len(starttimes) > 2 * len(loaders) + 64:
            self._starttimes = {p.pid: p.starttime for p in loaders}
            self._parents = {parent: self._parents[parent] for parent in siblings}
        while births and births[0][0] <= t - BIRTHS_REMEMBERED_S:
            births.popleft()

    def recent(self, t: float, runs: tuple[Pause, ...]) -> Restarts:
        """Return the restarts of the last 30 s.

        A single batch of births is an epoch's beginning or a short evaluation: it takes two batches to be a restart.
        """
        births = self._births
        if not births:
            return Restarts()
        count = sum(1 for born, _ in births if born > t - RECENT_S)
        longest = of_all_s = 0.0
        for run in runs:
            begin, end = run.ended - run.length_s - BESIDE_S, run.ended + BESIDE_S
            near = [of_all for born, of_all in births if begin <= born <= end]
            longest = max(longest, run.length_s if near else 0.0)
            of_all_s += run.length_s if any(near) else 0.0
        is_single = count == 0 or births[-1][0] - births[0][0] < BESIDE_S
        return Restarts(count, 0.0 if is_single else longest, of_all_s)


class Alternations:
    """Falls from busy to idle in the last 30 s."""

    def __init__(self) -> None:
        self._busy: bool | None = None
        self._falls: deque[float] = deque()
        self._t = float("-inf")

    def observe(self, t: float, util: float) -> int:
        """Add a sample; return the falls in the last 30 s."""
        if t - self._t >= ALTERNATION_STEP_S:
            self._t = t
            busy = True if util >= BUSY_UTIL else False if util <= IDLE_UTIL else self._busy
            if self._busy and not busy:
                self._falls.append(t)
            self._busy = busy
            while self._falls and self._falls[0] <= t - ALTERNATION_S:
                self._falls.popleft()
        return len(self._falls)


WORKS_UTIL = 5.0
WORKED_OF_S, WORKED_S = 15.0, 10.0
"""Kernels in ten of the last fifteen seconds: the job trains."""
BEGUN_OF_S, BEGUN_S = 5.0, 4.0
"""Kernels in four of the last five seconds: it has begun to, or warms up [judged]."""
STEADY_S, STEADY_PARTS, STEADY_EACH_S = 24.0, 3, 2.0
"""Kernels in two seconds of each third of the last 24: its steps are slow, but they come [judged]."""
KNOWN_WITHIN_S = 10.0
"""A process that is not known so long after the first kernels is not waited for [judged]."""


class Startup:
    """Follows whether a job runs kernels and trains yet."""

    def __init__(self) -> None:
        self._loud: deque[tuple[float, float]] = deque()
        self._any: deque[tuple[float, float]] = deque()
        """Times and intervals of samples with a kernel."""
        self._was_quiet = False
        self._first_kernels_at: float | None = None
        self._trains_since: float | None = None
        self.has_worked = False
        """Whether any kernel of the job was seen."""
        self.has_trained = False
        """Whether the job was seen training. One that pauses then is not starting up, however young it is."""

    def begins_to_work(self, t: float, interval_s: float, util: float, *, age_known: bool) -> bool:
        """Add a sample; True once, at the first kernels after quiet.

        Importing and warming up before are no part of a window that judges training. A process may be seen on the GPU,
        or its age be known, only some samples after its kernels: it is waited for. A job that pauses later goes on
        being judged.
        """
        for times, seconds in ((self._loud, WORKED_OF_S), (self._any, STEADY_S)):
            while times and times[0][0] <= t - seconds:
                times.popleft()
        if util >= ZERO_UTIL:
            self._any.append((t, interval_s))
        if util < WORKS_UTIL:
            self._was_quiet = True
        else:
            self._loud.append((t, interval_s))
            if not self.has_worked:
                self.has_worked = True
                self._first_kernels_at = t if self._was_quiet else None
        first = self._first_kernels_at
        if first is None or (not age_known and t - first < KNOWN_WITHIN_S):
            return False
        self._first_kernels_at = None
        return age_known

    def kernels_s(self, t: float) -> float:
        """Seconds of the last fifteen in which any kernel ran.

        A sample counts as one interval.
        """
        return sum([span for at, span in self._any if at > t - WORKED_OF_S])

    def is_busy(self, t: float) -> bool:
        """True if kernels have just run as they do in training."""
        return sum([span for at, span in self._loud if at > t - BEGUN_OF_S]) >= BEGUN_S - 1e-6

    def trains_s(self, t: float) -> float | None:
        """Seconds since training was first seen; None if never."""
        return None if self._trains_since is None else t - self._trains_since

    def began_to_train(self, t: float) -> float | None:
        """Time at which training began, when first seen or certain; else None.

        It is certain where kernels have run in ten of fifteen seconds, or have come again and again for longer. A
        sample counts as one interval.
        """
        if self.has_trained:
            return None
        part_s = STEADY_S / STEADY_PARTS
        parts = [0.0] * STEADY_PARTS
        for at, span in self._any:
            parts[min(STEADY_PARTS - 1, int((t - at) / part_s))] += span
        if sum([span for _, span in self._loud]) >= WORKED_S - 1e-6:
            self.has_trained, began = True, self._loud[0][0]
        elif min(parts) >= STEADY_EACH_S - 1e-6:
            self.has_trained, began = True, self._any[0][0]
        else:
            if self._trains_since is not None or not self.is_busy(t):
                return None
            # From the first kernel on after which there was no pause.
            began = t
            for at, _ in reversed(self._any):
                if began - at >= BEGUN_OF_S:
                    break
                began = at
        self._trains_since = began
        return began


MOSTLY_PCT = 80.0
"""A state that fills so much of a sample is what the process is in [judged]."""
MOST_BREAK_S = 2.5
"""A break shorter than this is none: one look may miss a wait."""
_MAIN = ("disk", "network", "lock", "sleep", "poll", "pipe", "write")


class SteadyState(Struct, frozen=True):
    """A state, its length, and the network mount that it blocks on."""

    state: str
    for_s: float
    mount: str | None = None


class SteadyStateTracker:
    """Follows one thread, or the workers of one GPU together: why an idle GPU idles, and since when."""

    def __init__(self) -> None:
        self.state: SteadyState | None = None
        """State without a break up to now."""
        self._since = self._seen_at = self._hole_s = 0.0

    def pass_hole(self, hole_s: float) -> None:
        """Leave so many seconds without samples out of the present state."""
        self._hole_s += hole_s

    def observe(self, t: float, state: str | None, mount: str | None) -> None:
        """Add a sample."""
        now = self.state
        if (
            now is not None
            and state in (None, now.state)
            and (state or t - self._seen_at <= MOST_BREAK_S)
        ):
            for_s = t - self._since - self._hole_s
            self.state = SteadyState(now.state, for_s, (state and mount) or now.mount)
            self._seen_at = t if state else self._seen_at
        else:
            self.state = None if state is None else SteadyState(state, 0.0, mount)
            self._since, self._seen_at, self._hole_s = t, t, 0.0


def state_of_main(p: ProcessSample | None) -> tuple[str | None, str | None]:
    """State of a main thread for most of a sample, and its mount.

    ``stopped``, ``traced`` or a wait.
    """
    if p is None or p.state is None:
        return None, None
    if p.state in HALTED or p.main.unread is None:
        return HALTED.get(p.state), p.mount
    return next(
        (name for name in _MAIN if (getattr(p.main, name) or 0.0) >= MOSTLY_PCT), None
    ), p.mount


def state_of_workers(tick: GpuHostActivity) -> tuple[str | None, str | None]:
    """State and mount of most workers for most of a sample."""
    rows = [row for row in tick.rows if row.key >= 0]
    if tick.halted:
        return HALTED[tick.halted[0].state or "T"], None
    # Reading a file that a file system does not give is a wait for a disk or for the network, as the read is made.
    on_files = [
        row
        for row in rows
        if row.shares.disk + row.shares.network >= MOSTLY_PCT / 100.0
        and not address_of(row.process)
    ]
    mount = next((row.process.mount for row in on_files if row.process.mount is not None), None)
    if mount is not None and 2 * len(on_files) > len(rows):
        return "disk", mount
    least = MOSTLY_PCT / 100.0
    by_state = (
        ("disk", [row.process.mount for row in rows if row.shares.disk >= least]),
        ("network", [row.process.mount for row in rows if row.shares.network >= least]),
        ("lock", [row.process.mount for row in rows if row.shares.lock >= least]),
    )
    for name, there in by_state:
        if 2 * len(there) > len(rows):
            return name, next((mount for mount in there if mount is not None), None)
    return None, None
