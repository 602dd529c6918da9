"""Command lines as the kernel has them, secrets included: read when asked for by pid, never part of a snapshot."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from gputop.model.inspection import Identity
from gputop.sources.processes.facts import command_text
from gputop.sources.processes.identity import identity_problem
from gputop.sources.procfs import read_file

MOST_KEPT = 4096


class RawCommands:
    """Reads on a thread of its own: the kernel makes a reader wait while the process's memory is locked."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._known: dict[Identity, str | None] = {}
        self._asked: SimpleQueue[Identity] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def command(self, identity: Identity) -> str | None:
        """The command line on one line; None until it has been read, empty where it cannot be. Never waits."""
        if identity not in self._known:
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[identity] = None
            self._asked.put(identity)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gputop-commands", daemon=True)
                self._thread.start()
        return self._known[identity]

    def _run(self) -> None:
        while True:
            identity = self._asked.get()
            self._known[identity] = self._read(identity)

    def _read(self, identity: Identity) -> str:
        try:
            line = read_file(f"{self._proc}/{identity.pid}/cmdline")
        except OSError:
            return ""
        # Read by pid: it counts only if the pid still is the same process.
        if not line or identity_problem(self._proc, identity) is not None:
            return ""
        return command_text(line, b"", mask=False)
