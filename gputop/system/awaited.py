"""Work that may block, awaited with a time limit: in a loop, or on a thread without one.

The same ``async def`` serves a screen, whose loop awaits it, and a command, which runs it by ``run_here`` and never
imports asyncio (44 ms of CPU and 6 MiB)::

    async def readings(call: Awaited[Reading]) -> Reading | None:
        call.ask()
        return call.latest if await call.ended(0.5) else None

    run_here(readings(call))        # on this thread, without a loop
    await readings(call)            # in the screen's loop
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeVar

from gputop.system.worker import Worker

T = TypeVar("T")


class _Pause(NamedTuple):
    """What a coroutine waits for where no loop runs it."""

    event: threading.Event
    wait_s: float

    def __await__(self) -> Generator[_Pause, None, None]:
        yield self


class _Waiter(NamedTuple):
    """Future of a loop that waits for news."""

    loop: Any
    future: Any


class _RunHere(threading.local):
    """Whether this thread runs a coroutine by ``RunHere``."""

    is_active = False


_here = _RunHere()


def _end(future: Any) -> None:
    if not future.done():
        future.set_result(None)


class News:
    """An event that any thread sets and one coroutine awaits."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._waiter: _Waiter | None = None

    def set(self) -> None:
        """End the wait, or the next one."""
        self._event.set()
        waiter = self._waiter
        if waiter is not None:
            # A loop that has ended takes no more calls.
            with suppress(RuntimeError):
                waiter.loop.call_soon_threadsafe(_end, waiter.future)

    async def wait(self, wait_s: float) -> bool:
        """Wait until it is set, at most ``wait_s`` seconds; False if it was not.

        In a loop other tasks have their turn in any case.
        """
        if _here.is_active:
            await _Pause(self._event, max(0.0, wait_s))
        else:
            await self._wait_in_loop(max(0.0, wait_s))
        was_set = self._event.is_set()
        self._event.clear()
        return was_set

    async def _wait_in_loop(self, wait_s: float) -> None:
        # Whoever has a loop has imported asyncio.
        loop = sys.modules["asyncio"].get_running_loop()
        future = loop.create_future()
        self._waiter = _Waiter(loop, future)
        # It may have been set before the waiter was there.
        timer = loop.call_later(0.0 if self._event.is_set() else wait_s, _end, future)
        try:
            await future
        finally:
            timer.cancel()
            self._waiter = None


class RunHere(Generic[T]):
    """Runs a coroutine on the calling thread, until it ends or another thread cancels it."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._has_begun = False
        self._is_cancelled = False
        self._waits_on: threading.Event | None = None

    def run(self) -> T | None:
        """Return what the coroutine returns; None where it was cancelled.

        Raises RuntimeError for a coroutine that awaits anything but ``News`` and ``Awaited``.
        """
        self._has_begun = True
        was_active, _here.is_active = _here.is_active, True
        try:
            while not self._is_cancelled:
                pause = self._coroutine.send(None)
                if not isinstance(pause, _Pause):
                    raise RuntimeError("it awaits something that needs a loop")
                self._waits_on = pause.event
                if not self._is_cancelled:
                    pause.event.wait(pause.wait_s)
            return None
        except StopIteration as end:
            returned: T = end.value
            return returned
        finally:
            self._coroutine.close()
            _here.is_active = was_active

    def cancel(self) -> None:
        """End the coroutine where it waits. Returns at once."""
        self._is_cancelled = True
        if not self._has_begun:
            # Its thread may never come to it, and Python warns of a coroutine that was never awaited.
            self._coroutine.close()
        event = self._waits_on
        if event is not None:
            event.set()


def run_here(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on the calling thread, without a loop.

    It may await ``News`` and ``Awaited`` alone; others raise RuntimeError.
    """
    returned: Any = RunHere(coroutine).run()
    result: T = returned
    return result


class Awaited(Worker[T]):
    """A worker whose turns a coroutine awaits.

    Cancelling the wait leaves the turn running: nobody can end a call into a driver. Never ``asyncio.to_thread`` in
    its place: the threads of an executor are no daemons, and the interpreter waits for them.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], T],
        *,
        after: Callable[[], object] | None = None,
        close: Callable[[], object] | None = None,
        news: News | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """``after`` is called on the thread once a turn was told to whoever awaits it.

        Several workers may share their ``news``, for one coroutine that awaits them one after the other. ``clock``
        gives monotonic seconds.
        """
        super().__init__(name, work, self._tell, close=close)
        self._after = after
        self._news = news or News()
        self._clock = clock
        self._turns_taken = 0

    @property
    def has_ended(self) -> bool:
        """Whether a turn has ended that was not taken yet."""
        return self.turns > self._turns_taken

    async def ended(self, wait_s: float, *, unless: Callable[[], bool] | None = None) -> bool:
        """Wait until a turn has ended that was not taken yet, and take it.

        False after ``wait_s`` seconds, once the worker is stopped, and as soon as ``unless`` says so after news.
        """
        end = self._clock() + wait_s
        while not self.has_ended:
            left_s = end - self._clock()
            if left_s <= 0.0 or self.stopping.is_set():
                return False
            if unless is not None and unless():
                return False
            await self._news.wait(left_s)
        self._turns_taken = self.turns
        return True

    def stop(self, wait_s: float = 0.0) -> None:
        """End after the current turn, and end the wait for it."""
        super().stop()
        self._news.set()
        if wait_s > 0.0:
            super().stop(wait_s)

    def _tell(self) -> None:
        """Tell whoever awaits the turn; on the working thread."""
        self._news.set()
        if self._after is not None:
            self._after()
