"""Evidence of sockets about waits: network waits and serving processes.

A process that polls and receives data waits for the network; one that listens waits for demand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gputop.model.feeders import SERVED_BY_PARENT
from gputop.model.wait_shares import WaitShares
from gputop.sources.processes.count.member import Member
from gputop.sources.processes.count.process_tracker import FETCHED_S, ProcessTracker
from gputop.sources.processes.count.wait_shares import (
    TimeShares,
    as_network,
    in_place_of_waits,
    shares_of,
)
from gputop.sources.processes.resolve.socket_activity import LEAST_RX, SocketActivity, SocketReader

MOST_LOADERS_ASKED = 4
"""Limit of loaders of one GPU process whose sockets are read."""
LEAST_FETCH = 0.3
"""Least share of time in polls or sockets for which a process's sockets are read."""


def add_socket_evidence(
    reader: SocketReader, now: float, unclear: Sequence[Member], members: Mapping[int, Member]
) -> None:
    """Update shares with evidence from sockets.

    Received bytes prove that a polling process waits for the network; a listening socket proves a wait for demand.
    Polling loaders are unread until their sockets are read.
    """
    readers = _sockets_to_read(reader, unclear)
    roots = {
        readers[member.pid]: member.place.root or member.pid
        for member in unclear
        if member.pid in readers
    }
    bare = reader.bare_roots(MOST_LOADERS_ASKED - 1)
    for member in unclear:
        waits, shares = member.waits, member.shares or TimeShares()
        sockets = reader.activity(readers.get(member.pid, member.pid))
        if member.role == "loader" and (sockets is None or not sockets.is_conclusive):
            if shares.evidence != "thread" and now - waits.fetched_at <= FETCHED_S:
                # A new program for each shard has new connections: the proof of the former one remains valid.
                network = as_network(shares.shares, waits.in_socket(holds_gpu=False))
                shares = replace(shares, shares=network, evidence="socket")
            elif (own := shares.shares).poll >= LEAST_FETCH and shares.evidence is None:
                # If sampled loaders of its GPU process have no TCP socket, neither has this one.
                is_bare = member.place.root in bare
                unread = replace(own, poll=0.0, unread=own.unread + own.poll)
                shares = (
                    replace(shares, evidence="no socket")
                    if is_bare
                    else replace(shares, shares=unread)
                )
        elif sockets is not None and member.pid in readers:
            shares = _with_sockets(now, shares, sockets, waits, is_root=member.is_gpu)
        if (
            member.is_gpu
            and sockets is not None
            and sockets.bare
            and (above := member.place.stat.ppid) in members
        ):
            # A GPU process without a socket receives its work from a parent that may have one.
            roots.setdefault(above, above)
            parent = reader.activity(above)
            if sockets.bare >= 2 and parent is not None and parent.listens and not parent.fetches:
                shares = replace(shares, evidence=SERVED_BY_PARENT)
        member.shares = shares
    reader.roots = roots


def _sockets_to_read(reader: SocketReader, unclear: Sequence[Member]) -> dict[int, int]:
    """Map each process to the process whose sockets are read.

    The keys are GPU processes, and a few of each one's loaders that may wait for a socket, already read ones first.
    The value is an awaited child, if the process waits for one that polls.
    """
    readers: dict[int, int] = {}
    loaders: dict[int | None, list[tuple[bool, bool, int]]] = {}
    for member in unclear:
        waits, shares = member.waits, member.shares or TimeShares()
        target = None if waits.latest is None else waits.latest.target
        child = None
        if (
            target is not None
            and target.activity is not None
            and target.activity.kind in ("queue", "socket")
        ):
            child = target.active_pid
        outside = shares.shares.poll + shares.shares.network + waits.in_socket(holds_gpu=False)
        may_fetch = max(outside, waits.counts.inner_share("queue", "socket")) >= LEAST_FETCH
        if member.is_gpu:
            readers[member.pid] = child or member.pid
        elif (member.role == "loader" or child is not None) and may_fetch:
            readers[member.pid] = child or member.pid
            known = reader.activity(readers[member.pid])
            order = known is not None and known.is_bare, known is None, member.pid
            loaders.setdefault(member.place.root, []).append(order)
    for several in loaders.values():
        for *_, pid in sorted(several)[MOST_LOADERS_ASKED:]:
            del readers[pid]
    return readers


def _with_sockets(
    now: float, feed: TimeShares, sockets: SocketActivity, tracker: ProcessTracker, *, is_root: bool
) -> TimeShares:
    """Return the feed of a process with its sockets' evidence."""
    shares, evidence, counts = feed.shares, feed.evidence, tracker.counts
    if sockets.asks_root:
        # It waits for a result of its own GPU process.
        idle = WaitShares(run=shares.run, queued=shares.queued, other=max(0.0, 1.0 - shares.cpu))
        return replace(feed, shares=idle, evidence="client")
    if sockets.fetches:
        tracker.fetched_at = now
    # The proof is kept for a while: the last reading alone would let it come and go.
    own_socket = is_root and any(counts.own[wait] for wait in ("queue", "network", "socket"))
    if own_socket and now - tracker.fetched_at <= FETCHED_S:
        evidence = "main socket"
    by_thread = evidence == "thread"
    if (
        sockets.fetches
        and not is_root
        and not by_thread
        and counts.inner_share("queue", "socket") >= LEAST_FETCH
    ):
        shares = in_place_of_waits(shares, shares_of(0.0, 0.0, counts.inner))
    in_socket = tracker.in_socket(holds_gpu=is_root)
    unproven = shares.poll + in_socket
    if sockets.fetches and unproven > 0.0 and not own_socket:
        if not by_thread or unproven > shares.network:
            evidence = "socket" if (sockets.rx_bytes_per_s or 0.0) >= LEAST_RX else "connections"
        shares = as_network(shares, in_socket)
    elif evidence is None and sockets.is_bare and shares.poll > shares.useful:
        evidence = "no socket"
    listens = sockets.listens and not sockets.fetches if is_root else None
    return replace(
        feed,
        shares=shares,
        evidence=evidence,
        rx_bytes_per_s=sockets.rx_bytes_per_s,
        listens=listens,
        why_blind=sockets.reason or feed.why_blind,
    )
