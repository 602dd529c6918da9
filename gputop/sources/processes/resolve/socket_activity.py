"""Conclusions from a process's TCP sockets: it fetches over the network, or serves requests.

A process that polls and receives data waits for the network; one that listens waits for demand. ``SocketReader`` in
``count`` says when, and whose sockets are read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from gputop.sources.processes.resolve.socket_tables import SocketTables, TcpSocket
from gputop.sources.processes.tree.open_files import DENIED_FDS, held, in_another_network

LEAST_RX = 1000.0
"""Least rate that counts as data, in bytes per second: heartbeats of a job's own connections are below [judged]."""
BARE_LOOKS = 3
"""Consecutive readings without any TCP socket after which a process fetches nothing over TCP."""
FRESH_LOOKS, MOST_FRESH = 2, 4
"""Recent readings with a new connection after which a process is taken to open one for each item, and their limit."""
ENOUGH_LOOKS = 4
"""Readings of the sockets after which missing evidence is conclusive."""
OTHER_NETWORK = "its sockets are in another network namespace"


class SocketActivity(Struct, frozen=True):
    """State of one process's sockets at one reading.

    ``t`` is monotonic s. ``rx_bytes_per_s`` is None until two readings, or with a ``reason``. ``fresh`` counts recent
    readings with a new connection, ``bare`` consecutive ones without any TCP socket, own or inherited.
    """

    t: float
    rx_bytes_per_s: float | None = None
    listens: bool = False
    reason: str | None = None
    fresh: int = 0
    bare: int = 0
    asks_root: bool = False
    """Whether the process is a client of its own GPU process: it then waits for the GPU's answer."""
    readings: int = 1
    received: Mapping[int, int] = {}
    """Received bytes of its own connections, by inode."""

    @property
    def is_bare(self) -> bool:
        """Whether the process surely fetches nothing over TCP."""
        return self.bare >= BARE_LOOKS

    @property
    def fetches(self) -> bool:
        """Whether received data or repeated connections prove a fetch."""
        return (self.rx_bytes_per_s or 0.0) >= LEAST_RX or self.fresh >= FRESH_LOOKS

    @property
    def is_conclusive(self) -> bool:
        """Whether the readings suffice to conclude from missing evidence."""
        return (
            self.is_bare or self.readings >= ENOUGH_LOOKS or self.reason is not None or self.fetches
        )


def sockets_of(proc: str, pid: int) -> frozenset[int]:
    """Return the inodes of a process's sockets; empty if they are not readable."""
    files = held(proc, pid)
    return frozenset() if files is None else files.sockets


def read_activity(
    now: float,
    proc: str,
    pid: int,
    inherited: frozenset[int],
    tables: SocketTables,
    before: SocketActivity | None,
) -> SocketActivity:
    """Read the sockets of one process.

    ``inherited``: a forked worker also holds its parent's sockets, whose received bytes are not its own.
    """
    readings = 1 if before is None else before.readings + 1
    tcp = tables.tcp
    if not tcp and tables.reason:
        return SocketActivity(now, reason=tables.reason, readings=readings)
    mine = held(proc, pid)
    if mine is None:
        return SocketActivity(now, reason=DENIED_FDS, readings=readings)
    own = mine.sockets - inherited
    sockets = {inode: tcp[inode] for inode in own if inode in tcp}
    listening = {socket.own_port for socket in sockets.values() if socket.listens}
    received = _received_by_inode(sockets, listening)
    is_hidden = bool(own) and not sockets and in_another_network(proc, pid)
    is_bare = not is_hidden and tcp.keys().isdisjoint(mine.sockets)
    serves = {tcp[inode].own_port for inode in inherited if inode in tcp and tcp[inode].listens}
    rate = None
    if before is not None and now > before.t and not is_hidden:
        rate = _bytes_since(before, received) / (now - before.t)
    bare_before = 0 if before is None else before.bare
    return SocketActivity(
        t=now,
        rx_bytes_per_s=rate,
        listens=bool(listening),
        reason=OTHER_NETWORK if is_hidden else None,
        fresh=0 if before is None else _fresh_readings(before, received),
        bare=bare_before + 1 if is_bare else 0,
        asks_root=any(socket.peer_port in serves for socket in sockets.values()),
        readings=readings,
        received=received,
    )


def _received_by_inode(
    sockets: Mapping[int, TcpSocket], listening: Collection[int]
) -> dict[int, int]:
    """Return the bytes received as data.

    Those received through a listening socket are requests: demand, not data.
    """
    received: dict[int, int] = {}
    for inode, socket in sockets.items():
        is_served = socket.own_port in listening or socket.peer_port in listening
        if not socket.listens and not is_served:
            received[inode] = socket.received
    return received


def _bytes_since(before: SocketActivity, received: Mapping[int, int]) -> int:
    """Return the bytes that connections received since the reading before."""
    new = 0
    for inode, count in received.items():
        new += max(0, count - before.received.get(inode, 0))
    return new


def _fresh_readings(before: SocketActivity, received: Mapping[int, int]) -> int:
    """Return the number of recent readings with a new connection.

    A process that opens a connection for each item has none between two of them, which counts neither way.
    """
    fresh = before.fresh
    if received.keys() - before.received.keys():
        fresh += 1
    elif received or not before.received:
        fresh -= 1
    return min(MOST_FRESH, max(0, fresh))
