"""Counts of wait observations, and what a process keeps of them between two readings. Pure.

An observation says what a main thread waits in at a random moment, and what its other threads do then. Counts of some
dozen of them divide the time that the kernel's counters leave open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby

from msgspec import Struct

from gputop.model.feeders import MainLooks, WaitEnd, main_looks
from gputop.sources.processes.look.process_threads import rank_of
from gputop.sources.processes.look.wait_state import (
    BLOCKED,
    INSIDE,
    LOCAL,
    RAN,
    STOPPED,
    UNREAD,
    WaitObservation,
    WaitState,
    WaitTarget,
    waits_for_child,
)
from gputop.sources.procfs import Stat

CHILD = "child"
"""Wait class for the end of a child, in addition to the classes of ``wait_state``."""
THREAD = "thread"
"""Evidence that another thread of the process works in place of a waiting main thread."""
RESOLVES = 0.1
"""A resolution seen in a smaller share of the observations is ignored [judged]."""
MOST_TARGETS = 8
_IN_PLACE_OF = (None, "task queue", "peer")
"""Evidence that the activity of a process's own thread replaces."""
_WORK_OF_A_THREAD = (RAN, "disk", "network")
"""Waits of a thread that replace its process's own: what else a thread waits for is no evidence."""
RECENT_S = 5.0
"""Observations older than this are dropped."""
LEAST_FRESH = 4
"""With so many moments since the last reading, no earlier ones count: each second then has its own shares [judged]."""
LINE_S = 30.0
"""Children awaited one after the other within this time count as one worker."""
NO_CHANNEL = "the kernel names no wait channel"
NOT_SAMPLED = (
    "not sampled yet: waits are sampled between readings, of a GPU process while its GPU waits"
)


class WaitCounts(Struct, frozen=True):
    """Counts over a process's observations.

    ``own`` counts waits of its main thread, ``activity`` the same with the targets' activity in place of a wait.
    ``inner`` counts the most active of its other threads. ``replaced`` observations found another thread on a core in
    place of a waiting main thread: the process's counters contain that time.
    """

    total: int = 0
    own: Counter[str] = Counter()
    activity: Counter[str] = Counter()
    inner: Counter[str] = Counter()
    evidence: str | None = None
    saves: int = 0
    replaced: int = 0
    running: float = 0.0
    """Mean number of other threads on a core, where any was."""

    @property
    def runs_inside(self) -> float:
        """Share of the time in which another thread ran in the main thread's place."""
        return self.replaced / max(1, self.total)

    def inner_share(self, *kinds: str) -> float:
        """Return the share of observations whose most active thread was so."""
        if not self.inner:
            return 0.0
        return sum([self.inner.get(kind, 0) for kind in kinds]) / self.inner.total()

    def own_share(self, kind: str) -> float:
        """Return the share of a wait among the main thread's waits."""
        count = self.own.get(kind, 0)
        return count / self.own.total() if count else 0.0


class _Moment(Struct, frozen=True):
    """A main thread, and the states of its other threads at the same moment."""

    main: WaitObservation
    threads: Sequence[WaitState]


class _Resolved(Struct, frozen=True):
    """Wait class of a main thread with its target's activity in its place.

    ``evidence`` says what resolved it; None if the wait is its own.
    """

    wait: str
    evidence: str | None


def class_of(state: WaitState, *, moves: bool) -> str:
    """Return the class of a wait.

    ``moves``: the process reads from or writes to a disk, which resolves state D.
    """
    if state.kind == BLOCKED:
        return "disk" if moves else "other"
    return CHILD if waits_for_child(state.channel) else state.kind


def _moments(observations: Iterable[WaitObservation]) -> Iterator[_Moment]:
    for _, moment in groupby(observations, key=lambda seen: seen.t):
        main, *threads = moment
        yield _Moment(main, [thread.state for thread in threads])


def count_waits(
    observations: Iterable[WaitObservation], *, moves: bool, holds_gpu: bool
) -> WaitCounts:
    """Return the wait counts of one process's observations.

    Threads of a GPU process are a separate worker; those of any other process stand in for its main thread.
    """
    own: Counter[str] = Counter()
    activity: Counter[str] = Counter()
    inner: Counter[str] = Counter()
    evidences: Counter[str] = Counter()
    total = saves = replaced = 0
    running: list[int] = []
    for moment in _moments(observations):
        total += 1
        thread = None
        if moment.threads:
            thread = class_of(min(moment.threads, key=rank_of), moves=moves)
            inner[thread] += 1
            running.append(_on_a_core(moment.threads))
        state = moment.main.state
        if state.kind in (RAN, UNREAD):
            continue
        own[class_of(state, moves=moves)] += 1
        saves += state.saves
        resolved = _resolved(moment.main, moves=moves)
        if not holds_gpu and _stands_in(thread, state, resolved):
            resolved = _Resolved(thread or "", THREAD)
        if resolved.evidence is not None:
            evidences[resolved.evidence] += 1
        if resolved.evidence == THREAD and resolved.wait == RAN:
            replaced += 1
        else:
            activity[resolved.wait] += 1
    return WaitCounts(
        total=total,
        own=own,
        activity=activity,
        inner=inner,
        evidence=_prevailing(evidences, total),
        saves=saves,
        replaced=replaced,
        running=_mean_where_any(running),
    )


