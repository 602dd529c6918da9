"""TCP and Unix sockets by netlink: received bytes, listeners and peers.

No privileges are needed. Formats: sock_diag(7), and linux/inet_diag.h, linux/unix_diag.h, linux/tcp.h
(``tcpi_bytes_received`` is the u64 at offset 128 of ``tcp_info``, since Linux 4.1). The tables belong to gputop's own
network namespace.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from stat import S_IRUSR, S_IWUSR
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from socket import socket


NETLINK_SOCK_DIAG = 4
_AF_UNIX, _AF_INET = 1, 2
"""Equal on every Linux; the module ``socket``, which takes 10 ms to load, is imported only for a query."""
_TCP_SOCKETS, _BY_FAMILY = 18, 20
_REQUEST, _REQUEST_DUMP = 0x1, 0x301
_ANY = 0xFFFFFFFF
"""INET_DIAG_NOCOOKIE: match any socket with this inode."""
_DONE, _ERROR = 3, 2
_INFO_EXTENSION = 1 << 1
_INFO, _PEER = 2, 2
_SHOW_PEER = 4
_ESTABLISHED, _FIN_WAIT1, _FIN_WAIT2, _CLOSE_WAIT, _LISTEN = 1, 4, 5, 8, 10
_ASKED_STATES = 1 << _ESTABLISHED | 1 << _FIN_WAIT1 | 1 << _FIN_WAIT2 | 1 << _CLOSE_WAIT | 1 << _LISTEN
_RECEIVED_AT = 128
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_BUFFER = 1 << 16
_PATIENCE_S = 0.2
MOST_SOCKETS = 32768
"""Limit of sockets in one dump: a machine with more is a proxy, and reading on would cost too much."""


class TcpSocket(Struct, frozen=True):
    """One TCP socket.

    ``ends`` are (address, port) of this side and of the other.
    """

    listens: bool
    received: int
    ends: tuple[tuple[bytes, int], tuple[bytes, int]]


class SocketTables(Struct, frozen=True):
    """TCP sockets by inode; ``reason`` explains an empty or cut table."""

    tcp: dict[int, TcpSocket]
    reason: str | None = None


def tcp_tables() -> SocketTables:
    """Read established, half-closed and listening TCP sockets. Never raises.

    Both address families are included.
    """
    sockets: dict[int, TcpSocket] = {}
    try:
        with _opened() as netlink:
            # The older form of the request: the kernel answers it for both address families in one pass.
            request = struct.pack("=BBBB48xII", 0, 0, 0, _INFO_EXTENSION, _ASKED_STATES, 0)
            for message in _dump(netlink, _TCP_SOCKETS, request):
                read = _tcp(message)
                if read is not None and read[0]:
                    sockets[read[0]] = read[1]
                if len(sockets) >= MOST_SOCKETS:
                    return SocketTables(sockets, f"more than {MOST_SOCKETS} sockets: only these were read")
    except OSError as error:
        return SocketTables({}, f"the kernel's socket table cannot be read: {error.strerror or error}")
    return SocketTables(sockets)


def unix_peers() -> dict[int, int]:
    """Return the peer inode of each connected Unix socket.

    Empty where the kernel does not provide the table.
    """
    peers: dict[int, int] = {}
    try:
        with _opened() as netlink:
            request = struct.pack("=BBxxIII8x", _AF_UNIX, 0, 1 << _ESTABLISHED, 0, _SHOW_PEER)
            for message in _dump(netlink, _BY_FAMILY, request):
                if len(message) < 16 or len(peers) >= MOST_SOCKETS:
                    continue
                peer = _attribute(message, 16, _PEER)
                if peer is not None and len(peer) >= 4:
                    peers[struct.unpack_from("=I", message, 4)[0]] = struct.unpack_from("=I", peer)[0]
    except OSError:
        return {}
    return peers


def unix_peer(inode: int) -> int | None:
    """Return the peer inode of one Unix socket.

    The socket need not be in any table.
    """
    try:
        with _opened() as netlink:
            request = struct.pack("=BBxxIIIII", _AF_UNIX, 0, 0xFFFFFFFF, inode, _SHOW_PEER, _ANY, _ANY)
            for message in _dump(netlink, _BY_FAMILY, request, _REQUEST):
                peer = _attribute(message, 16, _PEER) if len(message) >= 16 else None
                return struct.unpack_from("=I", peer)[0] or None if peer is not None and len(peer) >= 4 else None
    except OSError:
        return None
    return None


class OtherEnds:
    """Cache of socket peers.

    The tables are read rarely, however many sockets there are.
    """

    def __init__(self) -> None:
        self._peer_of_inode: dict[int, int] = {}
        self._tcp: dict[int, TcpSocket] = {}
        self._inode_of_ends: dict[tuple[object, object], int] = {}
        self._listeners: dict[int, int] = {}
        self._asked_at: float | None = None
        self._asked_tcp_at: float | None = None

    def local(self, now: float, inode: int) -> int | None:
        """Return the peer inode of a Unix socket.

        None if the socket has no peer, or is newer than the table. ``now`` is monotonic s.
        """
        if inode not in self._peer_of_inode and (self._asked_at is None or now - self._asked_at >= DUMP_S):
            self._asked_at, self._peer_of_inode = now, unix_peers()
        return self._peer_of_inode.get(inode)

    def tcp(self, now: float, inode: int) -> tuple[TcpSocket, int | None] | None:
        """Return a TCP socket and its local peer's inode.

        The inode is None for a peer on another machine. None if the socket is not in the table. ``now`` is monotonic s.
        """
        if inode not in self._tcp and (self._asked_tcp_at is None or now - self._asked_tcp_at >= DUMP_S):
            self.dump(now)
        found = self._tcp.get(inode)
        return None if found is None else (found, self._inode_of_ends.get(found.ends[::-1]))

    def dump(self, now: float) -> SocketTables:
        """Read the table of TCP sockets now."""
        tables = tcp_tables()
        self._asked_tcp_at, self._tcp = now, tables.tcp
        self._inode_of_ends = {socket.ends: number for number, socket in self._tcp.items()}
        self._listeners = {socket.ends[0][1]: number for number, socket in self._tcp.items() if socket.listens}
        return tables

    def listener(self, port: int) -> int | None:
        """Return the inode of a local listener at a port.

        The newest table is used.
        """
        return self._listeners.get(port)

    def of(self, now: float, inode: int) -> int | None:
        """Return the peer inode of any socket with a local peer."""
        peer = self.local(now, inode)
        found = self.tcp(now, inode) if peer is None else None
        return peer if found is None else found[1]


def address_words(address: tuple[bytes, int]) -> str:
    """Format a socket address for people: ``10.0.0.7:443``."""
    import ipaddress

    host = ipaddress.ip_address(address[0])
    host = getattr(host, "ipv4_mapped", None) or host
    return f"[{host}]:{address[1]}" if host.version == 6 else f"{host}:{address[1]}"


def _opened() -> socket:
    import socket

    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG)
    netlink.settimeout(_PATIENCE_S)
    return netlink


def _dump(netlink: socket, kind: int, request: bytes, flags: int = _REQUEST_DUMP) -> Iterator[memoryview]:
    """Yield the payload of each message of one dump.

    Raises OSError, also for a dump that does not end in time.
    """
    netlink.sendto(_HEADER.pack(_HEADER.size + len(request), kind, flags, 1, 0) + request, (0, 0))
    until = time.monotonic() + _PATIENCE_S
    while True:
        if time.monotonic() > until:
            raise TimeoutError(110, "the dump does not end")
        data = memoryview(netlink.recv(_BUFFER))
        at = 0
        while at + _HEADER.size <= len(data):
            length, answer, _, _, _ = _HEADER.unpack_from(data, at)
            if answer == _DONE:
                return
            if answer == _ERROR or length < _HEADER.size or at + length > len(data):
                raise OSError(95, "sock_diag is refused")
            yield data[at + _HEADER.size : at + length]
            at += (length + 3) & ~3


def _tcp(message: memoryview) -> tuple[int, TcpSocket] | None:
    """Parse one ``inet_diag_msg`` into (inode, socket)."""
    if len(message) < 72:
        return None
    state = message[1]
    source, destination = struct.unpack_from(">HH", message, 4)
    width = 4 if message[0] == _AF_INET else 16
    ends = (bytes(message[8 : 8 + width]), source), (bytes(message[24 : 24 + width]), destination)
    inode = struct.unpack_from("=I", message, 68)[0]
    info = _attribute(message, 72, _INFO)
    received = 0
    if info is not None and len(info) >= _RECEIVED_AT + 8:
        received = struct.unpack_from("=Q", info, _RECEIVED_AT)[0]
    return inode, TcpSocket(state == _LISTEN, received, ends)


def _attribute(message: memoryview, at: int, attribute: int) -> memoryview | None:
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        if length < _ATTRIBUTE.size:
            return None
        if kind == attribute:
            return message[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
    return None


# Pipes and sockets of a process by inode, from the links of /proc/PID/fd only: they connect it to others.

MOST_DESCRIPTORS = 1024
"""Limit of open files that are read of one process."""
HELD_AGAIN_S = 20.0
"""Lifetime of a cached list of inodes."""
MOST_REMEMBERED = 2048
READ_AT_ONCE = 64
"""Limit of processes whose open files are read in one round; the rest waits for the next."""
DENIED_FDS = "its open files are closed to this user"


class HeldInodes(Struct, frozen=True):
    """Inodes of a process's pipes, by open end, and of its sockets.

    Pipes used as standard input, output and error are ``standard``. Named pipes are left out: their links look like
    those to any other file, and following one might never return.
    """

    reads: frozenset[int]
    writes: frozenset[int]
    sockets: frozenset[int]
    standard: frozenset[int]


def held(proc: str, pid: int) -> HeldInodes | None:
    """Return a process's pipes and sockets.

    None if the process has ended or its open files are not readable.
    """
    directory = f"{proc}/{pid}/fd"
    reads: set[int] = set()
    writes: set[int] = set()
    sockets: set[int] = set()
    standard: set[int] = set()
    try:
        names = os.listdir(directory)
    except OSError:
        return None
    for name in names[:MOST_DESCRIPTORS]:
        path = f"{directory}/{name}"
        try:
            target = os.readlink(path)
            if target.startswith("socket:["):
                sockets.add(int(target[8:-1]))
            elif target.startswith("pipe:["):
                inode, mode = int(target[6:-1]), os.lstat(path).st_mode
                if mode & S_IRUSR:
                    reads.add(inode)
                if mode & S_IWUSR:
                    writes.add(inode)
                if name in ("0", "1", "2"):
                    standard.add(inode)
        except (OSError, ValueError):
            continue
    return HeldInodes(frozenset(reads), frozenset(writes), frozenset(sockets), frozenset(standard))


class HeldInodesCache:
    """Cache of many processes' inodes, read a few at a time."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._held_by_pid: dict[int, tuple[float, HeldInodes | None]] = {}
        self._reads_left = 0

    def forget(self, pid: int) -> None:
        """Forget an exited process."""
        self._held_by_pid.pop(pid, None)

    def begin(self) -> None:
        """Begin a new round, with a new limit of reads."""
        self._reads_left = READ_AT_ONCE

    def of(self, now: float, pid: int, again_s: float = HELD_AGAIN_S) -> HeldInodes | None:
        """Return a process's pipes and sockets, as last read.

        None if they were not read yet or are not readable. A list older than ``again_s`` is read again. ``now`` is
        monotonic.
        """
        cached = self._held_by_pid.get(pid)
        if cached is not None and now - cached[0] < again_s:
            return cached[1]
        if self._reads_left <= 0:
            return None if cached is None else cached[1]
        self._reads_left -= 1
        self._held_by_pid.pop(pid, None)
        while len(self._held_by_pid) >= MOST_REMEMBERED:
            # Evict the oldest entry.
            del self._held_by_pid[next(iter(self._held_by_pid))]
        cached = self._held_by_pid[pid] = now, held(self._proc, pid)
        return cached[1]


