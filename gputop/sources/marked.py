"""A source whose snapshots carry the marks that a job sent meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gputop.model.snapshot import Snapshot
from gputop.sources.base import Source

if TYPE_CHECKING:
    from gputop.sources.marks import MarkListener


class Marked:
    """Listens from the second snapshot on: the first frame does not wait for a socket."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._listener: MarkListener | None = None
        self._begun = False
        self.interval_s = source.interval_s

    def start(self, notify: Callable[[], None]) -> None:
        self._source.start(notify)

    def poll(self) -> Snapshot | None:
        snapshot = self._source.poll()
        if snapshot is None:
            return None
        if self._listener is None:
            if self._begun:
                from gputop.sources.marks import MarkListener

                self._listener = MarkListener()
            self._begun = True
            return snapshot
        marks = self._listener.drain()
        return replace(snapshot, events=(*snapshot.events, *marks)) if marks else snapshot

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._source.close()
