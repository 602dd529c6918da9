"""A source whose snapshots carry the marks and steps that jobs have sent since the last one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gputop.model.snapshot import Event, Snapshot
from gputop.model.source import PassingOn, Source

if TYPE_CHECKING:
    from gputop.sources.marks import MarkListener


class Marked(PassingOn):
    """Listens from the second snapshot on, so that the first frame does not wait for a socket.

    With ``at_once`` it listens before the source is started, for a job that marks its first lines. ``job_began`` (Unix
    time) is when the job began whose marks are awaited, if there is one.
    """

    def __init__(self, source: Source, *, at_once: bool = False, job_began: float | None = None) -> None:
        super().__init__(source)
        self._at_once = at_once
        self._job_began = job_began
        self._listener: MarkListener | None = None
        self.late: tuple[Event, ...] = ()
        """Marks that came after the last snapshot; known once the source is closed."""
        self._begun = False

    def start(self, notify: Callable[[], None]) -> None:
        if self._at_once:
            self._listen()
        super().start(notify)

    def passed(self, snapshot: Snapshot) -> Snapshot:
        if self._listener is None:
            if self._begun:
                self._listen()
            self._begun = True
            return snapshot
        marks = self._listener.drain()
        steps = self._listener.steps()
        if not marks and not steps:
            return snapshot
        return replace(snapshot, events=(*snapshot.events, *marks), steps=(*snapshot.steps, *steps))

    @property
    def listening(self) -> bool:
        """Whether marks reach it now."""
        return self._listener is not None and self._listener.reason is None

    @property
    def socket_path(self) -> str | None:
        """Where marks and steps are sent to, once it listens."""
        return None if self._listener is None else self._listener.path

    def close(self) -> None:
        super().close()
        if self._listener is not None:
            # They have arrived, and their sender was told so.
            self.late = tuple(self._listener.drain())
            self._listener.close()

    def _listen(self) -> None:
        from gputop.sources.marks import MarkListener

        self._listener = MarkListener(job_began=self._job_began)
