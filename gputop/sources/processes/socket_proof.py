"""What sockets prove: a process that polls and receives data waits for the network; one that listens, for demand."""

from __future__ import annotations

from collections.abc import Mapping

from gputop.sources.processes.feed import Feed, received
from gputop.sources.processes.member import Member
from gputop.sources.processes.pointers import without_waits
from gputop.sources.processes.received import LEAST_RX, Received

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
