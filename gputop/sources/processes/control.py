"""Signals, environments and raw command lines of processes, identified by start time.

A pid may be reused at any moment. A pidfd refers to the process itself: open it first, compare the start time, then
send the signal to the descriptor (pidfd_open(2), Linux 5.3). Environments are read on request and are not kept.
"""

from __future__ import annotations

import errno
import os
import pwd
import signal
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from gputop.model.inspection import DeepLook, Environment, ProcessIdentity, SignalOutcome
from gputop.sources.processes.process_facts import GONE, command_text, identity_problem
from gputop.sources.procfs import read_file
from gputop.system.worker import Worker

if TYPE_CHECKING:
    from gputop.sources.processes.requested_looks import ThreadWatch


# Raw command lines may contain secrets: they are read on request only and never part of a snapshot.

MOST_KEPT = 4096


class RawCommands:
    """Reads raw command lines on its own thread.

    The kernel blocks a reader while the process's memory is locked.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._commands: dict[ProcessIdentity, str | None] = {}
        self._requests: deque[ProcessIdentity] = deque()
        self._worker = Worker("commands", self._read_asked)

    def command(self, identity: ProcessIdentity) -> str | None:
        """Return the command line on one line. Never blocks.

        None until the command line has been read; empty if it is unreadable.
        """
        if identity not in self._commands:
            if len(self._commands) >= MOST_KEPT:
                self._commands.clear()
            self._commands[identity] = None
            self._requests.append(identity)
            self._worker.ask()
        return self._commands[identity]

    def _read_asked(self) -> None:
        while self._requests:
            identity = self._requests.popleft()
            self._commands[identity] = self._read(identity)

    def _read(self, identity: ProcessIdentity) -> str:
        try:
            line = read_file(f"{self._proc}/{identity.pid}/cmdline")
        except OSError:
            return ""
        # The file was opened by pid: the text is valid only if the pid still belongs to the same process.
        if not line or identity_problem(self._proc, identity) is not None:
            return ""
        return command_text(line, b"", mask=False)


LARGEST_ENVIRONMENT = 1 << 20
"""Limit for the size of an environment, in bytes."""


class ProcessControl:
    """Access to this machine's processes.

    ``proc`` is the mount point of /proc.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._commands = RawCommands(proc)

    def send(self, identity: ProcessIdentity, number: int) -> SignalOutcome:
        """Send a signal, if the process still has the same identity."""
        try:
            reason = self._send(identity, number)
        except ProcessLookupError:
            reason = GONE
        except PermissionError:
            reason = f"permission denied: it belongs to {self._owner(identity.pid)}; run gputop as that user or root"
        except OSError as error:
            reason = f"the system refused: {error.strerror}"
        return SignalOutcome(identity, reason is None, reason or "")

    def _send(self, identity: ProcessIdentity, number: int) -> str | None:
        descriptor = _open_process(identity.pid)
        if descriptor is None:
            problem = identity_problem(self._proc, identity)
            if problem is None:
                self._send_without_descriptor(identity.pid, number)
            return problem
        try:
            problem = identity_problem(self._proc, identity)
            if problem is None:
                signal.pidfd_send_signal(descriptor, number)
            return problem
        finally:
            os.close(descriptor)

    @staticmethod
    def _send_without_descriptor(pid: int, number: int) -> None:
        """Send a signal through psutil.

        psutil compares the start time once more, right before the signal.
        """
        import psutil

        try:
            psutil.Process(pid).send_signal(number)
        except psutil.NoSuchProcess:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from None
        except psutil.AccessDenied:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM)) from None

    def command(self, identity: ProcessIdentity) -> str | None:
        """Return the raw command line, secrets included. Never blocks.

        None until the command line has been read; empty if it is unreadable.
        """
        return self._commands.command(identity)

    def watch_threads(self, identity: ProcessIdentity) -> ThreadWatch:
        """Return a reader of a process's threads.

        The reader runs until it is closed.
        """
        from gputop.sources.processes.requested_looks import ThreadWatch

        return ThreadWatch(identity.pid, identity.starttime, self._proc)

    def environment(self, identity: ProcessIdentity) -> Environment:
        """Return the environment of a process.

        Root may read every environment; other users may read their own processes' only.
        """
        problem = identity_problem(self._proc, identity)
        if problem is not None:
            return Environment(identity, reason=problem)
        try:
            with open(f"{self._proc}/{identity.pid}/environ", "rb") as file:
                data = file.read(LARGEST_ENVIRONMENT)
        except PermissionError:
            owner = self._owner(identity.pid)
            return Environment(
                identity, reason=f"the kernel shows it to {owner} and to root only: run gputop as one of them"
            )
        except OSError:
            return Environment(identity, reason=GONE)
        # The file was opened by pid: the data are valid only if the pid still belongs to the same process.
        problem = identity_problem(self._proc, identity)
        if problem is not None:
            return Environment(identity, reason=problem)
        pairs = (entry.decode("utf-8", "replace").partition("=") for entry in data.split(b"\0") if entry)
        variables = tuple(sorted((name, value) for name, _, value in pairs))
        return Environment(identity, variables, "" if variables else "it was started with an empty environment")

    def look(self, identity: ProcessIdentity, loader: ProcessIdentity | None) -> DeepLook:
        """Inspect a process, and one loader of it.

        Blocks for about two seconds: never call it on an event loop.
        """
        from gputop.sources.processes.deep_look import DeepLooker

        return DeepLooker(self._proc).look(identity, loader)

    def _owner(self, pid: int) -> str:
        try:
            uid = os.stat(f"{self._proc}/{pid}").st_uid
        except OSError:
            return "another user"
        with suppress(KeyError):
            return pwd.getpwuid(uid).pw_name
        return f"user {uid}"


def _open_process(pid: int) -> int | None:
    """Return a pidfd of a process. Raises OSError.

    None without the system call (Linux before 5.3, a sandbox, a Python built without it): a short race then remains
    between the identity check and the signal.
    """
    if not hasattr(os, "pidfd_open") or not hasattr(signal, "pidfd_send_signal"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):
            return None
        raise