def _on_a_core(threads: Iterable[WaitState]) -> int:
    return sum([state.kind == RAN for state in threads])


def _resolved(main: WaitObservation, *, moves: bool) -> _Resolved:
    """Return what a main thread's target does, else the thread's own wait."""
    target = main.target
    if target is None or target.activity is None:
        return _Resolved(class_of(main.state, moves=moves), None)
    return _Resolved(class_of(target.activity, moves=moves), target.evidence)


def _stands_in(thread: str | None, state: WaitState, resolved: _Resolved) -> bool:
    """Return whether another thread works in place of a waiting main thread."""
    if state.kind not in INSIDE or resolved.evidence not in _IN_PLACE_OF:
        return False
    return thread in _WORK_OF_A_THREAD


def _prevailing(evidences: Counter[str], total: int) -> str | None:
    """Return the most frequent evidence, unless it was seen too seldom."""
    for name, count in evidences.most_common(1):
        if count >= RESOLVES * total:
            return name
    return None


def _mean_where_any(running: Iterable[int]) -> float:
    some = [number for number in running if number]
    return sum(some) / max(1, len(some))


def looks_of(observations: Iterable[WaitObservation]) -> MainLooks:
    """Count a main thread's observations by state, see ``LookState``."""
    counted: list[tuple[str, int]] = []
    for moment in _moments(observations):
        kind = moment.main.state.kind
        if kind == UNREAD:
            continue
        is_other = kind in (BLOCKED, "socket", LOCAL)
        counted.append(("other" if is_other else kind, 1))
    return main_looks(counted)


def targets_of(
    observations: Sequence[WaitObservation],
    vias: Collection[str] | None = None,
    *,
    in_line: bool = False,
) -> tuple[WaitEnd, ...]:
    """Return the wait targets of a main thread's observations.

    ``vias`` limits the kinds of targets. ``in_line``: children came one after the other, and are one worker.
    """
    looks = 0
    counts: Counter[WaitTarget] = Counter()
    for moment in _moments(observations):
        looks += 1
        target = moment.main.target
        if target is None or (vias is not None and target.via not in vias):
            continue
        if in_line and target.via == CHILD:
            counts[_ITS_CHILDREN] += 1
        else:
            counts[WaitTarget(target.via, target.pids, target.detail)] += 1
    return tuple(
        WaitEnd(target.via, 100.0 * count / looks, target.pids, target.detail)
        for target, count in counts.most_common(MOST_TARGETS)
    )


_ITS_CHILDREN = WaitTarget("child", (), "its children")


class WaitHistory:
    """Wait observations of one process over the last seconds, and their counts."""

    def __init__(self) -> None:
        self.fresh: Sequence[WaitObservation] = ()
        """Observations since the reading before the latest one."""
        self.latest: WaitObservation | None = None
        """The latest observation of a wait of the main thread."""
        self.counts = WaitCounts()
        self._recent: list[WaitObservation] = []
        self._stat: Stat | None = None
        self._awaited: dict[int, float] = {}
        self._counted: tuple[int, float, bool] | None = None

    def add_observations(
        self,
        now: float,
        fresh: Sequence[WaitObservation],
        stat: Stat,
        *,
        moves: bool,
        holds_gpu: bool,
    ) -> None:
        """Add the observations since the last reading, and count.

        ``moves``: the process reads from or writes to a disk, which resolves state D.
        """
        self._stat = stat
        if stat.state in "Tt":
            # A stopped process does nothing of its earlier activity, whoever may read its wait channel.
            self._recent = []
            fresh = [WaitObservation(now, 0, 0, WaitState(STOPPED))]
        self.fresh = fresh
        # The latest wait is kept until there is another.
        for each in fresh:
            if each.pid == each.tid and each.state.kind not in (RAN, UNREAD):
                self.latest = each
        self._recent = [each for each in [*self._recent, *fresh] if now - each.t <= RECENT_S]
        if self.latest is not None and now - self.latest.t > RECENT_S:
            self._recent.insert(0, self.latest)
        for each in fresh:
            if each.target is not None and each.target.via == CHILD:
                self._awaited.update(dict.fromkeys(each.target.pids, now))
        is_enough = len({each.t for each in fresh}) >= LEAST_FRESH
        counted = fresh if is_enough else self._recent
        # Counting 64 workers at each reading took as long as all their other values; few of them have new observations.
        key = len(counted), counted[-1].t if counted else 0.0, moves
        if key != self._counted:
            self._counted = key
            self.counts = count_waits(counted, moves=moves, holds_gpu=holds_gpu)

    def sleep_on(self) -> None:
        """Note a reading without any observation."""
        self.fresh = ()

    def has_line(self, now: float) -> bool:
        """Return whether children were awaited one after the other."""
        self._awaited = {child: t for child, t in self._awaited.items() if now - t <= LINE_S}
        return len(self._awaited) > 1

    def why_unseen(self) -> str | None:
        """Return the reason why no wait of a sleeping process is known, or None."""
        if self._stat is None or self._stat.state not in "SD" or self.latest is not None:
            return None
        has_no_name = any(each.state.kind == UNREAD for each in self._recent)
        return NO_CHANNEL if has_no_name else NOT_SAMPLED
