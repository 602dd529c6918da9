"""Memory of one GPU's track: its job, its window, and the holes between its samples."""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from gputop.diagnosis.host.idle_attribution import IdleCause, IdleTime
from gputop.diagnosis.host.idle_runs import (
    BurstDetector,
    IdleRuns,
    Startup,
    SteadyStateTracker,
    WorkerRestarts,
    state_of_main,
    state_of_workers,
)
from gputop.diagnosis.host.workers import Leading
from gputop.diagnosis.window.conditions import Conditions
from gputop.diagnosis.window.fabric_window import FabricSignals
from gputop.diagnosis.window.host_activity import GpuHostActivity
from gputop.diagnosis.window.window import (
    EPSILON_S,
    WINDOW_S,
    Second,
)  # fmt: skip
from gputop.model.snapshot import Event, HostSample, OngoingConditions


class TickContext(Struct, frozen=True):
    """Common context of all GPUs' samples of one snapshot.

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
    linked_models: frozenset[str] = frozenset()
    """Names of GPUs of which one has NVLinks that are up."""
    is_thinned: bool = False
    """Whether readings before this one came too soon to be judged."""


class _Hole(Struct, frozen=True):
    """A time without samples, up to Unix time ``ended``."""

    ended: float
    length_s: float


MOST_HOLES = 256
"""Holes that are remembered: a laptop that sleeps each day for most of a year."""


class Holes:
    """Times in which nothing was recorded: neither idle nor busy, so no duration counts them."""

    def __init__(self) -> None:
        self._holes: deque[_Hole] = deque(maxlen=MOST_HOLES)

    def add(self, ended: float, length_s: float) -> None:
        """Remember a hole up to Unix time ``ended``."""
        self._holes.append(_Hole(ended, length_s))

    def since(self, begin: float | None) -> float:
        """Seconds of holes that ended after Unix time ``begin``; 0 where that is None."""
        if begin is None:
            return 0.0
        return sum([hole.length_s for hole in self._holes if hole.ended > begin])


class JobState:
    """State of one job.

    Replaced when the job on this GPU changes.
    """

    def __init__(self, pids: frozenset[int] = frozenset()) -> None:
        self.pids = pids
        self.seen_t = 0.0
        self.startup = Startup()
        self.restarts = WorkerRestarts()
        self.worker_kind: str | None = None
        self.main, self.workers = SteadyStateTracker(), SteadyStateTracker()
        self.bursts = BurstDetector()

    def pass_hole(self, hole_s: float) -> None:
        """Leave out so many seconds without samples."""
        self.main.pass_hole(hole_s)
        self.workers.pass_hole(hole_s)
        self.bursts.pass_hole(hole_s)

    def observe(self, t: float, tick: GpuHostActivity) -> None:
        """Follow workers that start, and the states that threads are in without a break."""
        births = tick.births
        self.restarts.observe(t, births, tick.age_s if tick.knows_feeders else None)
        if births and (self.worker_kind is None or tick.kinds == "torch"):
            # A spawned worker is a plain Python before it names itself: the kind is the last that was known.
            self.worker_kind = tick.kinds
        self.main.observe(t, *state_of_main(tick.primary))
        self.workers.observe(t, *state_of_workers(tick))


class WindowState:
    """The window, and what began with it."""

    def __init__(
        self, conditions: Conditions | None = None, since: OngoingConditions | None = None
    ) -> None:
        self.seconds: deque[Second] = deque()
        self.idle = IdleTime()
        self.runs = IdleRuns()
        self.fresh = 0
        """Samples, at most, that are no repeats of the one before."""
        self.conditions = Conditions() if conditions is None else conditions
        self.since = OngoingConditions(-1) if since is None else since
        """Since when it has been quiet, the tensor cores have hardly been used and the PCIe link has been degraded."""
        self.resumed = False
        """It began because of a gap, with the job that had run before."""
        self.named: frozenset[IdleCause] = frozenset()
        """Causes of the idle time that were named last."""
        self.leading: Leading = "cpu"

    def add(self, second: Second) -> None:
        """Add a sample and drop those that are too old."""
        self.seconds.append(second)
        self.keep_after(second.t - WINDOW_S)

    def keep_after(self, t: float) -> None:
        """Drop samples up to Unix time ``t``."""
        while self.seconds and self.seconds[0].t <= t + EPSILON_S:
            self.seconds.popleft()
