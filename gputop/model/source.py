"""The protocol of every source of snapshots, the two errors by which it says that it cannot measure, and the words for
an error that nobody has foreseen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from posixpath import basename
from typing import Protocol

from gputop.model.quantity import clean_text
from gputop.model.snapshot import Event, Snapshot

CLOSE_S = 0.2
"""How long closing a source waits for a driver call that hangs, in seconds."""


class SourceError(Exception):
    """A source that cannot deliver anything. One line: the fault and the fix."""


class UsageError(Exception):
    """A request of the user that cannot be met. One line: the fault and the fix."""


LONGEST_UNEXPECTED = 200
"""Characters that an error's own words may have."""


def unexpected(error: BaseException) -> str:
    """An error that nobody has foreseen, in one line: what it is, and where it was raised."""
    words = f"{type(error).__name__}: {clean_text(str(error))[:LONGEST_UNEXPECTED]}".rstrip(": ")
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = "" if frame is None else f" ({basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno})"
    return f"internal error: {words}{where}"


class Source(Protocol):
    """A source is started once, polled for each snapshot, and closed once.

    ``poll`` never blocks and never raises for what a machine can do to us: trouble is data inside the snapshot.
    """

    interval_s: float

    def start(self, notify: Callable[[], None]) -> None:
        """Begin to measure. ``notify`` is called, from any thread, whenever a new snapshot can be polled.

        Raises SourceError when nothing can ever be measured, UsageError when a chosen GPU does not exist.
        """

    def poll(self) -> Snapshot | None:
        """The oldest snapshot that was not handed out yet, or None. Never blocks."""

    def close(self) -> None:
        """Stop and free everything. Bounded in time even while a driver call hangs."""


class PassingOn:
    """Passes on what another source measured, each snapshot as ``passed`` makes it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.interval_s = source.interval_s

    def start(self, notify: Callable[[], None]) -> None:
        self._source.start(notify)

    def poll(self) -> Snapshot | None:
        snapshot = self._source.poll()
        return None if snapshot is None else self.passed(snapshot)

    def passed(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with what this source adds or hides."""
        raise NotImplementedError

    def close(self) -> None:
        self._source.close()


class MarkedSource(Source, Protocol):
    """A source whose snapshots carry the marks of a job. ``late`` came after the last one; known once it is closed."""

    late: tuple[Event, ...]


class PlayedSource(Source, Protocol):
    """A source whose snapshots lie in the past and can be played; times are Unix seconds."""

    begin: float
    end: float

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
