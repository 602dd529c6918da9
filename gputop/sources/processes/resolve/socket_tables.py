"""TCP and Unix sockets by netlink: received bytes, listeners and peers.

No privileges are needed. Formats: sock_diag(7), and linux/inet_diag.h, linux/unix_diag.h, linux/tcp.h
(``tcpi_bytes_received`` is the u64 at offset 128 of ``tcp_info``, since Linux 4.1). The tables belong to gputop's own
network namespace.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import suppress
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
_ASKED_STATES = (
    1 << _ESTABLISHED | 1 << _FIN_WAIT1 | 1 << _FIN_WAIT2 | 1 << _CLOSE_WAIT | 1 << _LISTEN
)
_RECEIVED_AT = 128
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_BUFFER = 1 << 16
_PATIENCE_S = 0.2
DUMP_S = 5.0
"""Least interval between two dumps of a table for sockets that it lacks."""
MOST_SOCKETS = 32768
"""Limit of sockets in one dump: a machine with more is a proxy, and reading on would cost too much."""


class TcpSocket(Struct, frozen=True):
    """One TCP socket.

    ``ends`` are (address, port) of this side and of the other.
    """

    listens: bool
    received: int
    ends: tuple[tuple[bytes, int], tuple[bytes, int]]

    @property
    def own_port(self) -> int:
        """Port of this side."""
        (_, port), _ = self.ends
        return port

    @property
    def peer_port(self) -> int:
        """Port of the other side."""
        _, (_, port) = self.ends
        return port


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
                if read is None:
                    continue
                inode, found = read
                if inode:
                    sockets[inode] = found
                if len(sockets) >= MOST_SOCKETS:
                    return SocketTables(
                        sockets, f"more than {MOST_SOCKETS} sockets: only these were read"
                    )
    except OSError as error:
        return SocketTables(
            {}, f"the kernel's socket table cannot be read: {error.strerror or error}"
        )
    return SocketTables(sockets)


def unix_peer(inode: int) -> int | None:
    """Return the peer inode of a connected Unix socket, or None.

    The kernel is asked for this socket alone: one that lives for a moment is in no table that was read before.
    """
    request = struct.pack("=BBxxIIIII", _AF_UNIX, 0, 0xFFFFFFFF, inode, _SHOW_PEER, _ANY, _ANY)
    with suppress(OSError), _opened() as netlink:
        for message in _dump(netlink, _BY_FAMILY, request, _REQUEST):
            peer = _attribute(message, 16, _PEER) if len(message) >= 16 else None
            return (
                struct.unpack_from("=I", peer)[0] or None
                if peer is not None and len(peer) >= 4
                else None
            )
    return None


class PeerLookup:
    """Cache of the table of TCP sockets.

    It is read rarely, however many sockets there are.
    """

    def __init__(self) -> None:
        self._tcp: dict[int, TcpSocket] = {}
        self._inode_of_ends: dict[tuple[object, object], int] = {}
        self._listeners: dict[int, int] = {}
        self._read_at = float("-inf")

    def tcp(self, now: float, inode: int) -> tuple[TcpSocket, int | None] | None:
        """Return a TCP socket and its local peer's inode.

        The inode is None for a peer on another machine. None if the socket is not in the table. ``now`` is monotonic s.
        """
        if inode not in self._tcp and now - self._read_at >= DUMP_S:
            self.dump(now)
        found = self._tcp.get(inode)
        return None if found is None else (found, self._inode_of_ends.get(found.ends[::-1]))

    def dump(self, now: float) -> SocketTables:
        """Read the table of TCP sockets now."""
        tables = tcp_tables()
        self._read_at, self._tcp = now, tables.tcp
        self._inode_of_ends = {socket.ends: number for number, socket in self._tcp.items()}
        self._listeners = {
            socket.own_port: number for number, socket in self._tcp.items() if socket.listens
        }
        return tables

    def listener(self, port: int) -> int | None:
        """Return the inode of a local listener at a port.

        The newest table is used.
        """
        return self._listeners.get(port)

    def peer_of(self, now: float, inode: int) -> int | None:
        """Return the peer inode of any socket with a local peer."""
        found = self.tcp(now, inode)
        if found is None:
            return unix_peer(inode)
        _, peer = found
        return peer


def address_words(address: tuple[bytes, int]) -> str:
    """Format a socket address for people: ``10.0.0.7:443``."""
    import ipaddress

    packed, port = address
    host = ipaddress.ip_address(packed)
    host = getattr(host, "ipv4_mapped", None) or host
    return f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"


def _opened() -> socket:
    import socket

    netlink = socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG
    )
    netlink.settimeout(_PATIENCE_S)
    return netlink


def _dump(
    netlink: socket, kind: int, request: bytes, flags: int = _REQUEST_DUMP
) -> Iterator[memoryview]:
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
    (inode,) = struct.unpack_from("=I", message, 68)
    info = _attribute(message, 72, _INFO)
    received = 0
    if info is not None and len(info) >= _RECEIVED_AT + 8:
        (received,) = struct.unpack_from("=Q", info, _RECEIVED_AT)
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
