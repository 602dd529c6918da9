"""Reads the fabric on a thread of its own, and only on a machine that has one: an adapter's answer may hang."""

from __future__ import annotations

import os
import time

from gputop.sources.fabric.collector import LOOK_S, FabricCollector
from gputop.sources.fabric.reading import NO_FABRIC, FabricReading, without
from gputop.sources.reader_thread import ReaderThread

EVERY_S = 2.0
HUNG_S = 10.0
"""An answer that takes longer is given up: older values must not be shown as if they were new."""
_NOT_YET = "the ports have not answered yet"


class FabricWatch:
    """``newest`` never blocks. Until there is an adapter nothing is read but the names in one folder, once a minute."""

    def __init__(self, sys: str = "/sys") -> None:
        self._sys = sys
        self._thread: ReaderThread[FabricReading] | None = None
        self._looked_at: float | None = None
        self._asked_at = 0.0

    def newest(self, now: float) -> FabricReading:
        """The newest reading; starts the next one where it is due. ``now`` is monotonic, in seconds."""
        thread = self._thread
        if thread is None:
            thread = self._begin(now)
            if thread is None:
                return without(NO_FABRIC)
        elif not 0.0 <= now - self._asked_at < EVERY_S:
            self._asked_at = now
            thread.ask()
        busy = thread.busy_since
        late = 0.0 if busy is None else time.monotonic() - busy
        if late > HUNG_S:
            return without(f"the ports have not answered for {late:.0f} s")
        if thread.error is not None:
            return without(f"cannot read the ports: {type(thread.error).__name__}")
        return thread.latest or without(_NOT_YET)

    def close(self) -> None:
        """Let the thread end."""
        if self._thread is not None:
            self._thread.stop()

    def _begin(self, now: float) -> ReaderThread[FabricReading] | None:
        if self._looked_at is not None and 0.0 <= now - self._looked_at < LOOK_S:
            return None
        self._looked_at = self._asked_at = now
        try:
            adapters = os.listdir(f"{self._sys}/class/infiniband")
        except OSError:
            adapters = []
        if adapters:
            collector = FabricCollector(self._sys)
            self._thread = ReaderThread("fabric", lambda: collector.read(time.monotonic()), lambda: None)
            self._thread.start()
        return self._thread
