"""A wait for another process is a pointer, not a cause: it stands for what that process does, or for nothing.

A child at the other end of a pipe: its states are inherited. The GPU process or an ancestor: a task queue, so idle.
A process outside the job: data from there. The other end of a local socket is found in the kernel's table of them; a
process of the job that is no child may serve others as well, and speaks for itself. Children that live for a moment
were looked at while they did (see ``Descendants``), or count by the CPU time that they leave to their parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.feeders import SERVED_BY_PARENT, FeederShares
from gputop.sources.processes.feed import FeedReading, partly, received
from gputop.sources.processes.member import Member
from gputop.sources.processes.process_sockets import DENIED_FDS, LEAST_RX, HeldInodes, Received, SocketNews
from gputop.sources.processes.wait_look import LOCAL, ThreadWait

CHILD = "child"
"""The wait for a child to end, among the classes of ``wait_look``."""
NO_WAITS: Mapping[str, float] = MappingProxyType({})
HeldBy = Callable[[int], HeldInodes | None]
LEAST_PART = 0.05
"""A wait for another process that fills less of the time is not looked into."""
_GENERATIONS = 4
_ANCESTORS = 6


class Waiter(Struct, frozen=True):
    """One process: own shares, its parent, its GPU process, and what it waits for.

    ``waits`` has the share of each class of waits, ``child`` among them, of the part ``rest`` of all its time.
    ``wait_seen`` is its latest wait: it tells which pipe it reads. ``ended`` is the time in which children ran that
    have ended, ``by_child`` whether children that live were looked at.
    """

    shares: FeederShares
    parent: int
    root: int | None
    rest: float = 0.0
    waits: Mapping[str, float] = NO_WAITS
    wait_seen: ThreadWait | None = None
    ended: float = 0.0
    by_child: bool = False
    own_cpu: float = 0.0
    """The share in which it was runnable itself."""

    @property
    def piped(self) -> float:
        """The share of its time in which it reads a pipe."""
        return self.rest * self.waits.get("pipe", 0.0)

    @property
    def for_child(self) -> float:
        """The share of its time in which it waits for a child to end."""
        return self.rest * self.waits.get(CHILD, 0.0)

    @property
    def polled(self) -> float:
        """The share of its time in which it polls."""
        return self.rest * self.waits.get("queue", 0.0)

    @property
    def for_local(self) -> float:
        """The share of its time in which it reads a local socket."""
        return self.rest * self.waits.get(LOCAL, 0.0)

    @property
    def pipe(self) -> int | None:
        """The pipe that it reads, where that is known."""
        return None if self.wait_seen is None else self.wait_seen.pipe

    @property
    def fifo(self) -> bool:
        """Whether that pipe has a name."""
        return self.wait_seen is not None and self.wait_seen.fifo

    @property
    def waits_for_children(self) -> bool:
        """Whether children that live for a moment each explain some of its time."""
        return self.by_child or self.ended >= LEAST_PART


class Pointers:
    """Resolves the waits of one reading."""

    def __init__(
        self,
        waiters: Mapping[int, Waiter],
        inodes_of: HeldBy,
        peer_of: Callable[[int], int | None] = lambda _: None,
        inodes_of_many: HeldBy | None = None,
    ) -> None:
        """``inodes_of`` is asked for few processes, ``inodes_of_many`` for all of a job; ``peer_of`` gives the inode of
        the other end of a local socket."""
        self._waiters = waiters
        self._inodes_of = inodes_of
        self._peer_of = peer_of
        self._held_by_many = inodes_of_many or inodes_of
        self._kids: dict[int, list[int]] = {}
        for pid, waiter in waiters.items():
            self._kids.setdefault(waiter.parent, []).append(pid)

    def points(self, pid: int) -> bool:
        """Whether a process may wait for another one: most do not, and need no further work."""
        waiter = self._waiters[pid]
        if waiter.waits_for_children or waiter.piped >= LEAST_PART or waiter.for_local >= LEAST_PART:
            return True
        return pid in self._kids and waiter.for_child + waiter.polled >= LEAST_PART

    def resolved(self, pid: int, depth: int = 0) -> FeedReading:
        """What a process did, with its wait for another one replaced by that one's states."""
        waiter = self._waiters[pid]
        shares, by = waiter.shares, "child" if waiter.by_child else None
        if waiter.ended >= LEAST_PART:
            shares, by = partly(shares, waiter.ended, FeederShares(run=1.0)), "child"
        if waiter.for_local >= max(LEAST_PART, waiter.piped + waiter.for_child):
            return self._over_a_socket(pid, waiter, shares, by, depth)
        waits = waiter.piped + waiter.for_child
        children = self._kids.get(pid, ()) if depth < _GENERATIONS else ()
        if waits < LEAST_PART and not (children and waiter.polled >= LEAST_PART):
            return FeedReading(shares, by)
        mine = self._inodes_of(pid) if waiter.piped + waiter.polled >= LEAST_PART else None
        is_known = waiter.for_child >= LEAST_PART or mine is not None
        connected = [
            child for child in children if waiter.for_child >= LEAST_PART or self._writes_to(child, mine, waiter)
        ]
        if connected:
            best = max((self.resolved(child, depth + 1) for child in connected), key=lambda feed: feed.shares.useful)
            return FeedReading(partly(shares, waits + waiter.polled, best.shares), "child" if is_known else "kinship")
        if waiter.piped < LEAST_PART:
            return FeedReading(shares, by)
        if waiter.fifo:
            return FeedReading(partly(shares, waiter.piped, FeederShares(network=1.0)), "pipe")
        if mine is None:
            return FeedReading(shares, by or "kinship", why_blind=DENIED_FDS)
        if self._reads_from_outside(pid, mine, waiter.pipe):
            return FeedReading(partly(shares, waiter.piped, FeederShares(network=1.0)), "pipe")
        return FeedReading(shares, by or "task queue")

    def _over_a_socket(self, pid: int, waiter: Waiter, shares: FeederShares, by: str | None, depth: int) -> FeedReading:
        """A wait on a local socket: for the own child at its other end, for work, or for one who serves others too."""
        other = self._at_other_end(pid, waiter)
        if other is None:
            return FeedReading(shares, by)
        if other in self._kids.get(pid, ()) and depth < _GENERATIONS:
            return FeedReading(partly(shares, waiter.for_local, self.resolved(other, depth + 1).shares), "child")
        is_above = other == waiter.root or other in self._ancestors(pid)
        return FeedReading(shares, by or ("task queue" if is_above else "peer"))

    def _at_other_end(self, pid: int, waiter: Waiter) -> int | None:
        """Who of the job holds the other end of the local socket that a process reads: those above it first, who made
        both ends before they forked."""
        inode = None if waiter.wait_seen is None else waiter.wait_seen.socket
        peer = None if inode is None else self._peer_of(inode)
        if peer is None:
            return None
        above = [other for other in (waiter.root, *self._ancestors(pid)) if other is not None]
        candidates: list[int] = [*above, *self._kids.get(pid, ()), *self._waiters]
        for other in dict.fromkeys(candidates):
            theirs = None if other == pid else self._held_by_many(other)
            if theirs is not None and peer in theirs.sockets:
                return other
        return None

    def _writes_to(self, child: int, parent_ends: HeldInodes | None, waiter: Waiter) -> bool:
        if parent_ends is None:
            return waiter.piped >= LEAST_PART
        child_ends = self._inodes_of(child)
        reads = parent_ends.reads if waiter.pipe is None else frozenset((waiter.pipe,))
        # A forked worker inherits both ends of every queue: a pipe that it also reads is not its output.
        return child_ends is not None and bool(reads & (child_ends.writes - child_ends.reads))

    def _reads_from_outside(self, pid: int, mine: HeldInodes, pipe: int | None) -> bool:
        """Whether a pipe that this process reads is written by no process of its tree, nor by an ancestor."""
        if pipe is None and not mine.reads:
            # It can only be one that has a name.
            return True
        inside: set[int] = set()
        for other in {*self._ancestors(pid), self._waiters[pid].root}:
            theirs = None if other is None else self._inodes_of(other)
            if theirs is not None:
                inside |= theirs.writes
        if pipe is not None:
            return pipe not in inside and pipe not in mine.writes
        pipes = mine.reads - mine.standard - mine.writes
        return bool(pipes) and not pipes & inside

    def _ancestors(self, pid: int) -> Iterable[int]:
        for _ in range(_ANCESTORS):
            waiter = self._waiters.get(pid)
            if waiter is None or waiter.parent <= 1:
                return
            pid = waiter.parent
            yield pid


