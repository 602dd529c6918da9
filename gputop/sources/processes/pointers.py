"""A wait for another process is a pointer, not a cause: it stands for what that process does, or for nothing.

A child at the other end of a pipe: its states are inherited. The GPU process or an ancestor: a task queue, so idle.
A process outside the job: data from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from gputop.model.feeders import NO_SHARES, FeederShares
from gputop.sources.processes.feed import Feed, inherited, received, shares_of
from gputop.sources.processes.member import Member
from gputop.sources.processes.process_sockets import DENIED_FDS, LEAST_RX, Held, Received
from gputop.sources.processes.wait_channel import wait_class, waits_for_child
from gputop.sources.procfs import parse_stat, read_small

HeldBy = Callable[[int], Held | None]
ENDED = 0.05
"""From this CPU time of ended children on, as a share of the time, the wait is for them."""
_GENERATIONS = 4
_CHILDREN_READ = 4
_ANCESTORS = 6


class Waiter:
    """One process: own shares, what it waits for, parent, GPU process, time of ended children.

    ``waiting_on`` is the class of its wait, ``channel`` the kernel's name of it.
    """

    __slots__ = ("channel", "children_pct", "parent", "root", "shares", "waiting_on")

    def __init__(
        self, shares: FeederShares, waiting_on: str | None, channel: str, parent: int, root: int | None, children: float
    ) -> None:
        self.shares = shares
        self.waiting_on = waiting_on
        self.channel = channel
        self.parent = parent
        self.root = root
        self.children_pct = children


class Pointers:
    """Resolves the waits of one reading."""

    def __init__(self, proc: str, waiters: Mapping[int, Waiter], held: HeldBy) -> None:
        self._proc = proc
        self._waiters = waiters
        self._held = held
        self._kids: dict[int, list[int]] = {}
        for pid, waiter in waiters.items():
            self._kids.setdefault(waiter.parent, []).append(pid)

    def points(self, pid: int) -> bool:
        """Whether a process may wait for another one: most do not, and need no further work."""
        waiter = self._waiters[pid]
        if waiter.children_pct >= 100.0 * ENDED or waiter.waiting_on == "pipe":
            return True
        return pid in self._kids and (waiter.waiting_on == "queue" or waits_for_child(waiter.channel))

    def resolved(self, pid: int, depth: int = 0) -> Feed:
        """What a process did, with its wait for another one replaced by that one's states."""
        waiter = self._waiters[pid]
        own, waiting_on = waiter.shares, waiter.waiting_on
        for_child = waits_for_child(waiter.channel)
        ended = self.short_lived(pid)
        if ended is not None:
            return Feed(inherited(own if waiting_on == "disk" else without_waits(own), ended), "child")
        if not for_child and waiting_on not in ("pipe", "queue"):
            return Feed(own)
        children = self._kids.get(pid, ()) if depth < _GENERATIONS else ()
        if not children and waiting_on != "pipe":
            return Feed(own)
        mine = self._held(pid)
        connected = [child for child in children if for_child or self._writes_to(child, mine, waiting_on)]
        if connected:
            feeds = [self.resolved(child, depth + 1) for child in connected]
            best = max(feeds, key=lambda feed: feed.shares.useful)
            return Feed(inherited(without_waits(own), best.shares), "kinship" if mine is None else "child")
        if waiting_on != "pipe":
            return Feed(own)
        if mine is None:
            return Feed(own, "kinship", why_blind=DENIED_FDS)
        if self._reads_from_outside(pid, mine):
            return Feed(inherited(own, FeederShares(network=1.0)), "pipe")
        return Feed(own, "task queue")

    def short_lived(self, pid: int) -> FeederShares | None:
        """What children do that live for less than a look; None where hardly any have ended.

        Their running time is known once they have ended. That they queue for a core can only be seen in one that lives.
        """
        waiter = self._waiters[pid]
        rest = max(0.0, 1.0 - waiter.shares.cpu)
        run = min(rest, waiter.children_pct / 100.0)
        if run < ENDED:
            return None
        run /= rest
        living = self._living_child(pid)
        left = 1.0 - run
        return FeederShares(
            run=run,
            queued=left * living.cpu,
            disk=left * living.disk,
            network=left * living.network,
            sleep=left * living.sleep,
        )

    def _living_child(self, pid: int) -> FeederShares:
        """What the busiest child alive at this moment does, by its state alone."""
        best = NO_SHARES
        try:
            children = read_small(f"{self._proc}/{pid}/task/{pid}/children").split()
        except OSError:
            return best
        for child in children[:_CHILDREN_READ]:
            folder = f"{self._proc}/{int(child)}"
            try:
                stat = parse_stat(read_small(f"{folder}/stat"))
                channel = read_small(f"{folder}/wchan").decode("ascii", "replace")
            except OSError:
                continue
            if stat is None or stat.state == "Z":
                continue
            waits = "disk" if stat.state == "D" else wait_class(channel)
            shares = shares_of(100.0, 0.0, None) if stat.state == "R" else shares_of(0.0, 0.0, waits)
            best = max(best, shares, key=lambda s: s.useful)
        return best

    def _writes_to(self, child: int, mine: Held | None, waiting_on: str | None) -> bool:
        if mine is None:
            return waiting_on == "pipe"
        its = self._held(child)
        # A forked worker inherits both ends of every queue: a pipe that it also reads is not its output.
        return its is not None and bool(mine.reads & (its.writes - its.reads))

    def _reads_from_outside(self, pid: int, mine: Held) -> bool:
        """Whether a pipe that this process reads is written by nobody of its tree, nor by an ancestor."""
        if mine.fifos:
            return True
        inside: set[int] = set()
        for other in {*self._ancestors(pid), self._waiters[pid].root}:
            theirs = None if other is None else self._held(other)
            if theirs is not None:
                inside |= theirs.writes
        pipes = mine.reads - mine.standard - mine.writes
        return bool(pipes) and not pipes & inside

    def _ancestors(self, pid: int) -> Iterable[int]:
        for _ in range(_ANCESTORS):
            waiter = self._waiters.get(pid)
            if waiter is None or waiter.parent <= 1:
                return
            pid = waiter.parent
            yield pid


