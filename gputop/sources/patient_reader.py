"""Reads files of /proc that may never return."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gputop.sources.procfs import read_file
from gputop.system.worker import Worker

PATIENCE_S = 0.25
"""How long one file is waited for; it normally takes 20 µs."""
MOST_STUCK = 8
"""With so many reads under way that do not return nothing more is read."""


class _Reading:
    """A thread that reads one file at a time."""

    def __init__(self, read: Callable[[str], bytes]) -> None:
        self.path = ""
        self.came = threading.Event()
        self.worker = Worker("patient", lambda: read(self.path), self.came.set)


class PatientReader:
    """Reads files that may never return, for one calling thread.

    ``cmdline``, ``environ``, ``maps`` and ``smaps`` take the lock of the target's memory, which one of its threads may
    hold while it waits for a file system that does not answer. A read that hangs is left behind on its thread.
    """

    def __init__(
        self, read: Callable[[str], bytes] = read_file, patience_s: float = PATIENCE_S
    ) -> None:
        self._read_file = read
        self._patience_s = patience_s
        self._reading: _Reading | None = None
        self._stuck: list[_Reading] = []

    @property
    def stuck(self) -> tuple[str, ...]:
        """Return the files whose reading has not returned."""
        self._stuck = [
            reading for reading in self._stuck if reading.worker.alive and not reading.came.is_set()
        ]
        return tuple(reading.path for reading in self._stuck)

    def read(self, path: str) -> bytes | None:
        """Return the file; empty if unreadable, None if it came too late."""
        stuck = self.stuck
        if path in stuck or len(stuck) >= MOST_STUCK:
            return None
        reading = self._reading = self._reading or _Reading(self._read_file)
        reading.path = path
        reading.came.clear()
        reading.worker.ask()
        if reading.came.wait(self._patience_s):
            return reading.worker.latest if reading.worker.error is None else b""
        # The thread ends once its read returns, if it ever does; the next read gets another one.
        self.close()
        self._stuck.append(reading)
        return None

    def close(self) -> None:
        """End the thread after what it reads now."""
        if self._reading is not None:
            self._reading.worker.stop()
            self._reading = None