# What sockets prove: a process that polls and receives data waits for the network; one that listens, for demand.

BARE_LOOKS = 3
"""A process that polls without any TCP socket at so many looks in a row fetches nothing over TCP."""
FRESH_LOOKS = 2
"""A process with a new connection at so many looks in a row opens one for each item."""
MOST_LOADERS_ASKED = 4
"""The most loaders of one GPU process whose sockets are read."""


class SocketProof:
    """Reads the sockets of processes whose waiting nothing else explains."""

    def __init__(self, proc: str, *, looks_between: bool = False) -> None:
        """``looks_between``: the caller calls ``look`` between the readings; else each reading looks itself."""
        self._received = Received(proc)
        self._looks_between = looks_between
        self._root_of_target: dict[int, int] = {}

    def look(self, now: float) -> None:
        """Look at the sockets requested at the last reading, if a look is due."""
        if self._root_of_target:
            self._received.read(now, list(self._root_of_target), self._root_of_target)

    def _to_ask(
        self,
        unclear: list[int],
        members: Mapping[int, Member],
        asks: Mapping[int, int | None],
        feeds: Mapping[int, FeedReading],
    ) -> dict[int, int]:
        """Whose sockets to read, for whom: GPU processes, and a few of the loaders of each that may wait for a socket,
        first those asked before; a child, where that is what the wait is for."""
        targets: dict[int, int] = {}
        count: dict[int | None, int] = {}
        loaders: list[tuple[bool, bool, int]] = []
        for pid in unclear:
            if members[pid].place.role == "gpu":
                targets[pid] = asks.get(pid) or pid
            elif _may_fetch(feeds[pid]) >= LEAST_FETCH and (members[pid].role == "loader" or asks.get(pid) is not None):
                news = self._received.of(asks.get(pid) or pid)
                loaders.append((news is not None and news.bare_looks >= BARE_LOOKS, news is None, pid))
        for _, _, pid in sorted(loaders):
            root = members[pid].place.root
            count[root] = count.get(root, 0) + 1
            if count[root] <= MOST_LOADERS_ASKED:
                targets[pid] = asks.get(pid) or pid
        return targets

    def resolve(
        self,
        now: float,
        unclear: list[int],
        members: Mapping[int, Member],
        waits: Mapping[int, str | None],
        asks: Mapping[int, int | None],
        parents: Mapping[int, int],
        feeds: dict[int, FeedReading],
    ) -> None:
        """Arriving bytes prove that a polling process waits for the network; a listening socket, for demand.

        ``asks`` names the child that is asked instead of a process that waits for it, ``parents`` the parent of a GPU
        process. Until they are asked, polling loaders are unread: what was not looked at allows no conclusion.
        """
        targets = self._to_ask(unclear, members, asks, feeds)
        self._root_of_target = {target: members[pid].place.root or pid for pid, target in targets.items()}
        # An engine without a socket is given its work by a parent that may have one.
        news_of_engine = {pid: self._received.of(targets.get(pid, pid)) for pid in parents}
        engines = {pid: parents[pid] for pid, news in news_of_engine.items() if news is not None and news.bare_looks}
        self._root_of_target.update(
            {parent: parent for parent in engines.values() if parent not in self._root_of_target}
        )
        if targets and not self._looks_between:
            self.look(now)
        bare = self._bare_roots()
        for pid in unclear:
            feed = feeds.get(pid) or FeedReading()
            news = self._received.of(targets.get(pid, pid))
            if members[pid].role == "loader" and not _is_conclusive(news):
                feeds[pid] = self._without_conclusion(feed, kin_is_bare=members[pid].place.root in bare)
            elif news is not None and pid in targets:
                feeds[pid] = self._with_news(pid, feed, news, waits[pid], is_root=members[pid].place.role == "gpu")
            if pid in engines and _is_bare(news) and self._serves(engines[pid]):
                feeds[pid] = replace(feeds.get(pid) or feed, by=SERVED_BY_PARENT)

    def _serves(self, pid: int) -> bool:
        """Whether a process listens, and fetches nothing itself."""
        news = self._received.of(pid)
        return news is not None and news.listens and not _is_proven(news)

    def _bare_roots(self) -> set[int]:
        """GPU processes of whose loaders several were asked, and none has a TCP socket: so have the others."""
        bare_by_root: dict[int, list[bool]] = {}
        for pid, root in self._root_of_target.items():
            news = self._received.of(pid)
            if pid != root and news is not None:
                bare_by_root.setdefault(root, []).append(news.bare_looks >= BARE_LOOKS)
        return {root for root, bare in bare_by_root.items() if len(bare) >= MOST_LOADERS_ASKED - 1 and all(bare)}

    def _without_conclusion(self, feed: FeedReading, *, kin_is_bare: bool) -> FeedReading:
        """A loader whose sockets were not looked at: as those of its GPU process that were, where these are bare."""
        shares = feed.shares
        if shares.poll < LEAST_FETCH or feed.by is not None:
            return feed
        if kin_is_bare:
            return replace(feed, by="no socket")
        return replace(feed, shares=replace(shares, poll=0.0, unread=shares.unread + shares.poll))

    def _with_news(
        self, pid: int, feed: FeedReading, news: SocketNews, main: str | None, *, is_root: bool
    ) -> FeedReading:
        """The feed of a process with what its sockets say. ``main`` is what its main thread was last seen in."""
        if news.asks_root:
            return replace(feed, shares=idle_but_runs(feed.shares), by="client")
        shares, by = feed.shares, feed.by
        receives = news.rx_bytes_per_s is not None and news.rx_bytes_per_s >= LEAST_RX
        proven = _is_proven(news)
        own_socket = is_root and main in ("queue", "network", "socket")
        if own_socket and proven:
            by = "main socket"
        if proven and feed.inside is not None and feed.inside.poll >= LEAST_FETCH:
            shares = partly(shares, max(0.0, 1.0 - shares.cpu), feed.inside)
        if proven and shares.poll + feed.in_socket > 0.0 and not own_socket:
            shares, by = received(shares, feed.in_socket), "socket" if receives else "connections"
        elif by is None and news.bare_looks >= BARE_LOOKS and shares.poll > shares.useful:
            by = "no socket"
        listens = news.listens and not proven if is_root else None
        return replace(
            feed, shares=shares, by=by, rx_bytes_per_s=news.rx_bytes_per_s, listens=listens,
            why_blind=news.reason or feed.why_blind,
        )  # fmt: skip


