"""A scripted source: a test says what each poll gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gputop.model.snapshot import Snapshot
from gputop.system.awaited import News

AGAIN_S = 0.005


class PolledSource:
    """Asks ``poll`` again and again until it is closed, and delivers what that gives."""

    interval_s = 1.0

    def __init__(self) -> None:
        self.closed = False

    def poll(self) -> Snapshot | None:
        """What is there now; None for nothing."""
        raise NotImplementedError

    def begin(self, wait_s: float) -> Snapshot | None:
        return self.poll()

    async def run(self, deliver: Callable[[Snapshot], object]) -> None:
        news = News()
        while not self.closed:
            if (snapshot := self.poll()) is not None:
                deliver(snapshot)
            else:
                await news.wait(AGAIN_S)

    def close(self) -> None:
        self.closed = True


def polls(source: Any, count: int) -> list[Snapshot]:
    """The first snapshots that a source delivers, its first one included."""
    from gputop.session.arrivals import Arrivals
    from tests.support.waiting import until

    arrivals, seen = Arrivals(source), list[Snapshot]()
    arrivals.start()

    def has_enough() -> bool:
        seen.extend(arrivals.new())
        return len(seen) >= count

    until(has_enough)
    arrivals.end_run()
    return seen
