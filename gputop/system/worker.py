"""Threads for work that may block.

Each is a daemon: it neither outlives the program nor delays its end, and nobody waits for it without a limit.
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
    """Raised by work on a superseded thread: it ends without closing anything."""


class Worker(Generic[T]):
    """Runs its work on a thread when asked, and every ``again`` seconds.

    ``latest`` is the newest result, ``error`` what the newest turn raised, or None; an error ends no worker. A turn
    that hangs shows as ``busy_since``, and is left behind when the worker is stopped.
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

        There, ``done`` is called after each turn, when its result can be read; it may wait, and a new turn may be
        asked for during it. ``again`` is the time in seconds to the next turn that comes unasked, None for never.
        ``close`` is called at the end. Their exceptions are kept as ``error``, too.
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
        self._name, self._work, self._done, self._again, self._close = (
            name,
            work,
            done,
            again,
            close,
        )
        self._asked = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def ask(self) -> None:
        """Ask for a turn, or for one more after the current one.

        Returns at once, from any thread. Raises RuntimeError where no thread can be started.
        """
        if self.stopping.is_set():
            return
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(
                    target=self._run, name=f"gputop-{self._name}", daemon=True
                )
                thread.start()
                self._thread = thread
        if self.busy_since is None:
            self.busy_since = monotonic()
        self._asked.set()

    def wake(self) -> None:
        """Ask for a turn now, if the worker was asked before."""
        if self._thread is not None:
            self.ask()

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def stop(self, wait_s: float = 0.0) -> None:
        """End after the current turn; wait at most ``wait_s`` for it.

        May be called again.
        """
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
        """Keep an exception of the block as ``error``."""
        try:
            yield
        except Retired:
            raise
        except Exception as error:  # noqa: BLE001 — the last frame of a thread: whatever it is, somebody must read it
            self.error = error


def once(name: str, work: Callable[[], object]) -> Worker[object]:
    """Run work once on a thread that then ends.

    Raises RuntimeError where no thread can be started.
    """
    worker = Worker(name, work, lambda: worker.stop())
    worker.ask()
    return worker
