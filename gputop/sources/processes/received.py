"""Bytes a second that processes receive on their TCP sockets, and whether one of these listens.

The socket table is dumped every few seconds at most, and open files are read in turns.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from msgspec import Struct

from gputop.sources.processes.descriptors import DENIED_FDS, held
from gputop.sources.processes.sockets import SocketTables, tcp_tables

LEAST_RX = 1000.0
"""Bytes a second that count as data: heartbeats of a job's own connections are below [judged]."""
FIRST_DUMP_S, DUMP_S = 1.0, 5.0
FIRST_LOOKS = 6
"""Looks at a process in quick succession, so that a verdict need not wait for them."""
MOST_ASKED = 4
"""The most processes whose open files are read for one dump."""
OTHER_NETWORK = "its sockets are in another network namespace"


class SocketNews(Struct, frozen=True):
    """What the sockets of one process say. ``rx_bytes_per_s`` is None until two readings, or with a ``reason``."""

    rx_bytes_per_s: float | None
    listens: bool
    reason: str | None = None
    fresh_looks: int = 0
    """In how many recent looks it held a new connection, as with one per request. At most 4."""
    bare_looks: int = 0
    """Looks in a row at which the process held no TCP socket at all, its own or inherited."""
    asks_root: bool = False
    """It is a client of its own GPU process: what it waits for is the GPU's answer."""


class _Known(Struct):
    at: float
    received: dict[int, int]
    news: SocketNews
    looks: int = 1


class Received:
    """Follows processes by pid. ``read`` is cheap while no dump is due."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._known: dict[int, _Known] = {}
        self._dumped_at: float | None = None
        self._turn = 0

    def read(self, now: float, pids: Sequence[int], roots: Mapping[int, int]) -> None:
        """Update some of ``pids``. ``roots``: the GPU process of each, whose sockets its workers inherit."""
        is_new = any(pid not in self._known or self._known[pid].looks < FIRST_LOOKS for pid in pids)
        wait = FIRST_DUMP_S if is_new else DUMP_S
        if self._dumped_at is not None and 0.0 <= now - self._dumped_at < 0.95 * wait:
            return
        self._dumped_at = now
        tables = tcp_tables(now)
        self._known = {pid: self._known[pid] for pid in pids if pid in self._known}
        chosen = sorted(pids, key=lambda pid: self._known[pid].at if pid in self._known else -1.0)[:MOST_ASKED]
        shared: dict[int, frozenset[int]] = {}
        for pid in chosen:
            before = self._known.get(pid)
            known = self._known[pid] = self._look(now, pid, roots.get(pid, pid), tables, shared)
            known.looks = 1 if before is None else before.looks + 1

    def of(self, pid: int) -> SocketNews | None:
        """What is known of a process; None before its first look."""
        known = self._known.get(pid)
        return None if known is None else known.news

    def _look(self, now: float, pid: int, root: int, tables: SocketTables, shared: dict[int, frozenset[int]]) -> _Known:
        if not tables.tcp and tables.reason:
            return _Known(now, {}, SocketNews(None, False, tables.reason))
        mine = held(self._proc, pid)
        if mine is None:
            return _Known(now, {}, SocketNews(None, False, DENIED_FDS))
        sockets = mine.sockets
        serves: set[int] = set()
        if root != pid:
            if root not in shared:
                parent = held(self._proc, root)
                shared[root] = frozenset() if parent is None else parent.sockets
            serves = {tables.tcp[inode].ends[0][1] for inode in shared[root] if self._is_open(tables, inode)}
            # A forked worker holds its parent's sockets as well: what they receive is not its own.
            sockets = sockets - shared[root]
        tcp = tables.tcp
        listening = {tcp[inode].ends[0][1] for inode in sockets if inode in tcp and tcp[inode].listens}
        # What comes in through a listening socket is a request: demand, not data.
        received = {
            inode: tcp[inode].received
            for inode in sockets
            if inode in tcp and not tcp[inode].listens and not listening & {end[1] for end in tcp[inode].ends}
        }
        before = self._known.get(pid)
        rate: float | None = None
        if before is not None and now > before.at:
            new = sum(max(0, count - before.received.get(inode, 0)) for inode, count in received.items())
            rate = new / (now - before.at)
        asks = bool(serves) and any(tcp[inode].ends[1][1] in serves for inode in sockets if inode in tcp)
        reason = None
        if sockets and not any(inode in tcp for inode in sockets) and self._is_elsewhere(pid):
            reason, rate = OTHER_NETWORK, None
        fresh = 0
        if before is not None:
            is_fresh = bool(received.keys() - before.received.keys())
            fresh = min(4, max(0, before.news.fresh_looks + (1 if is_fresh else -1)))
        bare = 0
        if reason is None and not any(inode in tcp for inode in mine.sockets):
            bare = 1 + (0 if before is None else before.news.bare_looks)
        return _Known(now, received, SocketNews(rate, bool(listening), reason, fresh, bare, asks))

    def _is_open(self, tables: SocketTables, inode: int) -> bool:
        return inode in tables.tcp and tables.tcp[inode].listens

    def _is_elsewhere(self, pid: int) -> bool:
        """Whether a process has another network namespace than gputop."""
        try:
            return os.readlink(f"{self._proc}/{pid}/ns/net") != os.readlink(f"{self._proc}/self/ns/net")
        except OSError:
            return False
