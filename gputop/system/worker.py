"""The threads of gputop: work that may block, done beside the code that needs its result. Knows nothing of the work.

Each is a daemon: none outlives the program or delays its end. None is waited for without a limit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")

AFTER_ERROR_S = 0.1
"""The least time between a turn that failed and the next one, so that no error is met over and over without a pause."""


class Retired(Exception):
    """Raised by work whose thread is no longer wanted: it ends without closing what another now uses."""


class Worker(Generic[T]):
    """Does its work on a thread of its own whenever it is asked to, and by itself where ``again`` says when.

    ``latest`` is what the newest turn gave, and ``error`` what it raised instead, or None: whatever that is, the next
    turn comes. A turn that hangs shows as ``busy_since``, and is left behind when the worker is told to stop.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], T],
        done: Callable[[], object] | None = None,
        *,
        again: float | Callable[[], float | None] | None = None,
        close: Callable[[], object] | None = None,
    ) -> None:
        """The thread, called ``gputop-NAME``, begins with the first ``ask``.

        There, ``done`` is called after each turn, when its result can be read; what it does can wait, and a new turn
        may be asked for during it. ``again`` is after how many seconds the next turn comes unasked, None for never.
        ``close`` is called at the end. What these raise is kept as ``error``, too.
        """
        self.latest: T | None = None
        self.latest_at = 0.0
        """When the newest value came, in monotonic seconds."""
        self.turns = 0
        self.took_s = 0.0
        """How long the newest turn took."""
        self.error: Exception | None = None
        self.busy_since: float | None = None
        """Since when a turn is under way or asked for, in monotonic seconds; None while none is."""
        self.stopping = threading.Event()
        """For work that waits: set once it shall end."""
        self._name, self._work, self._done, self._again, self._close = name, work, done, again, close
        self._asked = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def ask(self) -> None:
        """Ask for a turn; while one is under way, for one more after it. Returns at once, from any thread.

        Raises RuntimeError where no thread can be started.
        """
        if self.stopping.is_set():
            return
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=f"gputop-{self._name}", daemon=True)
                thread.start()
                self._thread = thread
        if self.busy_since is None:
            self.busy_since = monotonic()
        self._asked.set()

    def wake(self) -> None:
        """Ask for a turn now, before it comes by itself; nothing until the first one was asked for."""
        if self._thread is not None:
            self.ask()

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def stop(self, wait_s: float = 0.0) -> None:
        """End after the turn that is under way, and wait for that so long at most. May be called again."""
        self.stopping.set()
        self._asked.set()
        thread = self._thread
        if wait_s > 0.0 and thread is not None and thread is not threading.current_thread():
            thread.join(wait_s)

    def _run(self) -> None:
        pause_s: float | None = None
        with suppress(Retired):
            while True:
                self._asked.wait(pause_s)
                self._asked.clear()
                if self.stopping.is_set():
                    break
                begun = monotonic()
                if self.busy_since is None:
                    self.busy_since = begun
                with self._kept():
                    self.latest = self._work()
                    self.latest_at, self.error = monotonic(), None
                self.took_s = monotonic() - begun
                self.turns += 1
                self.busy_since = None
                pause_s = None if self._again is None else AFTER_ERROR_S
                with self._kept():
                    if self._done is not None:
                        self._done()
                    pause_s = self._again() if callable(self._again) else self._again
                if pause_s is not None and self.error is not None:
                    pause_s = max(pause_s, AFTER_ERROR_S)
            with self._kept():
                if self._close is not None:
                    self._close()

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """What is raised meanwhile is kept as ``error``."""
        try:
            yield
        except Retired:
            raise
        except Exception as error:  # noqa: BLE001 — the last frame of a thread: whatever it is, somebody must read it
            self.error = error


def once(name: str, work: Callable[[], object]) -> Worker[object]:
    """Begin work that is done once, on a thread that then ends. Raises RuntimeError where none can be started."""
    worker = Worker(name, work, lambda: worker.stop())
    worker.ask()
    return worker
