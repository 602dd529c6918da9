"""Conclusions from sockets: network waits and serving processes.

A process that polls and receives data waits for the network; one that listens waits for demand.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from gputop.model.feeders import SERVED_BY_PARENT, FeederShares
from gputop.sources.processes.feed import FETCHED_S, FeedReading, Track, partly, received, shares_of
from gputop.sources.processes.member import Member
from gputop.sources.processes.process_sockets import LEAST_RX, OtherEnds, Received, SocketNews

BARE_LOOKS = 3
"""Consecutive readings without any TCP socket after which a polling process fetches nothing over TCP."""
FRESH_LOOKS = 2
"""Recent readings with a new connection after which a process is taken to open one for each item."""
MOST_LOADERS_ASKED = 4
"""Limit of loaders of one GPU process whose sockets are read."""
LEAST_FETCH = 0.3
"""Least share of time in polls or sockets for which a process's sockets are read."""
ENOUGH_LOOKS = 4
"""Readings of the sockets after which missing evidence is conclusive."""


class SocketProof:
    """Reads sockets of processes whose waiting is otherwise unexplained."""

    def __init__(self, proc: str, ends: OtherEnds) -> None:
        self._received = Received(proc, ends)
        self._root_of_target: dict[int, int] = {}

    def look(self, now: float) -> None:
        """Read the requested sockets, if a dump is due."""
        if self._root_of_target:
            self._received.read(now, list(self._root_of_target), self._root_of_target)

    def forget(self, pids: Collection[int]) -> None:
        """Forget exited processes."""
        self._received.forget(pids)

    def _to_ask(
        self,
        unclear: Sequence[int],
        members: Mapping[int, Member],
        tracks: Mapping[int, Track],
        feeds: Mapping[int, FeedReading],
    ) -> dict[int, int]:
        """Map each process to the process whose sockets are read.

        The keys are GPU processes, and a few of each one's loaders that may wait for a socket, already read ones first.
        The value is an awaited child, if the process waits for one that polls.
        """
        targets: dict[int, int] = {}
        count: dict[int | None, int] = {}
        loaders: list[tuple[bool, bool, int]] = []
        for pid in unclear:
            asked = tracks[pid].asks
            if members[pid].place.role == "gpu":
                targets[pid] = asked or pid
            elif (members[pid].role == "loader" or asked is not None) and _may_fetch(feeds[pid], tracks[pid]):
                news = self._received.of(asked or pid)
                loaders.append((news is not None and news.bare_looks >= BARE_LOOKS, news is None, pid))
        for _, _, pid in sorted(loaders):
            root = members[pid].place.root
            count[root] = count.get(root, 0) + 1
            if count[root] <= MOST_LOADERS_ASKED:
                targets[pid] = tracks[pid].asks or pid
        return targets

    def resolve(
        self,
        now: float,
        unclear: Sequence[int],
        members: Mapping[int, Member],
        tracks: Mapping[int, Track],
        parents: Mapping[int, int],
        feeds: dict[int, FeedReading],
        *,
        at_once: bool,
    ) -> None:
        """Update ``feeds`` with evidence from sockets.

        Received bytes prove that a polling process waits for the network; a listening socket proves a wait for demand.
        ``parents`` maps GPU processes to their parents. Polling loaders are unread until their sockets are read.
        ``at_once``: read now, because nothing is sampled between the readings.
        """
        targets = self._to_ask(unclear, members, tracks, feeds)
        self._root_of_target = {target: members[pid].place.root or pid for pid, target in targets.items()}
        # A GPU process without a socket receives its work from a parent that may have one.
        news_of_engine = {pid: self._received.of(targets.get(pid, pid)) for pid in parents}
        engines = {pid: parents[pid] for pid, news in news_of_engine.items() if news is not None and news.bare_looks}
        for parent in engines.values():
            self._root_of_target.setdefault(parent, parent)
        if targets and at_once:
            self.look(now)
        bare = self._bare_roots()
        for pid in unclear:
            feed = feeds[pid]
            news = self._received.of(targets.get(pid, pid))
            if members[pid].role == "loader" and not _is_conclusive(news):
                if feed.by != "thread" and now - tracks[pid].fetched_at <= FETCHED_S:
                    # A new program for each shard has new connections: the proof of the former one remains valid.
                    feeds[pid] = replace(feed, shares=received(feed.shares, tracks[pid].in_socket), by="socket")
                    continue
                feeds[pid] = self._without_conclusion(feed, kin_is_bare=members[pid].place.root in bare)
            elif news is not None and pid in targets:
                feeds[pid] = self._with_news(now, feed, news, tracks[pid], is_root=members[pid].place.role == "gpu")
            if pid in engines and news is not None and news.bare_looks >= 2 and self._serves(engines[pid]):
                feeds[pid] = replace(feeds[pid], by=SERVED_BY_PARENT)

    def _serves(self, pid: int) -> bool:
        """Return whether a process listens and fetches nothing itself."""
        news = self._received.of(pid)
        return news is not None and news.listens and not _is_proven(news)

    def _bare_roots(self) -> set[int]:
        """Return GPU processes whose sampled loaders have no TCP socket.

        Several loaders were sampled; the others are assumed to have none either.
        """
        bare_by_root: dict[int, list[bool]] = {}
        for pid, root in self._root_of_target.items():
            news = self._received.of(pid)
            if pid != root and news is not None:
                bare_by_root.setdefault(root, []).append(news.bare_looks >= BARE_LOOKS)
        return {root for root, bare in bare_by_root.items() if len(bare) >= MOST_LOADERS_ASKED - 1 and all(bare)}

    def _without_conclusion(self, feed: FeedReading, *, kin_is_bare: bool) -> FeedReading:
        """Return the feed of a loader without conclusive socket readings.

        If sampled loaders of its GPU process have no TCP socket, neither has this one.
        """
        shares = feed.shares
        if shares.poll < LEAST_FETCH or feed.by is not None:
            return feed
        if kin_is_bare:
            return replace(feed, by="no socket")
        return replace(feed, shares=replace(shares, poll=0.0, unread=shares.unread + shares.poll))

    def _with_news(
        self, now: float, feed: FeedReading, news: SocketNews, track: Track, *, is_root: bool
    ) -> FeedReading:
        """Return the feed of a process with its sockets' evidence."""
        shares, by = feed.shares, feed.by
        if news.asks_root:
            # It waits for a result of its own GPU process.
            idle = FeederShares(shares.run, shares.queued, other=max(0.0, 1.0 - shares.cpu))
            return replace(feed, shares=idle, by="client")
        proven = _is_proven(news)
        # The proof is kept for a while: the last reading alone would let it come and go.
        own_socket = is_root and any(track.recent.own.get(wait) for wait in ("queue", "network", "socket"))
        if proven:
            track.fetched_at = now
        if own_socket and now - track.fetched_at <= FETCHED_S:
            by = "main socket"
        if proven and not is_root and by != "thread" and track.polls_inside >= LEAST_FETCH:
            shares = partly(shares, max(0.0, 1.0 - shares.cpu), shares_of(0.0, 0.0, track.recent.inside))
        unproven = shares.poll + track.in_socket
        if proven and unproven > 0.0 and not own_socket:
            if by != "thread" or unproven > shares.network:
                by = "socket" if (news.rx_bytes_per_s or 0.0) >= LEAST_RX else "connections"
            shares = received(shares, track.in_socket)
        elif by is None and news.bare_looks >= BARE_LOOKS and shares.poll > shares.useful:
            by = "no socket"
        listens = news.listens and not proven if is_root else None
        return replace(
            feed, shares=shares, by=by, rx_bytes_per_s=news.rx_bytes_per_s, listens=listens,
            why_blind=news.reason or feed.why_blind,
        )  # fmt: skip


def _may_fetch(feed: FeedReading, track: Track) -> bool:
    outside = feed.shares.poll + feed.shares.network + track.in_socket
    return max(outside, track.polls_inside) >= LEAST_FETCH


def _is_conclusive(news: SocketNews | None) -> bool:
    """Return whether the readings suffice to conclude from missing evidence."""
    if news is None:
        return False
    return news.bare_looks >= BARE_LOOKS or news.looks >= ENOUGH_LOOKS or news.reason is not None or _is_proven(news)


def _is_proven(news: SocketNews) -> bool:
    """Return whether received data or repeated connections prove a fetch."""
    return (news.rx_bytes_per_s or 0.0) >= LEAST_RX or news.fresh_looks >= FRESH_LOOKS
