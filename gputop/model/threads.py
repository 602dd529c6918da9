"""The threads and sockets of one process at one moment, and who reads them: for one screen only, never recorded."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct


class ThreadSample(Struct, frozen=True):
    """One thread. ``run_pct`` and ``wait_pct`` are time on a core and queued for one, percent of one core.

    Both are None at the first reading and where the kernel keeps no scheduler times; ``waiting_on`` is one of
    ``sources.wait_channel``'s words, or None. ``run_ns`` and ``wait_ns`` are the counters that the rates come from.
    """

    tid: int
    name: str
    state: str
    run_pct: float | None = None
    wait_pct: float | None = None
    waiting_on: str | None = None
    run_ns: int | None = None
    wait_ns: int | None = None


class SocketGroup(Struct, frozen=True):
    """TCP sockets of one process that lead to one port, or listen at it.

    ``is_local``: the other end is on this machine. The rate is None at the first reading, and of those that listen.
    """

    port: int
    listens: bool
    is_local: bool
    count: int
    rx_bytes_per_s: float | None = None


class SocketList(Struct, frozen=True):
    """The TCP sockets of one process; ``reason`` says why they cannot be seen. ``received`` is bytes by inode."""

    t: float
    groups: tuple[SocketGroup, ...] = ()
    reason: str | None = None
    received: Mapping[int, int] = MappingProxyType({})


class ThreadList(Struct, frozen=True):
    """The threads that were read, and how many there are in all; ``reason`` says why there are none.

    ``t`` is seconds on the reader's clock. ``sockets`` are those of the whole process; None where nobody asked.
    """

    t: float
    threads: tuple[ThreadSample, ...] = ()
    total: int = 0
    reason: str | None = None
    sockets: SocketList | None = None


class WatchedThreads(Protocol):
    """Reads the threads of one process when asked to, without ever blocking who asks."""

    @property
    def latest(self) -> ThreadList | None:
        """The newest list; None until the first is read."""

    def ask(self) -> None:
        """Ask for a new reading soon."""

    def close(self) -> None:
        """Stop reading."""
