"""Answers about one process on request: environment, threads, stacks, the outcome of a signal.

Frozen data, and the protocol by which a screen asks without knowing who answers. Where something was refused, a
reason says why and what would help; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

# The threads and sockets of one process at one moment, and what reads them: for one screen only, never recorded.


class ThreadSample(Struct, frozen=True):
    """One thread. ``run_pct`` and ``wait_pct`` are time on a core and queued for one, percent of one core.

    Both are None at the first reading and where the kernel keeps no scheduler times; ``waiting_on`` is one of
    ``sources.processes.wait_look``'s words, or None. ``run_ns`` and ``wait_ns`` are the counters that the rates come
    from.
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
    received: Mapping[int, int] = {}


class ThreadList(Struct, frozen=True):
    """The threads that were read, and how many there are in all; ``reason`` says why there are none.

    ``t`` is seconds on the reader's clock. ``sockets`` are those of the whole process; None where it was not asked for.
    """

    t: float
    threads: tuple[ThreadSample, ...] = ()
    total: int = 0
    reason: str | None = None
    sockets: SocketList | None = None


class WatchedThreads(Protocol):
    """Reads the threads of one process when asked to, without ever blocking the caller."""

    @property
    def latest(self) -> ThreadList | None:
        """The newest list; None until the first is read."""

    def ask(self) -> None:
        """Ask for a new reading soon."""

    def close(self) -> None:
        """Stop reading."""


class Relatives(Struct, frozen=True):
    """The parent and the process group of a process, and its start in the kernel's ticks: a pid is used again."""

    parent: int
    group: int
    starttime: int


class ProcessIdentity(Struct, frozen=True):
    """A process that cannot be mistaken for a later one with the same pid. ``starttime`` as in ``ProcessSample``."""

    pid: int
    starttime: int | None


class SignalOutcome(Struct, frozen=True):
    """Whether a signal was sent; ``reason`` says why not, in one line with what would help.

    ``note`` adds a remark about one that was sent.
    """

    identity: ProcessIdentity
    sent: bool
    reason: str = ""
    note: str = ""


class Environment(Struct, frozen=True):
    """The environment that a process was started with, sorted by name; ``reason`` where it cannot be read.

    ``note`` adds a remark, such as that it is simulated.
    """

    identity: ProcessIdentity
    variables: tuple[tuple[str, str], ...] = ()
    reason: str = ""
    note: str = ""


class InspectedThread(Struct, frozen=True):
    """One thread as the kernel shows it. ``channel`` is the kernel function that it sleeps in, where permitted."""

    tid: int
    name: str
    state: str
    waiting_on: str | None = None
    channel: str | None = None


class ThreadStack(Struct, frozen=True):
    """The Python stack of one thread at one moment, innermost frame first: (function, file, line)."""

    frames: tuple[tuple[str, str, int], ...]
    active: bool = False


class InspectedProcess(Struct, frozen=True):
    """Threads of one process, and stacks of its main thread at several moments.

    ``reason`` says why there is no stack, ``help`` what would give one.
    """

    identity: ProcessIdentity
    threads: tuple[InspectedThread, ...] = ()
    stacks: tuple[ThreadStack, ...] = ()
    reason: str = ""
    help: str = ""


class DeepLook(Struct, frozen=True):
    """A process and, where it has one, a loader of it. ``argv`` and ``folder`` are how it was started, if visible.

    ``note`` adds a remark; where ``exists`` is False no command can reach the process.
    """

    process: InspectedProcess
    loader: InspectedProcess | None = None
    argv: tuple[str, ...] = ()
    folder: str | None = None
    note: str = ""
    exists: bool = True


class ProcessAccess(Protocol):
    """Requests to live processes. Every answer is data; nothing raises for a process's doing."""

    def send(self, identity: ProcessIdentity, number: int) -> SignalOutcome:
        """Send a signal, if the process is still the one that was meant."""

    def environment(self, identity: ProcessIdentity) -> Environment:
        """The environment of a process of ours, or of anyone's for root."""

    def look(self, identity: ProcessIdentity, loader: ProcessIdentity | None) -> DeepLook:
        """Look at a process, and one loader of it, for about two seconds. Blocks: never call it on an event loop."""

    def command(self, identity: ProcessIdentity) -> str | None:
        """The command line with its secrets; None until it has been read, empty where it cannot be. Never waits."""

    def watch_threads(self, identity: ProcessIdentity) -> WatchedThreads:
        """A reader of a process's threads, which reads until it is closed."""
