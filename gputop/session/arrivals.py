"""Runs a source without a loop; used by every run without a screen."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

from gputop.model.snapshot import Snapshot
from gputop.model.source import Source
from gputop.system.awaited import RunHere
from gputop.system.worker import Worker, once

START_WAIT_S = 1.0
"""How long the first snapshot is waited for, before it comes like the others."""
END_S = 1.0
"""How long a run that was cancelled is waited for: it waits for nothing but time."""
MOST_WAITING = 600
"""Snapshots kept for a reader that is late: minutes of them. What is older than these is dropped."""


class Arrivals:
    """The snapshots of one source as they come.

    The source runs on a thread of its own, without asyncio. ``wake`` ends a wait early; a caller's own event may set
    it, too.
    """

    def __init__(self, source: Source, wake: threading.Event | None = None) -> None:
        self.source = source
        self.wake = wake or threading.Event()
        self._waiting: deque[Snapshot] = deque(maxlen=MOST_WAITING)
        self._run: RunHere[None] | None = None
        self._thread: Worker[object] | None = None

    def start(self, wait_s: float = START_WAIT_S) -> None:
        """Begin to measure; wait for the first snapshot. Raises what ``source.begin`` raises."""
        first = self.source.begin(wait_s)
        if first is not None:
            self._add(first)
        self._run = RunHere(self.source.run(self._add))
        self._thread = once("pollers", self._run.run)

    def end_run(self) -> None:
        """End the thread: a loop runs the source from now on, or the source is closed.

        A source that another run begins later gives this one nothing any more.
        """
        if self._run is not None and self._thread is not None:
            self._run.cancel()
            self._thread.stop(END_S)

    def new(self) -> Iterator[Snapshot]:
        """Yield every snapshot not taken yet, without waiting for those that come meanwhile."""
        for _ in range(len(self._waiting)):
            yield self._waiting.popleft()

    def wait(self, most_s: float) -> Iterator[Snapshot]:
        """Wait at most ``most_s`` seconds and yield new snapshots, if any.

        A signal handler sets only a flag of its run: short waits let the run see it.
        """
        self.wake.wait(most_s)
        self.wake.clear()
        yield from self.new()

    def _add(self, snapshot: Snapshot) -> None:
        self._waiting.append(snapshot)
        self.wake.set()
