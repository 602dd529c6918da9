"""What every source of snapshots offers, and how it says that it cannot measure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gputop.model.snapshot import Snapshot


class SourceError(Exception):
    """The source cannot deliver anything. One line of text: what is wrong, how to mend it."""


class UsageError(Exception):
    """What the user asked for does not exist or is malformed. One line of text: what is wrong, how to mend it."""


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
