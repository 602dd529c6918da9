"""The protocol of every source of snapshots, and the two errors by which it says that it cannot measure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from gputop.model.snapshot import Event, Snapshot

CLOSE_S = 0.2
"""How long closing a source waits for a driver call that hangs, in seconds."""


class SourceError(Exception):
    """The source cannot deliver anything. One line of text: what is wrong, how to fix it."""


class UsageError(Exception):
    """What the user asked for does not exist or is malformed. One line of text: what is wrong, how to fix it."""


class Source(Protocol):
    """A source is started once, polled for the latest snapshot, and closed once.

    ``poll`` never blocks and never raises for what a machine can do to us: trouble is data inside the snapshot.
    """

    interval_s: float

    def start(self, notify: Callable[[], None]) -> None:
        """Begin to measure. ``notify`` is called, from any thread, whenever a new snapshot can be polled.

        Raises SourceError when nothing can ever be measured, UsageError when a chosen GPU does not exist.
        """

    def poll(self) -> Snapshot | None:
        """The newest snapshot that was not handed out yet, or None. Never blocks."""

    def close(self) -> None:
        """Stop and free everything. Bounded in time even while a driver call hangs."""


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
    @property
    def events(self) -> tuple[Event, ...]: ...
    @property
    def events_complete(self) -> bool: ...
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
