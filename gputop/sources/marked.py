"""Adds the marks and steps of jobs to a source's snapshots."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gputop.model.snapshot import COLLECTORS, Event, Snapshot
from gputop.model.source import PassingOn, Source

if TYPE_CHECKING:
    from gputop.model.steps import StepRow
    from gputop.sources.marks import MarkListener


class Marked(PassingOn):
    """Listens from the second snapshot on, to keep the first frame fast.

    With ``at_once`` it listens before the source is started, for a job that marks its first lines. ``job_began`` (Unix
    time) is the begin of the job whose marks are expected, if any. Steps after the newest snapshot come once more
    after the end, in a snapshot that only repeats that one.
    """

    def __init__(
        self, source: Source, *, at_once: bool = False, job_began: float | None = None
    ) -> None:
        super().__init__(source)
        self._at_once = at_once
        self._job_began = job_began
        self._listener: MarkListener | None = None
        self.late: tuple[Event, ...] = ()
        """Marks that came after the last snapshot; known once the source is closed."""
        self._newest: tuple[Snapshot, float] | None = None
        """The newest snapshot, and when it was passed on."""
        self._deliver: Callable[[Snapshot], object] | None = None
        """Who is given the steps that come after the newest snapshot."""

    def begin(self, wait_s: float) -> Snapshot | None:
        if self._at_once:
            self._listen()
        return super().begin(wait_s)

    async def run(self, deliver: Callable[[Snapshot], object]) -> None:
        self._deliver = deliver
        await super().run(deliver)

    def passed(self, snapshot: Snapshot) -> Snapshot:
        is_first, self._newest = self._newest is None, (snapshot, time.monotonic())
        if self._listener is None:
            if not is_first:
                self._listen()
            return snapshot
        marks = self._listener.drain()
        steps = self._listener.steps()
        if not marks and not steps:
            return snapshot
        return replace(snapshot, events=(*snapshot.events, *marks), steps=(*snapshot.steps, *steps))

    def repeated(self, steps: Sequence[StepRow]) -> Snapshot | None:
        """Return the newest snapshot again with these steps.

        None without either.
        """
        if self._newest is None or not steps:
            return None
        newest, taken = self._newest
        t = newest.t + time.monotonic() - taken
        return replace(newest, t=t, events=(), steps=tuple(steps), repeats=COLLECTORS)

    @property
    def listening(self) -> bool:
        """Whether marks arrive now."""
        return self._listener is not None and self._listener.reason is None

    @property
    def socket_path(self) -> str | None:
        """Return the socket for marks and steps, once it listens."""
        return None if self._listener is None else self._listener.path

    def close(self) -> None:
        super().close()
        if self._listener is not None:
            # They have arrived, and their sender was told so.
            self.late = tuple(self._listener.drain())
            last = self.repeated(self._listener.steps())
            if last is not None and self._deliver is not None:
                self._deliver(last)
            self._listener.close()

    def _listen(self) -> None:
        from gputop.sources.marks import MarkListener

        self._listener = MarkListener(job_began=self._job_began)
