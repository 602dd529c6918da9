"""Which socket received how much, and which of them listen: the kernel's socket tables by netlink, without privileges.

Formats: sock_diag(7), and linux/inet_diag.h, linux/unix_diag.h, linux/tcp.h (``tcpi_bytes_received`` is the u64 at
offset 128 of ``tcp_info``, since Linux 4.1). The tables are those of gputop's own network namespace.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from socket import socket

NETLINK_SOCK_DIAG = 4
_AF_UNIX, _AF_INET = 1, 2
"""As on every Linux; the module ``socket``, 10 ms to load, is not needed before a socket is asked about."""
_TCP_SOCKETS, _BY_FAMILY = 18, 20
_REQUEST_DUMP = 0x301
_DONE, _ERROR = 3, 2
_INFO_EXTENSION = 1 << 1
_INFO, _PEER = 2, 2
_SHOW_PEER = 4
_ESTABLISHED, _CLOSE_WAIT, _LISTEN = 1, 8, 10
_ASKED_STATES = 1 << _ESTABLISHED | 1 << _CLOSE_WAIT | 1 << _LISTEN
_RECEIVED_AT = 128
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_BUFFER = 1 << 16
_PATIENCE_S = 0.2
MOST_SOCKETS = 32768
"""The most sockets read in one dump: a machine with more is a proxy, and reading on would cost too much."""


class TcpSocket(Struct, frozen=True):
    """One TCP socket. ``ends`` are (address, port) of this side and of the other."""

    listens: bool
    received: int
    ends: tuple[tuple[bytes, int], tuple[bytes, int]]


class SocketTables(Struct, frozen=True):
    """TCP sockets by inode; ``reason`` says why there are none. ``t`` is monotonic time."""

    t: float
    tcp: dict[int, TcpSocket]
    reason: str | None = None


def tcp_tables(now: float) -> SocketTables:
    """Established and listening TCP sockets, both address families. Never raises."""
    found: dict[int, TcpSocket] = {}
    try:
        with _opened() as netlink:
            # The older form of the request, which the kernel answers for both address families in one pass.
            request = struct.pack("=BBBB48xII", 0, 0, 0, _INFO_EXTENSION, _ASKED_STATES, 0)
            for message in _dump(netlink, _TCP_SOCKETS, request):
                read = _tcp(message)
                if read is not None and read[0]:
                    found[read[0]] = read[1]
                if len(found) >= MOST_SOCKETS:
                    return SocketTables(now, found, f"more than {MOST_SOCKETS} sockets: only these were read")
    except OSError as error:
        return SocketTables(now, {}, f"the kernel's socket table cannot be read: {error.strerror or error}")
    return SocketTables(now, found)


def unix_peers() -> dict[int, int]:
    """The inode of the other end of each connected Unix socket; empty where the kernel does not tell."""
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


def _opened() -> socket:
    import socket

    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG)
    netlink.settimeout(_PATIENCE_S)
    return netlink


def _dump(netlink: socket, kind: int, request: bytes) -> Iterator[memoryview]:
    """The payload of each message of one dump. Raises OSError, also where it does not end in time."""
    netlink.sendto(_HEADER.pack(_HEADER.size + len(request), kind, _REQUEST_DUMP, 1, 0) + request, (0, 0))
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
    """(inode, socket) of one ``inet_diag_msg``."""
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


def _attribute(message: memoryview, at: int, wanted: int) -> memoryview | None:
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        if length < _ATTRIBUTE.size:
            return None
        if kind == wanted:
            return message[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
    return None
