"""Polls the GPUs through NVML; a call that hangs costs its GPU alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event

from msgspec.structs import replace

from gputop.model.source import SourceError, UsageError
from gputop.sources.activity.choose_sources import SmReaders
from gputop.sources.nvml.gpu_device import GpusReading
from gputop.sources.nvml.nvml_session import NvmlSession
from gputop.system.awaited import Awaited, News

LOOK_AGAIN_S = 0.2
"""How often a call in flight is checked."""
FIRST_RETRY_S, LAST_RETRY_S = 2.0, 60.0
"""Back-off while the driver does not start."""
NOTHING_READ = GpusReading(0.0, (), ())


def never() -> bool:
    """Return False: nothing ends a wait early."""
    return False


class NvmlPoller:
    """Reads all chosen GPUs when asked, on a daemon thread.

    A call that does not return within ``hung_s`` is set aside with its GPU: a new thread goes on with the others, and
    the old one hands its GPU back when the call returns. ``reading`` is the newest one, from whichever thread.
    """

    def __init__(
        self,
        session: NvmlSession,
        sm_readers: SmReaders,
        *,
        hung_s: float,
        unix_time: Callable[[], float],
        news: News,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` gives monotonic seconds; ``news`` are set at each end of a reading."""
        self.session = session
        self.sm_readers = sm_readers
        self.failure: SourceError | UsageError | None = None
        """Why the GPUs cannot be read at all; None while they can."""
        self.looked = Event()
        """Set by the first attempt to find the GPUs."""
        self.reading: GpusReading | None = None
        self.readings = 0
        """How often all GPUs were read."""
        self.reading_at = clock()
        """When the newest reading ended, else when the poller was made, monotonic s."""
        self.hung_s, self._unix_time = hung_s, unix_time
        self._news, self._clock = news, clock
        self._retry_at, self._retry_s = float("-inf"), FIRST_RETRY_S
        self._call = self._new_call(session.ticket)

    @property
    def busy_since(self) -> float | None:
        """Return since when a reading is under way, monotonic s."""
        return self._call.busy_since

    @property
    def error(self) -> Exception | None:
        """Return what the newest reading raised, or None."""
        return self._call.error

    @property
    def has_ended(self) -> bool:
        """Whether a reading has ended that ``reads`` has not taken yet."""
        return self._call.has_ended

    @property
    def has_begun(self) -> bool:
        """Whether a first reading has ended."""
        return self._call.turns > 0

    @property
    def rests(self) -> bool:
        """Whether the driver is left alone for a while, since it does not start."""
        return self._clock() < self._retry_at

    def ask(self) -> None:
        """Start a reading."""
        self._call.ask()

    async def reads(self, until: float, unless: Callable[[], bool] = never) -> bool:
        """Wait for the end of a reading and take it.

        False at monotonic ``until``, as soon as ``unless`` says so, and once the poller is stopped.
        """
        while True:
            left_s = until - self._clock()
            if self._call.busy_since is not None:
                left_s = min(left_s, LOOK_AGAIN_S)
            if await self._call.ended(left_s, unless=unless):
                self._take()
                return True
            self.set_hung_call_aside()
            if self._clock() >= until or self._call.stopping.is_set():
                return False
            if unless():
                return False

    def set_hung_call_aside(self) -> None:
        """Go on with a new thread where a GPU's call hangs, without that GPU."""
        ticket = self.session.supersede(self.hung_s)
        if ticket is not None:
            self._call = self._new_call(ticket)
            self._call.ask()

    def stop(self, wait_s: float = 0.0) -> None:
        """End the thread; wait at most ``wait_s`` for it."""
        self._call.stop(wait_s)

    def _take(self) -> None:
        error = self._call.error
        if error is None:
            self.reading, self.reading_at = self._call.latest, self._call.latest_at
            self.readings += 1
            self._retry_s = FIRST_RETRY_S
        elif isinstance(error, SourceError):
            self._retry_at = self._clock() + self._retry_s
            self._retry_s = min(LAST_RETRY_S, 2 * self._retry_s)

    def _new_call(self, ticket: int) -> Awaited[GpusReading]:
        """Return a thread that reads by this ticket of the session."""

        def ask_seldom() -> None:
            # What no picture waits for comes after the reading is handed over.
            if not call.stopping.is_set():
                self.session.ask_seldom(ticket, self._unix_time())

        call: Awaited[GpusReading] = Awaited(
            "nvml",
            lambda: self.read(ticket),
            after=ask_seldom,
            close=self.session.close,
            news=self._news,
            clock=self._clock,
        )
        return call

    def read(self, ticket: int) -> GpusReading:
        """Read all chosen GPUs; on the thread of the ticket.

        Raises SourceError, UsageError, and Retired when another thread has taken over.
        """
        session = self.session
        if not session.ready:
            try:
                session.look(ticket, self._unix_time())
            except (SourceError, UsageError) as failure:
                self.failure = failure
                raise
            finally:
                self.looked.set()
            self.failure = None
        reading = session.read(ticket, self._unix_time())
        awaits_activity = self.sm_readers.awaits_activity(reading.gpus)
        return replace(reading, awaits_activity=True) if awaits_activity else reading
