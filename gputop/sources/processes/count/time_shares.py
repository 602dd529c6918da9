"""Time shares of a process, from counters, wait observations and sockets. Pure.

Run time and queued time are counters; waits are only sampled. The rest of the time is divided among the wait states of
the latest observations, in proportion. Over a window these shares are accurate. ``time_shares`` is the whole of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.feeders import SERVED_BY_PARENT, MainLooks, WaitEnd
from gputop.model.wait_shares import WaitShares
from gputop.sources.processes.count.wait_counts import (
    CHILD,
    THREAD,
    WaitCounts,
    looks_of,
    targets_of,
)
from gputop.sources.processes.look.wait_state import INSIDE, RAN, WaitObservation, WaitState
from gputop.sources.processes.resolve.socket_activity import LEAST_RX, SocketActivity

SETTLES_S = 3.5
UNSEEN_SETTLES_S = 15.0
"""Settling time, in seconds, if threads that may explain a wait were not read yet."""
EXPLAINED = 0.5
"""Shares with so much useful time need not settle."""
LEAST_FETCH = 0.3
"""Least share of time in polls or sockets for which a process's sockets are read."""
LEADS_OUT = ("network", "file", "socket")
"""Kinds of wait targets that are reported for a worker; those within the job are already part of its shares."""


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


class Counters(Struct, frozen=True):
    """What the kernel counted of a process since its last reading, as shares of the time.

    Of a GPU process, ``run`` and ``queued`` are those of its main thread, which ``is_main`` says.
    """

    is_main: bool = False
    run: float | None = None
    """None before the second reading."""
    queued: float = 0.0
    main_waits: float | None = None
    """Share of the time in which a GPU process's main thread waits; None if it is not counted."""
    pool: float = 0.0
    """Cores that a GPU process's other threads use."""
    other_threads: int = 0


class Observations(Struct, frozen=True):
    """What was observed of a process's waits.

    ``own`` are its shares with waits unresolved, ``by_activity`` those with its targets' activity in place of a wait.
    """

    counts: WaitCounts = WaitCounts()
    own: WaitShares = WaitShares()
    by_activity: TimeShares = TimeShares()
    fresh: Sequence[WaitObservation] = ()
    """Observations since the last reading."""
    latest: WaitState | None = None
    """The latest wait of the main thread."""
    in_line: bool = False
    """Children were awaited one after the other."""
    has_fetched: bool = False
    """Data arrived over the process's own sockets within the last half minute."""
    watched_s: float = 0.0
    """Seconds since close sampling began."""

    def in_socket(self, *, is_main: bool) -> float:
        """Share of time spent in a socket of unknown family.

        The wait belongs to the process or to one of its threads.
        """
        inner = self.counts.inner_share("socket")
        if is_main:
            return inner
        return max(0.0, 1.0 - self.own.cpu) * max(inner, self.counts.own_share("socket"))


class SocketEvidence(Struct, frozen=True):
    """What is known of the sockets of a process whose waiting nothing else explains."""

    activity: SocketActivity | None = None
    is_asked: bool = False
    """Whether the process, or a child in its place, is one whose sockets are read."""
    is_loader: bool = False
    are_siblings_bare: bool = False
    """Whether all sampled loaders of its GPU process have no TCP socket: neither has this one."""
    is_served_by_parent: bool = False
    """Whether a GPU process without sockets has a parent that takes requests."""


def time_shares(
    counters: Counters, observations: Observations, sockets: SocketEvidence | None
) -> TimeShares:
    """Return the shares of a process of a waiting GPU since its last reading.

    ``sockets`` is None if a loader or a main thread already explains the waiting: threads and sockets are not read
    then. Of a GPU process, ``shares`` are those of its threads or children; its main thread's waits are ``main``.
    """
    result = observations.by_activity
    if counters.is_main:
        result = _feeder_of_main(counters, observations, is_explained=sockets is None)
    if sockets is not None:
        result = _with_sockets(result, counters, observations, sockets)
    if observations.latest is not None and observations.latest.mount is not None:
        result = replace(result, mount=observations.latest.mount)
    if not result.unread and not _is_settled(result, observations):
        result = replace(result, unread=True)
    if counters.is_main:
        return _with_main_waits(result, counters, observations)
    if not observations.fresh:
        # Unchanged shares keep their sample.
        return result
    targets = targets_of(observations.fresh, LEADS_OUT)
    return replace(result, waits_for=targets) if targets else result


