"""A source whose snapshots carry the steps that every user's jobs announce, for an exporter of a whole node."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from gputop.model.snapshot import Snapshot
from gputop.model.source import Source
from gputop.sources.marked import Marked
from gputop.sources.steps import STEPS_SOCKET, StepListener


class Stepped:
    """Passes on what another source measured, with the steps that came on the machine's own socket."""

    def __init__(self, source: Source, listener: StepListener) -> None:
        self._source = source
        self._listener = listener
        self.interval_s = source.interval_s

    def start(self, notify: Callable[[], None]) -> None:
        self._source.start(notify)

    def poll(self) -> Snapshot | None:
        snapshot = self._source.poll()
        steps = () if snapshot is None else self._listener.drain()
        return replace(snapshot, steps=(*snapshot.steps, *steps)) if snapshot is not None and steps else snapshot

    def close(self) -> None:
        self._source.close()
        self._listener.close()


def with_steps(source: Source, path: str = STEPS_SOCKET) -> Source:
    """The source with announced steps: those of all users where the machine's socket can be bound, else of ours.

    Never from both: a job sends to each of them, and every step would count twice.
    """
    try:
        return Stepped(source, StepListener(path))
    except OSError:
        return Marked(source, at_once=True)