def without_waits(shares: FeederShares) -> FeederShares:
    """Runnable time alone."""
    return FeederShares(run=shares.run, queued=shares.queued)


# What sockets prove: a process that polls and receives data waits for the network; one that listens, for demand.

BARE_LOOKS = 3
"""A process that polls without any TCP socket at so many looks in a row fetches nothing over TCP."""
FRESH_LOOKS = 2
"""A process with a new connection at so many looks in a row opens one for each item."""
MOST_LOADERS_ASKED = 4
"""The most loaders of one GPU process whose sockets are read."""


class SocketProof:
    """Reads the sockets of processes whose waiting nothing else explains."""

    def __init__(self, proc: str, *, between: bool = False) -> None:
        """``between``: somebody calls ``look`` between the readings; else each reading looks itself."""
        self._received = Received(proc)
        self._between = between
        self._asked: dict[int, int] = {}

    def look(self, now: float) -> None:
        """Look at the sockets requested at the last reading, if a look is due."""
        if self._asked:
            self._received.read(now, list(self._asked), self._asked)

    def _to_ask(self, unclear: list[int], members: Mapping[int, Member], feeds: Mapping[int, Feed]) -> list[int]:
        """GPU processes, and a few of the loaders of each that may wait for a socket: first those asked before."""
        asked: list[int] = []
        count: dict[int | None, int] = {}
        loaders: list[tuple[bool, bool, int]] = []
        for pid in unclear:
            if members[pid].place.role == "gpu":
                asked.append(pid)
            elif members[pid].role == "loader" and feeds[pid].shares.poll + feeds[pid].shares.network >= 0.3:
                said = self._received.of(pid)
                loaders.append((said is not None and said.bare_looks >= BARE_LOOKS, said is None, pid))
        for _, _, pid in sorted(loaders):
            root = members[pid].place.root
            count[root] = count.get(root, 0) + 1
            if count[root] <= MOST_LOADERS_ASKED:
                asked.append(pid)
        return asked

    def resolve(
        self,
        now: float,
        unclear: list[int],
        members: Mapping[int, Member],
        waits: Mapping[int, str | None],
        feeds: dict[int, Feed],
    ) -> None:
        """Arriving bytes prove that a polling process waits for the network; a listening socket, for demand."""
        asked = self._to_ask(unclear, members, feeds)
        self._asked = {pid: members[pid].place.root or pid for pid in asked}
        if not asked:
            return
        if not self._between:
            self.look(now)
        for pid in asked:
            feed, said = feeds.get(pid) or Feed(), self._received.of(pid)
            if said is None:
                continue
            if said.asks_root:
                feeds[pid] = Feed(without_waits(feed.shares), "client", feed.threads)
                continue
            main = waits[pid]
            shares = feed.shares
            receives = said.rx_bytes_per_s is not None and said.rx_bytes_per_s >= LEAST_RX
            proven = receives or said.fresh_looks >= FRESH_LOOKS
            is_root = members[pid].place.role == "gpu"
            by = feed.by
            if is_root and proven and main in ("queue", "network"):
                by = "main socket"
            if proven and shares.poll > 0.0 and not (is_root and main in ("queue", "network")):
                shares, by = received(shares), "socket" if receives else "connections"
            elif by is None and said.bare_looks >= BARE_LOOKS and shares.poll > shares.useful:
                by = "no socket"
            listens = None
            if is_root:
                listens = said.listens and not proven
            feeds[pid] = Feed(shares, by, feed.threads, said.rx_bytes_per_s, listens, said.reason or feed.why_blind)
