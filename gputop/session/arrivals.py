"""Waits for a source's snapshots; used by every run without a screen."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from gputop.model.snapshot import Snapshot
from gputop.model.source import Source


class Arrivals:
    """The snapshots of one source as they come.

    ``wake`` ends a wait early; a caller's own event may set it, too.
    """

    def __init__(self, source: Source, wake: threading.Event | None = None) -> None:
        self.source = source
        self.wake = wake or threading.Event()

    def start(self) -> None:
        """Begin to measure. Raises what ``source.start`` raises."""
        self.source.start(self.wake.set)

    def new(self) -> Iterator[Snapshot]:
        """Yield every snapshot not taken yet, without waiting."""
        while (snapshot := self.source.poll()) is not None:
            yield snapshot

    def wait(self, most_s: float) -> Iterator[Snapshot]:
        """Wait at most ``most_s`` seconds and yield new snapshots, if any.

        A signal handler sets only a flag of its run: short waits let the run see it.
        """
        self.wake.wait(most_s)
        self.wake.clear()
        yield from self.new()
