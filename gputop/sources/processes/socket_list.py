"""The TCP sockets of one process and what they receive, read while a screen shows them."""

from __future__ import annotations

import os

from gputop.model.threads import SocketGroup, SocketList
from gputop.sources.processes.descriptors import DENIED_FDS, held
from gputop.sources.processes.received import OTHER_NETWORK
from gputop.sources.processes.sockets import TcpSocket, tcp_tables

_LOOPBACK = (b"\x7f", bytes(15) + b"\x01", bytes(10) + b"\xff\xff\x7f")
"""Prefixes of loopback addresses: 127.0.0.0/8, ::1, and the former within IPv6."""


def read_sockets(pid: int, before: SocketList | None, now: float, proc: str = "/proc") -> SocketList:
    """The sockets of a process now, with rates since the list ``before``. ``now`` is in seconds."""
    mine = held(proc, pid)
    if mine is None:
        return SocketList(now, reason=DENIED_FDS)
    if not mine.sockets:
        return SocketList(now)
    tables = tcp_tables(now)
    tcp = {inode: tables.tcp[inode] for inode in mine.sockets if inode in tables.tcp}
    if not tcp:
        return SocketList(now, reason=tables.reason or (OTHER_NETWORK if _is_elsewhere(proc, pid) else None))
    received = {inode: socket.received for inode, socket in tcp.items()}
    groups: dict[tuple[int, bool, bool], list[int]] = {}
    for inode, socket in tcp.items():
        groups.setdefault(_group(socket), []).append(inode)
    found = [
        SocketGroup(*key, len(inodes), None if key[1] else _rate(inodes, received, before, now))
        for key, inodes in groups.items()
    ]
    found.sort(key=lambda group: (-(group.rx_bytes_per_s or 0.0), -group.count, group.port))
    return SocketList(now, tuple(found), received=received)


def _group(socket: TcpSocket) -> tuple[int, bool, bool]:
    """(port, whether it listens, whether the other end is on this machine). Addresses are left out for privacy."""
    (_, own_port), (address, port) = socket.ends
    return (own_port if socket.listens else port), socket.listens, address.startswith(_LOOPBACK)


def _rate(inodes: list[int], received: dict[int, int], before: SocketList | None, now: float) -> float | None:
    """Bytes a second since the list before; a socket that is new has received everything since."""
    if before is None or before.reason is not None or now <= before.t:
        return None
    return sum(max(0, received[inode] - before.received.get(inode, 0)) for inode in inodes) / (now - before.t)


def _is_elsewhere(proc: str, pid: int) -> bool:
    try:
        return os.readlink(f"{proc}/{pid}/ns/net") != os.readlink(f"{proc}/self/ns/net")
    except OSError:
        return False