LEAST_FETCH = 0.3
"""A process that polls, or waits in a socket, for less of its time is not asked for its sockets."""
ENOUGH_LOOKS = 4
"""After so many looks at its sockets what was not seen there is not there."""


def _may_fetch(feed: FeedReading) -> float:
    inside = 0.0 if feed.inside is None else feed.inside.poll
    return max(feed.shares.poll + feed.shares.network + feed.in_socket, inside)


def _is_bare(news: SocketNews | None) -> bool:
    """Whether a process holds no TCP socket, as far as two looks tell."""
    return news is not None and news.bare_looks >= 2


def _is_conclusive(news: SocketNews | None) -> bool:
    """Whether there were enough looks to conclude also from what was not seen."""
    if news is None:
        return False
    return news.bare_looks >= BARE_LOOKS or news.looks >= ENOUGH_LOOKS or news.reason is not None or _is_proven(news)


def _is_proven(news: SocketNews | None) -> bool:
    """Whether data come in over connections of its own, or connections are made again and again."""
    if news is None:
        return False
    return (news.rx_bytes_per_s or 0.0) >= LEAST_RX or news.fresh_looks >= FRESH_LOOKS


def idle_but_runs(shares: FeederShares) -> FeederShares:
    """Runnable time alone; the rest is for nothing of its own."""
    return FeederShares(run=shares.run, queued=shares.queued, other=max(0.0, 1.0 - shares.cpu))
