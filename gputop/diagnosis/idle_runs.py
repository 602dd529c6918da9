"""Patterns that means hide: idle runs, restarts, falls, starts."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from msgspec import Struct

from gputop.diagnosis.host_side import LoaderStart
from gputop.diagnosis.signals import Pause
from gputop.diagnosis.window import WINDOW_S

QUIET_UTIL = 5.0
ZERO_UTIL = 1.0
"""Util below this is "no kernel ran": the driver gives whole percents."""
MEMORY_S = 27.0
"""How long a pause or a birth counts after its end: with eight ticks of hysteresis a verdict leaves within 35 s."""
BESIDE_S = 5.0
"""A birth and a run without a kernel belong together when at most this lies between them."""
BIRTHS_REMEMBERED_S = 120.0
FOUND_WITHIN_S = 10.0
"""Processes are looked for every few seconds: the age of one older than this when first seen says nothing, and one
first seen this soon after the job is not a birth."""
YOUNGER_S = 20.0
"""Loaders that start this long after their job are not its first [judged]."""
ALTERNATION_S = 30.0
ALTERNATION_STEP_S = 0.9
"""Samples closer together than this do not count: at 4 Hz the steps of any training job alternate."""
BUSY_UTIL, IDLE_UTIL = 60.0, 20.0


class IdleRuns:
    """Runs of samples without a kernel, and writes during them."""

    def __init__(self) -> None:
        self._begin: float | None = None
        self._last = 0.0
        self._writes = self._saves = 0.0
        self._samples = 0
        self.ended: tuple[Pause, ...] = ()
        """Runs whose last sample is at most ``MEMORY_S`` old, oldest first."""

    def observe(self, t: float, dt: float, util: float, writes: float | None, main_saves_pct: float = 0.0) -> float:
        """Add a sample and return the length of the run it ended.

        In seconds, 0 if it ended none.

        Returns the length in seconds of the run that it ended, 0 when it ended none.

        ``main_saves_pct``: how much of the sample the main thread waited for a file to be written.
        """
        if self.ended and self.ended[0].ended <= t - MEMORY_S:
            self.ended = tuple(run for run in self.ended if run.ended > t - MEMORY_S)
        if util < ZERO_UTIL:
            if self._begin is None:
                self._begin, self._samples = t - dt, 0
                self._writes = self._saves = 0.0
            if writes is not None:
                self._writes += writes
                self._saves += main_saves_pct / 100.0
                self._samples += 1
            self._last = t
            return 0.0
        if self._begin is None:
            return 0.0
        run = self.current()
        self._begin = None
        if run is None:
            return 0.0
        self.ended = (*self.ended, run)[-int(WINDOW_S) :]
        return run.length_s

    def current(self) -> Pause | None:
        """The run that is still going on."""
        if self._begin is None:
            return None
        if not self._samples:
            return Pause(self._last, self._last - self._begin, None)
        n, length_s = self._samples, self._last - self._begin
        return Pause(self._last, length_s, self._writes / n, self._saves / n)


DEMAND_PAUSE_S, DEMAND_PAUSES = 2.0, 3
"""Pauses of so many seconds at least, and so many of them, make a load that comes and goes."""
DEMAND_MEMORY_S, DEMAND_ENDS_S = 600.0, 120.0
"""How long a pause counts, and the pause after which nothing comes any more."""


class BurstDetector:
    """Detects a GPU that is used now and then, as by requests."""

    def __init__(self) -> None:
        self._quiet_since: float | None = None
        self._ended: deque[float] = deque(maxlen=DEMAND_PAUSES)

    def observe(self, t: float, util: float) -> bool:
        """Add a sample.

        Whether work has come and gone lately and may come again.
        """
        if util < QUIET_UTIL:
            if self._quiet_since is None:
                self._quiet_since = t
        else:
            if self._quiet_since is not None and t - self._quiet_since >= DEMAND_PAUSE_S:
                self._ended.append(t)
            self._quiet_since = None
        if self._quiet_since is not None and t - self._quiet_since >= DEMAND_ENDS_S:
            self._ended.clear()
        return len(self._ended) == DEMAND_PAUSES and self._ended[0] > t - DEMAND_MEMORY_S


class _Birth(Struct, frozen=True):
    """Start of a loader, and whether no older one was left."""

    t: float
    of_all: bool


class Restarts(Struct, frozen=True):
    """Workers that were started again."""

    count: int = 0
    """New workers in the last 30 s."""
    longest_pause_s: float = 0.0
    """Longest run without a kernel while any worker started."""
    full_restart_s: float = 0.0
    """Runs without a kernel while every worker was new."""


class WorkerRestarts:
    """New loaders of one GPU. Loaders found with the job are none."""

    def __init__(self) -> None:
        self._starttimes: dict[int, int | None] = {}
        self._parents: dict[int, int] = {}
        """The processes that have had loaders, with the most that one had at once."""
        self._births: deque[_Birth] = deque(maxlen=1024)
        self._begun: float | None = None

    def observe(self, t: float, loaders: Sequence[LoaderStart], job_age_s: float | None = None) -> None:
        """Note which loaders were not there before.

        With the job's age, loaders found with it that are much younger and all of one age were started later.
        """
        starttimes = self._starttimes
        if not starttimes and job_age_s is not None:
            self._born_before(t, [loader.age_s for loader in loaders if loader.age_s is not None], job_age_s)
        siblings = Counter(loader.parent for loader in loaders if loader.parent is not None)
        new = [
            loader for loader in loaders if loader.pid not in starttimes or starttimes[loader.pid] != loader.starttime
        ]
        # However young the job: where none of those seen before is left, these have replaced them.
        replaced = bool(starttimes) and len(new) == len(loaders)
        of_all = len(new) == len(loaders) or all((loader.age_s or BESIDE_S + 1.0) <= BESIDE_S for loader in loaders)
        for loader in new:
            starttimes[loader.pid] = loader.starttime
            follows = loader.parent is not None and self._is_line(loader, siblings[loader.parent])
            late = self._begun is not None and t - self._begun >= FOUND_WITHIN_S
            if (late or replaced) and not follows:
                age = loader.age_s
                self._births.append(_Birth(t if age is None or age > FOUND_WITHIN_S else t - age, of_all))
        for parent, count in siblings.items():
            self._parents[parent] = max(count, self._parents.get(parent, 0))
        if self._begun is None:
            self._begun = t
        if len(starttimes) > 2 * len(loaders) + 64:
            self._starttimes = {loader.pid: loader.starttime for loader in loaders}
            self._parents = {parent: self._parents[parent] for parent in siblings}
        while self._births and self._births[0].t <= t - BIRTHS_REMEMBERED_S:
            self._births.popleft()

    def _is_line(self, loader: LoaderStart, siblings: int) -> bool:
        """True if a loader follows another of the same parent.

        The parent never has two: a child per shard, no worker.

        PyTorch's workers name themselves: one that is started again each epoch is a restart.
        """
        return (
            loader.rule != "R1"
            and loader.parent is not None
            and siblings == 1
            and self._parents.get(loader.parent) == 1
        )

    def _born_before(self, t: float, ages: list[float], job_age_s: float) -> None:
        if not ages or max(ages) - min(ages) > BESIDE_S or max(ages) > BIRTHS_REMEMBERED_S / 2:
            return
        if job_age_s - max(ages) >= YOUNGER_S:
            self._births.extend(_Birth(t - age, True) for age in ages)

    def recent(self, t: float, runs: tuple[Pause, ...]) -> Restarts:
        """Return the restarts of the last 30 s.

        A single batch of births is an epoch's beginning or a short evaluation: it takes two batches to be a restart.
        """
        if not self._births:
            return Restarts()
        count = sum(1 for birth in self._births if birth.t > t - WINDOW_S)
        longest = of_all_s = 0.0
        for run in runs:
            begin, end = run.ended - run.length_s - BESIDE_S, run.ended + BESIDE_S
            near = [birth for birth in self._births if begin <= birth.t <= end]
            if near:
                longest = max(longest, run.length_s)
                of_all_s += run.length_s if any(birth.of_all for birth in near) else 0.0
        if count == 0 or self._births[-1].t - self._births[0].t < BESIDE_S:
            return Restarts(count, 0.0, of_all_s)
        return Restarts(count, longest, of_all_s)


class Alternations:
    """Falls from busy to idle in the last 30 s."""

    def __init__(self) -> None:
        self._busy: bool | None = None
        self._falls: deque[float] = deque()
        self._t = float("-inf")

    def observe(self, t: float, util: float) -> int:
        """Add a sample.

        Returns the falls in the last 30 s.
        """
        if t - self._t < ALTERNATION_STEP_S:
            return len(self._falls)
        self._t = t
        busy = True if util >= BUSY_UTIL else False if util <= IDLE_UTIL else self._busy
        if busy is not self._busy:
            if self._busy:
                self._falls.append(t)
            self._busy = busy
        while self._falls and self._falls[0] <= t - ALTERNATION_S:
            self._falls.popleft()
        return len(self._falls)


# When a job begins to work, and to train.

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
        self._loud: deque[float] = deque()
        self._any: deque[float] = deque()
        self._was_quiet = False
        self._first_kernels_at: float | None = None
        self._trains_since: float | None = None
        self.has_worked = False
        """Whether any kernel of the job was seen."""
        self.has_trained = False
        """Whether the job was seen training. One that pauses then is not starting up, however young it is."""

    def begins_to_work(self, t: float, util: float, *, age_known: bool) -> bool:
        """Add a sample; True once, at the first kernels after quiet.

        True once, where the job runs its first kernels after a quiet time.

        Importing and warming up before are no part of a window that judges training. A process may be seen on the GPU,
        or its age be known, only some samples after its kernels: it is waited for. A job that pauses later goes on
        being judged.
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
            if not self.has_worked:
                self.has_worked = True
                self._first_kernels_at = t if self._was_quiet else None
        first = self._first_kernels_at
        if first is None or (not age_known and t - first < KNOWN_WITHIN_S):
            return False
        self._first_kernels_at = None
        return age_known

    def kernels_s(self, t: float, interval_s: float) -> float:
        """Seconds of the last fifteen in which any kernel ran.

        A sample counts as one interval.
        """
        return interval_s * sum(1 for at in self._any if at > t - WORKED_OF_S)

    def is_busy(self, t: float, interval_s: float) -> bool:
        """True if kernels have just run as they do in training."""
        return interval_s * sum(1 for at in self._loud if at > t - BEGUN_OF_S) >= BEGUN_S - 1e-6

    def trains_s(self, t: float) -> float | None:
        """Seconds since training was first seen; None if never.


        None where it was not.
        """
        return None if self._trains_since is None else t - self._trains_since

    def began_to_train(self, t: float, interval_s: float) -> float | None:
        """Time at which training began, when first seen or certain; else None.

        It is certain where kernels have run in ten of fifteen seconds, or have come again and again for longer. A
        sample counts as one interval.
        """
        if self.has_trained:
            return None
        part_s = STEADY_S / STEADY_PARTS
        parts = Counter(int((t - at) / part_s) for at in self._any)
        if len(self._loud) * interval_s >= WORKED_S - 1e-6:
            self.has_trained, began = True, self._loud[0]
        elif all(parts[n] * interval_s >= STEADY_EACH_S - 1e-6 for n in range(STEADY_PARTS)):
            self.has_trained, began = True, self._any[0]
        else:
            if self._trains_since is not None or not self.is_busy(t, interval_s):
                return None
            # From the first kernel on after which there was no pause.
            began = t
            for at in reversed(self._any):
                if began - at >= BEGUN_OF_S:
                    break
                began = at
        self._trains_since = began
        return began