# Receive rates of TCP sockets, and listeners, by process.
#
# The socket table is dumped every few seconds at most, and open files are read in turns.

LEAST_RX = 1000.0
"""Least rate that counts as data, in bytes per second: heartbeats of a job's own connections are below [judged]."""
FIRST_DUMP_S, DUMP_S = 1.0, 5.0
FIRST_LOOKS = 6
"""Number of readings in quick succession at first, so that a verdict need not wait for them."""
KEPT_S = 30.0
MOST_ASKED = 16
"""Limit of processes whose open files are read for one dump."""
OTHER_NETWORK = "its sockets are in another network namespace"


class SocketNews(Struct, frozen=True):
    """State of one process's sockets at one reading.

    ``at`` is monotonic s. ``rx_bytes_per_s`` is None until two readings, or with a ``reason``.
    """

    at: float
    rx_bytes_per_s: float | None = None
    listens: bool = False
    reason: str | None = None
    fresh_looks: int = 0
    """Number of recent readings with a new connection, as with one per request. At most 4."""
    bare_looks: int = 0
    """Consecutive readings without any TCP socket, own or inherited."""
    asks_root: bool = False
    """Whether the process is a client of its own GPU process: it then waits for the GPU's answer."""
    looks: int = 1
    """Number of readings of its sockets."""
    received: Mapping[int, int] = {}
    """Received bytes of its own connections, by inode."""


