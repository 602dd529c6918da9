"""Time shares of a process from counts of wait observations. Pure.

Run time and queued time are counters; waits are only sampled. The rest of the time is divided among the wait states of
the latest observations, in proportion. Over a window these shares are accurate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.feeders import MainLooks, WaitEnd, main_looks
from gputop.model.wait_shares import WaitShares
from gputop.sources.processes.look.process_threads import rank_of
from gputop.sources.processes.look.wait_observation import INSIDE, WaitObservation
from gputop.sources.processes.look.wait_state import (
    BLOCKED,
    LOCAL,
    RAN,
    UNREAD,
    WaitState,
    waits_for_child,
)

CHILD = "child"
"""Wait class for the end of a child, in addition to the classes of ``wait_state``."""
RESOLVES = 0.1
"""A resolution seen in a smaller share of the observations is ignored [judged]."""
MOST_TARGETS = 8
_IN_PLACE_OF = (None, "task queue", "peer")
"""Evidence that the activity of a process's own thread replaces."""


class TimeShares(Struct, frozen=True):
    """Shares (0–1) of a worker's time since its last reading.

    ``evidence`` says what resolved a wait; None if nothing had to. ``unread``: the shares are unknown: threads were not
    read because another cause explains the waiting, or are not settled yet.
    """

    shares: WaitShares = WaitShares()
    evidence: str | None = None
    threads: int | None = None
    rx_bytes_per_s: float | None = None
    listens: bool | None = None
    why_blind: str | None = None
    unread: bool = False
    main_looks: MainLooks | None = None
    """Counts of the main thread's states in random samples; None if unknown."""
    main: WaitShares | None = None
    """The main thread's wait states as shares; None if the main thread was not sampled."""
    saves: float = 0.0
    """Share of the time in which the main thread waits for a file to be written."""
    mount: str | None = None
    """Mount point of the networked file system on which the process waits."""
    waits_for: tuple[WaitEnd, ...] | None = None
    """Wait targets of the main thread in these samples; None if unknown."""


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
        return sum(self.inner[kind] for kind in kinds) / max(1, self.inner.total())

    def own_share(self, kind: str) -> float:
        """Return the share of a wait among the main thread's waits."""
        return self.own[kind] / max(1, self.own.total())


def class_of(state: WaitState, *, moves: bool) -> str:
    """Return the class of a wait.

    ``moves``: the process reads from or writes to a disk, which resolves state D.
    """
    if state.kind == BLOCKED:
        return "disk" if moves else "other"
    return CHILD if waits_for_child(state.channel) else state.kind


def _moments(
    observations: Iterable[WaitObservation],
) -> Iterator[tuple[WaitObservation, list[WaitState]]]:
    """Yield each observation of a main thread with the states of its other threads."""
    for _, moment in groupby(observations, key=lambda seen: seen.t):
        main, *threads = moment
        yield main, [thread.state for thread in threads]


def count_waits(
    observations: Iterable[WaitObservation], *, moves: bool, holds_gpu: bool
) -> WaitCounts:
    """Return the wait counts of one process's observations.

    Threads of a GPU process are a separate worker; those of any other process stand in for its main thread.
    """
    own, activity, inner, evidences = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    total = saves = replaced = 0
    running: list[int] = []
    for main, threads in _moments(observations):
        total += 1
        thread = None
        if threads:
            thread = class_of(min(threads, key=rank_of), moves=moves)
            inner[thread] += 1
            running.append(sum([state.kind == RAN for state in threads]))
        state, target = main.state, main.target
        if state.kind in (RAN, UNREAD):
            continue
        doing = class_of(state, moves=moves)
        evidence = None
        own[doing] += 1
        saves += state.saves
        if target is not None and target.activity is not None:
            doing, evidence = class_of(target.activity, moves=moves), target.evidence
        # A thread replaces its process's wait only by activity: its own wait is no evidence.
        if (
            not holds_gpu
            and state.kind in INSIDE
            and evidence in _IN_PLACE_OF
            and thread in (RAN, "disk", "network")
        ):
            evidences["thread"] += 1
            if thread == RAN:
                replaced += 1
                continue
            doing = thread
        elif evidence is not None:
            evidences[evidence] += 1
        activity[doing] += 1
    some = [number for number in running if number]
    resolved = [name for name, count in evidences.most_common(1) if count >= RESOLVES * total]
    return WaitCounts(
        total,
        own,
        activity,
        inner,
        resolved[0] if resolved else None,
        saves,
        replaced,
        sum(some) / max(1, len(some)),
    )


_STATE_OF_WAIT: Mapping[str, str] = MappingProxyType(
    {
        "disk": "disk",
        "network": "network",
        "lock": "lock",
        "sleep": "sleep",
        "run": "run",
        "unread": "unread",
        "queue": "poll",
    }
)
"""State of a worker's shares for each wait class; all other classes are ``other``."""


