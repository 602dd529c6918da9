"""Judges a past on a thread, while a first picture shows and keys are heard."""

from __future__ import annotations

from collections.abc import Iterable

from gputop.monitor import Frame
from gputop.system.awaited import Awaited


class Preparation:
    """Takes ``steps``, one after the other, on a daemon thread; says how far it is.

    ``first`` is the frame to show meanwhile. ``what`` completes "judging …", ``count`` is the number of steps. Nothing
    of the work shows before all of it is done::

        behind = Preparation(sketch, "the last 12 minutes", steps(), 244)
        behind.start()
        while not await behind.ended(0.25):
            say(behind.words())
    """

    def __init__(self, first: Frame, what: str, steps: Iterable[object], count: int) -> None:
        self.first = first
        self._what = what
        self._steps = steps
        self._count = count
        self._done = 0
        self._worker: Awaited[None] = Awaited("preparation", self._work)

    def start(self) -> None:
        """Begin the work."""
        self._worker.ask()

    def _work(self) -> None:
        for _ in self._steps:
            if self._worker.stopping.is_set():
                return
            self._done += 1

    def words(self) -> str:
        """Return the progress: ``judging the last 12 minutes: 40 %``."""
        percent = 100 * self._done // max(1, self._count)
        return f"judging {self._what}: {percent} %"

    async def ended(self, wait_s: float) -> bool:
        """Wait until the work is done, or has failed; False after ``wait_s`` seconds."""
        return await self._worker.ended(wait_s)

    def check(self) -> None:
        """Raise the error of the work, if any."""
        if self._worker.error is not None:
            raise self._worker.error

    def close(self) -> None:
        """Leave the thread behind."""
        self._worker.stop()