def activity_shares(counters: Counters, counts: WaitCounts, own: WaitShares) -> TimeShares:
    """Return shares with the wait targets' activity in place of the wait.

    ``own`` are the shares with waits unresolved.
    """
    if counters.run is None:
        return TimeShares()
    if counts.evidence is None:
        return TimeShares(own)
    queued = max(counters.queued, counts.runs_inside - counters.run)
    return TimeShares(
        shares=shares_of(counters.run, queued, counts.activity),
        evidence=counts.evidence,
        threads=counters.other_threads if counts.evidence == THREAD else None,
    )


def own_shares(counters: Counters, counts: WaitCounts) -> WaitShares:
    """Return a process's own shares, waits unresolved."""
    return shares_of(counters.run or 0.0, counters.queued, counts.own)


def _feeder_of_main(
    counters: Counters, observations: Observations, *, is_explained: bool
) -> TimeShares:
    """Return shares of a GPU process's children, or of its threads.

    Children are used if they do more than the threads.
    """
    if is_explained:
        return TimeShares(unread=True)
    by_children = observations.by_activity
    by_threads = thread_shares(observations.counts, counters.pool)
    useful = by_children.shares.useful - observations.own.cpu
    if by_children.evidence == CHILD and useful > by_threads.useful:
        return by_children
    return TimeShares(by_threads)


def _is_settled(result: TimeShares, observations: Observations) -> bool:
    """Return whether the first samples are complete.

    Until then, pipes, threads and sockets may still explain the waiting.
    """
    if observations.watched_s >= UNSEEN_SETTLES_S or result.evidence is not None:
        return True
    if result.shares.useful >= EXPLAINED:
        return True
    if observations.watched_s < SETTLES_S:
        return False
    latest = observations.latest
    may_be_inside = latest is not None and latest.kind in INSIDE
    return bool(observations.counts.inner) or not may_be_inside


def _with_main_waits(
    result: TimeShares, counters: Counters, observations: Observations
) -> TimeShares:
    """Add the waits of a GPU process's main thread, and whom it waits for."""
    if counters.main_waits is None:
        return result
    fresh = observations.fresh
    main, saves = main_waits(
        observations.counts, counters.main_waits, fetches=observations.has_fetched
    )
    if not fresh:
        return replace(result, main=main, saves=saves)
    return replace(
        result,
        main=main,
        saves=saves,
        main_looks=looks_of(fresh),
        waits_for=targets_of(fresh, in_line=observations.in_line),
    )


_STATE_OF_WAIT: Mapping[str, str] = {
    "disk": "disk",
    "network": "network",
    "lock": "lock",
    "sleep": "sleep",
    "run": "run",
    "unread": "unread",
    "queue": "poll",
}
"""State of a worker's shares for each wait class; all other classes are ``other``."""
_STATES_OF_MAIN = frozenset(
    ("disk", "network", "lock", "sleep", "pipe", "write", "other", "unread")
)


def shares_of(run: float, queued: float, waits: Mapping[str, int]) -> WaitShares:
    """Return shares of run, queued and waiting time.

    ``run`` and ``queued`` are shares of the time, of several threads together. ``waits`` counts classes of waits, by
    which the remaining time is divided; if it is empty, the rest is unread.
    """
    runnable = run + queued
    if runnable >= 1.0:
        # Several threads may exceed 1; as a share of time, runnable is capped there.
        return WaitShares(run=run / runnable, queued=queued / runnable)
    rest = 1.0 - runnable
    if not waits:
        return WaitShares(run=run, queued=queued, unread=rest)
    shares = {"run": run, "queued": queued}
    each = rest / sum(waits.values())
    for wait, count in waits.items():
        state = _STATE_OF_WAIT.get(wait, "other")
        shares[state] = shares.get(state, 0.0) + each * count
    return WaitShares(**shares)


def thread_shares(counts: WaitCounts, pool: float) -> WaitShares:
    """Return the shares of a process's other threads together.

    ``pool`` is the number of cores that they use. Threads that pass a core, a lock or a connection to each other count
    as one worker. If more of them are runnable than run, the difference is queued.
    """
    if not counts.inner:
        return WaitShares()
    waits = Counter(counts.inner)
    runnable = waits.pop(RAN, 0) / counts.inner.total()
    if not runnable:
        return shares_of(0.0, 0.0, waits)
    run = runnable * min(1.0, pool / max(1e-9, runnable * counts.running))
    return shares_of(run, runnable - run, waits)