def shares_of(run: float, queued: float, waits: Mapping[str, int]) -> WaitShares:
    """Return shares of run, queued and waiting time.

    ``run`` and ``queued`` are percent of one core. ``waits`` counts classes of waits, by which the remaining time is
    divided; if it is empty, the rest is unread.
    """
    run, queued = run / 100.0, queued / 100.0
    runnable = run + queued
    if runnable >= 1.0:
        # Several threads may exceed 1; as a share of time, runnable is capped there.
        return WaitShares(run=run / runnable, queued=queued / runnable)
    rest = 1.0 - runnable
    if not waits:
        return WaitShares(run=run, queued=queued, unread=rest)
    counts = Counter[str]()
    for wait, count in waits.items():
        counts[_STATE_OF_WAIT.get(wait, "other")] += count
    return WaitShares(run=run, queued=queued) + _by_counts(rest, counts)


def _by_counts(rest: float, counts: Mapping[str, int]) -> WaitShares:
    """Divide waiting time among states, in proportion to their counts."""
    each = rest / sum(counts.values())
    return WaitShares(**{state: each * count for state, count in counts.items()})


def thread_shares(counts: WaitCounts, pool_pct: float) -> WaitShares:
    """Return the shares of a process's other threads together.

    ``pool_pct`` is their CPU time, percent of one core. Threads that pass a core, a lock or a connection to each other
    count as one worker. If more of them are runnable than run, the difference is queued.
    """
    if not counts.inner:
        return WaitShares()
    waits = Counter(counts.inner)
    runnable = waits.pop(RAN, 0) / counts.inner.total()
    run = (
        runnable * min(1.0, pool_pct / 100.0 / max(1e-9, runnable * counts.running))
        if runnable
        else 0.0
    )
    return shares_of(100.0 * run, 100.0 * (runnable - run), waits)


def main_waits(counts: WaitCounts, rest: float, *, fetches: bool) -> tuple[WaitShares, float]:
    """Divide a main thread's waiting time by wait class.

    ``rest`` is the waiting share of its time. ``fetches``: unidentified sockets count as network. The second value is
    the part spent on writing a file.
    """
    if not counts.own:
        return WaitShares(unread=rest), 0.0
    states = Counter[str]()
    for wait, count in counts.own.items():
        states[_main_state(wait, fetches=fetches)] += count
    return _by_counts(rest, states), rest * counts.saves / counts.own.total()


_STATES_OF_MAIN = frozenset(
    ("disk", "network", "lock", "sleep", "pipe", "write", "other", "unread")
)


def _main_state(wait: str, *, fetches: bool) -> str:
    """Return the state under which a main thread's wait is counted."""
    if wait == "queue":
        return "poll"
    if wait == "socket" and fetches:
        return "network"
    return wait if wait in _STATES_OF_MAIN else "other"


def looks_of(observations: Iterable[WaitObservation]) -> MainLooks:
    """Count a main thread's observations by state, see ``LookState``."""
    kinds = [main.state.kind for main, _ in _moments(observations) if main.state.kind != UNREAD]
    return main_looks(
        ("other" if kind in (BLOCKED, "socket", LOCAL) else kind, 1) for kind in kinds
    )


def targets_of(
    observations: Sequence[WaitObservation],
    vias: Collection[str] | None = None,
    *,
    in_line: bool = False,
) -> tuple[WaitEnd, ...]:
    """Return the wait targets of a main thread's observations.

    ``vias`` limits the kinds of targets. ``in_line``: children came one after the other, and are one worker.
    """
    mains = [main.target for main, _ in _moments(observations)]
    counts = Counter(
        (CHILD, (), "its children")
        if in_line and target.via == CHILD
        else (target.via, target.pids, target.detail)
        for target in mains
        if target is not None and (vias is None or target.via in vias)
    )
    return tuple(
        WaitEnd(via, 100.0 * count / len(mains), pids, detail)
        for (via, pids, detail), count in counts.most_common(MOST_TARGETS)
    )


def in_place_of_waits(shares: WaitShares, other: WaitShares) -> WaitShares:
    """Replace a worker's waiting time by another's shares."""
    rest = max(0.0, 1.0 - shares.cpu)
    return WaitShares(run=shares.run, queued=shares.queued) + other.scaled(rest)


def as_network(shares: WaitShares, in_socket: float = 0.0) -> WaitShares:
    """Count polling, and waits in unidentified sockets, as network.

    Call it for a process that receives data.
    """
    in_socket = min(in_socket, shares.other)
    return replace(
        shares,
        network=shares.network + shares.poll + in_socket,
        poll=0.0,
        other=shares.other - in_socket,
    )
