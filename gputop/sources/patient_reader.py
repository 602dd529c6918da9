"""Reads of /proc that may never return, on threads that are left behind where they do not.

``cmdline``, ``environ``, ``maps`` and ``smaps`` take the lock of the target's memory, which one of its threads may hold
while it waits for a file system that does not answer. Such a process is set aside; everything else goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from gputop.sources.procfs import read_file

PATIENCE_S = 0.25
"""How long one file is waited for; it normally takes 20 µs."""
MOST_STUCK = 8
"""With so many reads under way that do not return nothing more is read."""


class _Turn:
    """One read and its answer."""

    __slots__ = ("data", "done", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.data: bytes | None = None
        self.done = threading.Event()


class PatientReader:
    """Reads whole files for one thread that must not be kept. ``read`` is called by that thread alone."""

    def __init__(self, read: Callable[[str], bytes] = read_file, patience_s: float = PATIENCE_S) -> None:
        self._read_file = read
        self._patience_s = patience_s
        self._stuck: list[_Turn] = []
        self._queue: SimpleQueue[_Turn | None] | None = None
        """Of the thread that reads; None until one is needed."""

    @property
    def stuck(self) -> tuple[str, ...]:
        """The files whose reading has not returned."""
        self._stuck = [turn for turn in self._stuck if not turn.done.is_set()]
        return tuple(turn.path for turn in self._stuck)

    def read(self, path: str) -> bytes | None:
        """The file; empty where it cannot be read, None where it did not come in time."""
        stuck = self.stuck
        if path in stuck or len(stuck) >= MOST_STUCK:
            return None
        if self._queue is None:
            self._queue = SimpleQueue()
            threading.Thread(target=self._run, args=(self._queue,), name="gputop-patient", daemon=True).start()
        turn = _Turn(path)
        self._queue.put(turn)
        if turn.done.wait(self._patience_s):
            return turn.data
        # The thread ends once its read returns, if it ever does; the next read gets another one.
        self.close()
        self._stuck.append(turn)
        return None

    def close(self) -> None:
        """End the thread after what it reads now."""
        if self._queue is not None:
            self._queue.put(None)
            self._queue = None

    def _run(self, queue: SimpleQueue[_Turn | None]) -> None:
        while (turn := queue.get()) is not None:
            try:
                turn.data = self._read_file(turn.path)
            except OSError:
                turn.data = b""
            turn.done.set()
