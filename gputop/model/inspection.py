"""Inspection of one process: environment, threads, stacks, signals.

Frozen data, and the protocol by which a screen requests them without knowing the implementation. If a request was
refused, a reason says why and what would help; nothing is guessed.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class ThreadSample(Struct, frozen=True):
    """One thread.

    ``run_pct`` and ``wait_pct`` are time on a core and queued for one, percent of one core. Both are None at the first
    reading and where the kernel keeps no scheduler times; ``waiting_on`` is one of ``sources.processes.wait_state``'s
    words, or None, and ``channel`` the kernel function in which the thread sleeps. ``run_ns`` and ``wait_ns`` are the
    counters that the rates come from.
    """

    tid: int
    name: str
    state: str
    run_pct: float | None = None
    wait_pct: float | None = None
    waiting_on: str | None = None
    run_ns: int | None = None
    wait_ns: int | None = None
    channel: str | None = None


class ThreadList(Struct, frozen=True):
    """Threads of one process that were read, and their total number.

    ``reason`` says why there are none. ``t`` is seconds on the reader's clock.
    """

    t: float
    threads: tuple[ThreadSample, ...] = ()
    total: int = 0
    reason: str | None = None


class WatchedThreads(Protocol):
    """Reads the threads of one process on request.

    Never blocks the caller.
    """

    @property
    def latest(self) -> ThreadList | None:
        """The newest list; None until the first is read."""

    def ask(self) -> None:
        """Ask for a new reading soon."""

    def close(self) -> None:
        """Stop reading."""


class Relatives(Struct, frozen=True):
    """Parent, process group and start time of a process.

    The start is in the kernel's ticks and distinguishes reused pids.
    """

    parent: int
    group: int
    starttime: int


class ProcessIdentity(Struct, frozen=True):
    """Process identity that survives reuse of the pid.

    ``starttime`` as in ``ProcessSample``.
    """

    pid: int
    starttime: int | None


class SignalOutcome(Struct, frozen=True):
    """Result of sending a signal.

    If none was sent, ``reason`` says why and what would help, in one line. ``note`` adds a remark about one that was
    sent.
    """

    identity: ProcessIdentity
    sent: bool
    reason: str = ""
    note: str = ""


class Environment(Struct, frozen=True):
    """Environment that a process was started with, sorted by name.

    ``reason`` says why it cannot be read.
    """

    identity: ProcessIdentity
    variables: tuple[tuple[str, str], ...] = ()
    reason: str = ""


class ThreadStack(Struct, frozen=True):
    """Python stack of one thread, innermost frame first.

    A frame is (function, file, line).
    """

    frames: tuple[tuple[str, str, int], ...]
    active: bool = False


class InspectedProcess(Struct, frozen=True):
    """Threads and main-thread stacks of one process.

    The stacks are from several moments. ``reason`` says why there is no stack, ``help`` what would give one.
    """

    identity: ProcessIdentity
    threads: tuple[ThreadSample, ...] = ()
    stacks: tuple[ThreadStack, ...] = ()
    reason: str = ""
    help: str = ""


class DeepLook(Struct, frozen=True):
    """Inspection of a process, and of one of its loaders.

    ``argv`` and ``folder`` are how the process was started, if visible.
    """

    process: InspectedProcess
    loader: InspectedProcess | None = None
    argv: tuple[str, ...] = ()
    folder: str | None = None


class ProcessAccess(Protocol):
    """Requests to live processes.

    Every answer is data; nothing raises because of a process.
    """

    def send(self, identity: ProcessIdentity, number: int) -> SignalOutcome:
        """Send a signal, if the pid was not reused."""

    def environment(self, identity: ProcessIdentity) -> Environment:
        """Return the environment of a process.

        Readable for the user's own processes, or for root.
        """

    def look(self, identity: ProcessIdentity, loader: ProcessIdentity | None) -> DeepLook:
        """Inspect a process and one loader for about two seconds.

        Blocks: never call it on an event loop.
        """

    def command(self, identity: ProcessIdentity) -> str:
        """Return the command line with its secrets; empty if it cannot be read."""

    def watch_threads(self, identity: ProcessIdentity) -> WatchedThreads | None:
        """Return a reader of a process's threads, if they can be read.

        The reader reads until it is closed.
        """
