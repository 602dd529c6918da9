"""Protocol of snapshot sources, and their errors.

Also formats unexpected errors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from posixpath import basename
from typing import Protocol

from gputop.model.clean_text import clean_text
from gputop.model.snapshot import Event, Snapshot

FAST_S, FAST_FOR_S = 0.25, 15.0
"""A live source may be asked to measure so often for so long, so that a first verdict comes soon."""
CLOSE_S = 0.2
"""Seconds that closing a source waits for a hung driver call."""


class SourceError(Exception):
    """Source that cannot deliver anything.

    The message is one line: the fault and the fix.
    """


class UsageError(Exception):
    """User request that cannot be met.

    The message is one line: the fault and the fix.
    """


LONGEST_UNEXPECTED = 200
"""Characters that an error's own words may have."""


def unexpected(error: BaseException) -> str:
    """Format an unexpected error in one line.

    The line names the error, and where it was raised.
    """
    words = f"{type(error).__name__}: {clean_text(str(error))[:LONGEST_UNEXPECTED]}".rstrip(": ")
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = (
        ""
        if frame is None
        else f" ({basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno})"
    )
    return f"internal error: {words}{where}"


class Source(Protocol):
    """Source of snapshots.

    A source is begun once, run, and closed once. It never raises because of the machine after it has begun: trouble is
    data inside the snapshot. Sources import no asyncio: whoever has a loop runs them there, and all others by
    ``session.arrivals.Arrivals``, on a thread::

        first = source.begin(0.5)
        await source.run(show)
    """

    interval_s: float

    def begin(self, wait_s: float) -> Snapshot | None:
        """Begin to measure and wait for the first snapshot.

        None where it does not come within ``wait_s`` seconds. Raises SourceError when nothing can ever be measured,
        UsageError when a chosen GPU does not exist.
        """

    async def run(self, deliver: Callable[[Snapshot], object]) -> None:
        """Deliver each new snapshot, until closed.

        ``deliver`` never waits. A run that is cancelled may be followed by another one.
        """

    def close(self) -> None:
        """Stop and free everything.

        Takes bounded time even while a driver call hangs.
        """


class PassingOn(ABC):
    """Source that changes the snapshots of another source.

    ``passed`` makes the change.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.interval_s = source.interval_s

    def begin(self, wait_s: float) -> Snapshot | None:
        snapshot = self._source.begin(wait_s)
        return None if snapshot is None else self.passed(snapshot)

    async def run(self, deliver: Callable[[Snapshot], object]) -> None:
        await self._source.run(lambda snapshot: deliver(self.passed(snapshot)))

    @abstractmethod
    def passed(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with this source's additions or omissions."""

    def close(self) -> None:
        self._source.close()


class MarkedSource(Source, Protocol):
    """Source whose snapshots carry the marks of a job.

    ``late`` are marks after the last snapshot; known once the source is closed.
    """

    late: tuple[Event, ...]


class PlayedSource(Source, Protocol):
    """Source of past snapshots that can be played.

    Times are Unix seconds. ``next_due`` gives the frame that is due at once, as after a jump, without waiting for
    ``run`` to deliver it; each frame is handed out once.
    """

    begin_t: float
    end_t: float

    def next_due(self) -> Snapshot | None: ...
    @property
    def position(self) -> float: ...
    @property
    def playing(self) -> bool: ...
    @property
    def at_end(self) -> bool: ...
    @property
    def speed(self) -> float: ...
    def play(self) -> None: ...
    def pause(self) -> None: ...
    def set_speed(self, speed: float) -> None: ...
    def seek(self, t: float) -> None: ...
    def to_begin(self) -> None: ...
    def to_end(self) -> None: ...
    def moment(self, text: str) -> float: ...
    def past(self, seconds: float) -> Iterator[Snapshot]: ...
    def step(self, frames: int) -> bool: ...
    def go(self, segment: int, t: float) -> None: ...
    def place(self) -> tuple[int, float]: ...
    def frames(self) -> Iterator[tuple[int, Snapshot]]: ...