class Received:
    """Tracks received bytes of processes by pid.

    ``read`` is cheap while no dump is due.
    """

    def __init__(self, proc: str, ends: OtherEnds) -> None:
        self._proc = proc
        self._ends = ends
        self._news: dict[int, SocketNews] = {}
        self._dumped_at: float | None = None

    def read(self, now: float, pids: Sequence[int], roots: Mapping[int, int]) -> None:
        """Update some of ``pids``.

        ``roots`` maps each pid to its GPU process, whose sockets its workers inherit.
        """
        is_new = any(pid not in self._news or self._news[pid].looks < FIRST_LOOKS for pid in pids)
        wait = FIRST_DUMP_S if is_new else DUMP_S
        if self._dumped_at is not None and 0.0 <= now - self._dumped_at < 0.95 * wait:
            return
        self._dumped_at = now
        tables = self._ends.dump(now)
        # Results of a process outside ``pids`` are kept for a while: it may be requested again.
        self._news = {pid: news for pid, news in self._news.items() if pid in pids or now - news.at < KEPT_S}
        inherited: dict[int, frozenset[int]] = {}
        for pid in sorted(pids, key=lambda pid: self._news[pid].at if pid in self._news else -1.0)[:MOST_ASKED]:
            root = roots.get(pid, pid)
            if root != pid and root not in inherited:
                parent = held(self._proc, root)
                inherited[root] = frozenset() if parent is None else parent.sockets
            self._news[pid] = self._look(now, pid, inherited.get(root, frozenset()), tables, self._news.get(pid))

    def forget(self, pids: Collection[int]) -> None:
        """Forget exited processes."""
        self._news = {pid: news for pid, news in self._news.items() if pid not in pids}

    def of(self, pid: int) -> SocketNews | None:
        """Return the state of a process's sockets; None before the first reading."""
        return self._news.get(pid)

    def _look(
        self, now: float, pid: int, inherited: frozenset[int], tables: SocketTables, before: SocketNews | None
    ) -> SocketNews:
        """Read the sockets of one process.

        ``inherited``: a forked worker also holds its parent's sockets, whose received bytes are not its own.
        """
        tcp, looks = tables.tcp, 1 if before is None else before.looks + 1
        if not tcp and tables.reason:
            return SocketNews(now, reason=tables.reason, looks=looks)
        mine = held(self._proc, pid)
        if mine is None:
            return SocketNews(now, reason=DENIED_FDS, looks=looks)
        own = mine.sockets - inherited
        sockets = {inode: tcp[inode] for inode in own if inode in tcp}
        listening = {socket.ends[0][1] for socket in sockets.values() if socket.listens}
        # Data received through a listening socket are requests: demand, not data.
        received = {
            inode: socket.received
            for inode, socket in sockets.items()
            if not socket.listens and not listening & {port for _, port in socket.ends}
        }
        is_hidden = bool(own) and not sockets and in_another_network(self._proc, pid)
        is_bare = not is_hidden and not any(inode in tcp for inode in mine.sockets)
        serves = {tcp[inode].ends[0][1] for inode in inherited if inode in tcp and tcp[inode].listens}
        rate, fresh = None, 0
        if before is not None:
            new = sum(max(0, count - before.received.get(inode, 0)) for inode, count in received.items())
            rate = None if is_hidden else new / (now - before.at) if now > before.at else None
            opened = received.keys() - before.received.keys()
            # A process that opens a connection for each item has none between two of them.
            fresh = before.fresh_looks + (1 if opened else -1 if received or not before.received else 0)
        return SocketNews(
            now,
            rate,
            bool(listening),
            OTHER_NETWORK if is_hidden else None,
            min(4, max(0, fresh)),
            (1 + (0 if before is None else before.bare_looks)) if is_bare else 0,
            any(socket.ends[1][1] in serves for socket in sockets.values()),
            looks,
            received,
        )


def in_another_network(proc: str, pid: int) -> bool:
    """Return whether a process has another network namespace than gputop.

    False also if its namespace is not readable.
    """
    try:
        return os.readlink(f"{proc}/{pid}/ns/net") != os.readlink(f"{proc}/self/ns/net")
    except OSError:
        return False