def main_waits(counts: WaitCounts, rest: float, *, fetches: bool) -> tuple[WaitShares, float]:
    """Divide a main thread's waiting time by wait class.

    ``rest`` is the waiting share of its time. ``fetches``: unidentified sockets count as network. The second value is
    the part spent on writing a file.
    """
    if not counts.own:
        return WaitShares(unread=rest), 0.0
    shares: dict[str, float] = {}
    each = rest / counts.own.total()
    for wait, count in counts.own.items():
        state = _main_state(wait, fetches=fetches)
        shares[state] = shares.get(state, 0.0) + each * count
    return WaitShares(**shares), each * counts.saves


def _main_state(wait: str, *, fetches: bool) -> str:
    """Return the state under which a main thread's wait is counted."""
    if wait == "queue":
        return "poll"
    if wait == "socket" and fetches:
        return "network"
    return wait if wait in _STATES_OF_MAIN else "other"


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


def _with_sockets(
    result: TimeShares, counters: Counters, observations: Observations, sockets: SocketEvidence
) -> TimeShares:
    """Return the shares with evidence from sockets.

    Received bytes prove that a polling process waits for the network; a listening socket proves a wait for demand.
    """
    activity = sockets.activity
    is_conclusive = activity is not None and activity.is_conclusive
    if sockets.is_loader and not is_conclusive:
        result = _without_conclusion(result, observations, sockets)
    elif activity is not None and sockets.is_asked:
        result = _with_activity(result, counters, observations, activity)
    if sockets.is_served_by_parent:
        result = replace(result, evidence=SERVED_BY_PARENT)
    return result


def _without_conclusion(
    result: TimeShares, observations: Observations, sockets: SocketEvidence
) -> TimeShares:
    """Return a loader's shares while its sockets say nothing yet: polling is unread."""
    own = result.shares
    if result.evidence != THREAD and observations.has_fetched:
        # A new program for each shard has new connections: the proof of the former one remains valid.
        network = as_network(own, observations.in_socket(is_main=False))
        return replace(result, shares=network, evidence="socket")
    if own.poll < LEAST_FETCH or result.evidence is not None:
        return result
    if sockets.are_siblings_bare:
        return replace(result, evidence="no socket")
    return replace(result, shares=replace(own, poll=0.0, unread=own.unread + own.poll))


def _with_activity(
    result: TimeShares, counters: Counters, observations: Observations, sockets: SocketActivity
) -> TimeShares:
    """Return the shares of a process whose sockets were read."""
    shares, evidence, counts = result.shares, result.evidence, observations.counts
    is_main = counters.is_main
    if sockets.asks_root:
        # It waits for a result of its own GPU process.
        idle = WaitShares(run=shares.run, queued=shares.queued, other=max(0.0, 1.0 - shares.cpu))
        return replace(result, shares=idle, evidence="client")
    # The proof is kept for a while: the last reading alone would let it come and go.
    is_own = is_main and observations.has_fetched and _polls(counts)
    if is_own:
        evidence = "main socket"
    by_thread = evidence == THREAD
    in_socket = observations.in_socket(is_main=is_main)
    if sockets.fetches:
        is_inside = not is_main and not by_thread
        if is_inside and counts.inner_share("queue", "socket") >= LEAST_FETCH:
            shares = in_place_of_waits(shares, shares_of(0.0, 0.0, counts.inner))
    unproven = shares.poll + in_socket
    if sockets.fetches and unproven > 0.0 and not is_own:
        if not by_thread or unproven > shares.network:
            evidence = "socket" if (sockets.rx_bytes_per_s or 0.0) >= LEAST_RX else "connections"
        shares = as_network(shares, in_socket)
    elif evidence is None and sockets.is_bare and shares.poll > shares.useful:
        evidence = "no socket"
    return replace(
        result,
        shares=shares,
        evidence=evidence,
        rx_bytes_per_s=sockets.rx_bytes_per_s,
        listens=sockets.listens and not sockets.fetches if is_main else None,
        why_blind=sockets.reason or result.why_blind,
    )


def _polls(counts: WaitCounts) -> bool:
    """Return whether a main thread was seen to wait for any file or socket."""
    return any(wait in counts.own for wait in ("queue", "network", "socket"))
