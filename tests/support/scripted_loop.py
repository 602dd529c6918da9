"""A loop by a scripted clock: its time jumps to the next timer. No thread, no waiting."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable
from typing import Any

from gputop.system.awaited import News


class ScriptedLoop(asyncio.SelectorEventLoop):
    """Its time is ``now``, which jumps to the next timer when nothing else is to do."""

    def __init__(self) -> None:
        self.now = 0.0
        loop = self

        class Jumping(selectors.SelectSelector):
            def select(self, timeout: float | None = None) -> Any:
                assert timeout is not None, "nothing would ever happen any more"
                loop.now += timeout
                return super().select(0)

        super().__init__(Jumping())

    def time(self) -> float:
        return self.now


class ScriptedCall:
    """Takes the place of ``Awaited``: each turn lasts as long as ``lasts`` says of the time at which it begins.

    ``lasts`` is given the worker's name and the moment.
    """

    loop: ScriptedLoop
    lasts: Callable[[str, float], float]

    def __init__(self, name: str, work: Callable[[], Any], *, after: Any = None, close: Any = None,
                 news: News, clock: Callable[[], float]) -> None:  # fmt: skip
        self._name, self._work, self._news, self._clock = name, work, news, clock
        self.latest: Any = None
        self.latest_at, self.turns, self._taken = 0.0, 0, 0
        self.error: Exception | None = None
        self.busy_since: float | None = None
        self.stopping = threading.Event()
        self._again = False

    @property
    def has_ended(self) -> bool:
        return self.turns > self._taken

    def ask(self) -> None:
        if self.busy_since is not None:
            self._again = True
            return
        self.busy_since, self._again = self._clock(), False
        made, error = None, None
        try:
            made = self._work()
        except Exception as raised:  # noqa: BLE001
            error = raised
        lasts_s = type(self).lasts(self._name, self._clock())
        self.loop.call_later(lasts_s, self._end, made, error)

    def _end(self, made: Any, error: Exception | None) -> None:
        if self.stopping.is_set():
            return
        self.error = error
        if error is None:
            self.latest, self.latest_at = made, self._clock()
        self.turns, self.busy_since = self.turns + 1, None
        self._news.set()
        if self._again:
            self.ask()

    async def ended(self, wait_s: float, *, unless: Callable[[], bool] | None = None) -> bool:
        end = self._clock() + wait_s
        while not self.has_ended:
            if self._clock() >= end or self.stopping.is_set() or (unless is not None and unless()):
                return False
            await self._news.wait(end - self._clock())
        self._taken = self.turns
        return True

    def stop(self, wait_s: float = 0.0) -> None:
        self.stopping.set()
        self._news.set()
