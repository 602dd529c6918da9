"""Threads that read what may never answer: nobody waits for one without a limit, and it dies with the process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic
from typing import Generic, TypeVar

from gputop.sources.procfs import read_file

# One blocking source, read on request: the latest value is kept, and a read that hangs shows as ``busy_since``. Knows
# nothing of what it reads.

T = TypeVar("T")


class Retired(Exception):
    """Raised by a read whose thread is no longer wanted: it ends without closing what another now uses."""


class ReaderThread(Generic[T]):
    """Calls ``read`` on its own thread whenever it is asked to.

    ``done`` is called there after each read, then ``after`` for what can wait until the value is handed over, and
    ``close`` once at the end. ``latest`` is the newest value and ``reads`` how many there were; ``error`` is what the
    newest read raised instead, or None.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], T],
        done: Callable[[], None],
        close: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        self.latest: T | None = None
        self.latest_at = 0.0
        self.reads = 0
        self.error: Exception | None = None
        self.busy_since: float | None = None
        self._read = read
        self._done = done
        self._close = close
        self._after = after
        self._asked = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"gputop-{name}", daemon=True)

    def start(self, *, reads: bool = True) -> None:
        """Start the thread and its first read; without ``reads`` that comes when it is asked for."""
        if reads:
            self.ask()
        self._thread.start()

    def ask(self) -> None:
        """Ask for a read. Nothing happens while one is under way."""
        if self.busy_since is None and not self._stopping:
            self.busy_since = monotonic()
            self._asked.set()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the thread after the current read. Returns at once."""
        self._stopping = True
        self._asked.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the end of the thread, at most ``timeout_s``."""
        if self._thread.is_alive():
            self._thread.join(max(0.0, timeout_s))

    def _run(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            if self._stopping:
                break
            try:
                self.latest = self._read()
                self.error = None
                self.latest_at = monotonic()
            except Retired:
                return
            except Exception as error:  # noqa: BLE001 — the last frame of a thread: whatever it is, somebody must read it
                self.error = error
            self.reads += 1
            self.busy_since = None
            self._done()
            if self._after is None or self._stopping:
                continue
            try:
                self._after()
            except Retired:
                return
            except Exception as error:  # noqa: BLE001 — likewise
                self.error = error
        if self._close is not None:
            self._close()


# Reads of /proc that may never return, on threads that are left behind where they do not.
#
# ``cmdline``, ``environ``, ``maps`` and ``smaps`` take the lock of the target's memory, which one of its threads may
# hold while it waits for a file system that does not answer. Such a process is set aside; everything else goes on.

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
