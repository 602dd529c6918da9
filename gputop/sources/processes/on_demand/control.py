"""Signals, environments and raw command lines of processes, identified by start time.

A pid may be reused at any moment. A pidfd refers to the process itself: open it first, compare the start time, then
send the signal to the descriptor (pidfd_open(2), Linux 5.3). Environments are read on request and are not kept.
"""

from __future__ import annotations

import errno
import os
import pwd
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from gputop.model.inspection import DeepLook, Environment, ProcessIdentity, SignalOutcome
from gputop.sources.patient_reader import PatientReader
from gputop.sources.processes.tree.process_facts import GONE, command_text, identity_problem

if TYPE_CHECKING:
    from gputop.sources.processes.on_demand.requested_looks import ThreadWatch


MOST_KEPT = 4096
LARGEST_ENVIRONMENT = 1 << 20
"""Limit for the size of an environment, in bytes."""


class ProcessControl:
    """Access to this machine's processes.

    ``proc`` is the mount point of /proc.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._patient = PatientReader()
        self._commands: dict[ProcessIdentity, str] = {}

    def send(self, identity: ProcessIdentity, number: int) -> SignalOutcome:
        """Send a signal, if the process still has the same identity."""
        try:
            reason = self._send(identity, number)
        except ProcessLookupError:
            reason = GONE
        except PermissionError:
            reason = (
                f"permission denied: it belongs to {self._owner(identity.pid)}; run gputop as that "
                "user or root"
            )
        except OSError as error:
            reason = f"the system refused: {error.strerror}"
        return SignalOutcome(identity, reason is None, reason or "")

    def _send(self, identity: ProcessIdentity, number: int) -> str | None:
        descriptor = _open_process(identity.pid)
        try:
            problem = identity_problem(self._proc, identity)
            if problem is None and descriptor is None:
                os.kill(identity.pid, number)
            elif problem is None and descriptor is not None:
                signal.pidfd_send_signal(descriptor, number)
            return problem
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def command(self, identity: ProcessIdentity) -> str:
        """Return the raw command line, secrets included.

        Empty if it is unreadable. Waits a quarter of a second for a process whose memory is locked.
        """
        if identity not in self._commands:
            if len(self._commands) >= MOST_KEPT:
                self._commands.clear()
            line = self._patient.read(f"{self._proc}/{identity.pid}/cmdline")
            # The file was opened by pid: the text is valid only if the pid still belongs to the same process.
            is_valid = bool(line) and identity_problem(self._proc, identity) is None
            self._commands[identity] = (
                command_text(line or b"", b"", mask=False) if is_valid else ""
            )
        return self._commands[identity]

    def watch_threads(self, identity: ProcessIdentity) -> ThreadWatch:
        """Return a reader of a process's threads.

        The reader runs until it is closed.
        """
        from gputop.sources.processes.on_demand.requested_looks import ThreadWatch

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
                identity,
                reason=f"the kernel shows it to {owner} and to root only: run gputop as one of them",
            )
        except OSError:
            return Environment(identity, reason=GONE)
        # The file was opened by pid: the data are valid only if the pid still belongs to the same process.
        problem = identity_problem(self._proc, identity)
        if problem is not None:
            return Environment(identity, reason=problem)
        pairs = (
            entry.decode("utf-8", "replace").partition("=") for entry in data.split(b"\0") if entry
        )
        variables = tuple(sorted((name, value) for name, _, value in pairs))
        return Environment(
            identity, variables, "" if variables else "it was started with an empty environment"
        )

    def look(self, identity: ProcessIdentity, loader: ProcessIdentity | None) -> DeepLook:
        """Inspect a process, and one loader of it.

        Blocks for about two seconds: never call it on an event loop.
        """
        from gputop.sources.processes.on_demand.deep_look import DeepLooker

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
