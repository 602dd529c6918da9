"""Feeds a session from a source and keeps the newest frame for readers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from msgspec.structs import replace

from gputop.features.export.metrics_page import ExporterCost, PageChoice, PageReading, metrics_page
from gputop.features.export.run_counters import RunCounters
from gputop.model.snapshot import Snapshot
from gputop.model.source import PassingOn, Source, SourceError, unexpected
from gputop.monitor import Frame
from gputop.output.messages import say
from gputop.session.arrivals import Arrivals
from gputop.session.session import Session
from gputop.sources.marked import Marked
from gputop.sources.step_socket import STEPS_SOCKET, StepListener

STALE_INTERVALS = 2.5
"""A value this many intervals old no longer counts as current."""
RETRY_S = 2.0
"""How often a machine that could not be measured is tried again: GPUs may be given to it while we run."""
_LOOK_S = 1.0
"""How often to check for a stop while no snapshot comes."""


class ExportFeed:
    """One watched run.

    ``run`` belongs to one thread; ``page`` may be called from any other.
    """

    def __init__(
        self,
        session: Session,
        choice: PageChoice,
        clock: Callable[[], float] = time.monotonic,
        *,
        redact: Callable[[Snapshot], Snapshot] | None = None,
    ) -> None:
        """``session`` may have taken snapshots of the past already. ``clock`` is monotonic, in seconds. ``redact`` is
        what each snapshot goes through first."""
        self._session = session
        self._redact = redact
        self._choice = choice
        self._clock = clock
        self._lock = threading.Lock()
        self._counters = RunCounters()
        self._frame: Frame | None = None
        self._lanes: dict[str, dict[str, float | None]] = {}
        self._gpus_at = self._host_at = float("-inf")
        self._gpus_t = 0.0
        self._told: set[str] = set()
        if session.monitor.latest is not None:
            self._keep(session.monitor.latest)

    def run(
        self,
        open_source: Callable[[], Source],
        stop: threading.Event,
        say: Callable[[str], None],
        each_interval: Callable[[], object] | None = None,
    ) -> None:
        """Watch until ``stop`` is set. ``each_interval`` is called once an interval, with or without a new snapshot.

        A source that cannot measure is told to ``say`` once and opened again every two seconds. Raises UsageError for a
        chosen GPU that does not exist.
        """
        last_error = ""
        while not stop.is_set():
            arrivals = Arrivals(open_source())
            try:
                arrivals.start()
                self._watch(arrivals, stop, each_interval)
            except SourceError as error:
                if str(error) != last_error:
                    last_error = str(error)
                    say(f"{last_error}; retrying every {RETRY_S:.0f} s")
                if each_interval is not None:
                    each_interval()
            finally:
                arrivals.source.close()
            stop.wait(RETRY_S)

    def _watch(
        self, arrivals: Arrivals, stop: threading.Event, each_interval: Callable[[], object] | None
    ) -> None:
        due, interval_s = self._clock(), arrivals.source.interval_s
        while not stop.is_set():
            for snapshot in arrivals.wait(min(_LOOK_S, interval_s)):
                self.take(snapshot)
            if each_interval is not None and self._clock() >= due:
                due = max(due + interval_s, self._clock())
                each_interval()

    def take(self, snapshot: Snapshot) -> None:
        """Add one snapshot. What nobody has foreseen in judging it makes the page say that nothing is measured."""
        try:
            self._keep(
                self._session.take(snapshot if self._redact is None else self._redact(snapshot))
            )
        except Exception as error:  # noqa: BLE001 — an exporter goes on for months: scrapes are told, and so is its log
            with self._lock:
                self._gpus_at = self._host_at = float("-inf")
            self._tell(error)

    def _keep(self, frame: Frame) -> None:
        snapshot, now = frame.snapshot, self._clock()
        lanes = {
            gpu.static.uuid: dict(self._session.monitor.lanes(gpu.static.uuid))
            for gpu in snapshot.gpus
        }
        with self._lock:
            self._counters.take(frame)
            self._frame, self._lanes = frame, lanes
            if "nvml" not in snapshot.repeats:
                self._gpus_at, self._gpus_t = now, snapshot.t
            if "proc" not in snapshot.repeats:
                self._host_at = now

    @property
    def has_frame(self) -> bool:
        """Whether anything was measured."""
        return self._frame is not None

    def page(self) -> str:
        """The page of this moment."""
        own_cost = None if self._frame is None else self._frame.snapshot.own
        cost = ExporterCost(time.process_time(), None if own_cost is None else own_cost.rss_bytes)
        with self._lock:
            try:
                return metrics_page(self._reading(), self._counters, cost, self._choice)
            except Exception as error:  # noqa: BLE001 — likewise
                self._tell(error)
                return metrics_page(None, self._counters, cost, PageChoice())

    def _tell(self, error: Exception) -> None:
        """Say once what nobody has foreseen, at each place where it happens."""
        text = unexpected(error)
        if text not in self._told:
            self._told.add(text)
            say(text)

    def _reading(self) -> PageReading | None:
        frame = self._frame
        if frame is None:
            return None
        limit = self._clock() - STALE_INTERVALS * frame.snapshot.interval_s
        return PageReading(
            frame, self._gpus_at >= limit, self._host_at >= limit, self._gpus_t, self._lanes
        )


class Stepped(PassingOn):
    """Adds the steps of the machine's own socket to a source."""

    def __init__(self, source: Source, listener: StepListener) -> None:
        super().__init__(source)
        self._listener = listener

    def passed(self, snapshot: Snapshot) -> Snapshot:
        steps = self._listener.drain()
        return replace(snapshot, steps=(*snapshot.steps, *steps)) if steps else snapshot

    def close(self) -> None:
        super().close()
        self._listener.close()


def with_steps(source: Source, path: str = STEPS_SOCKET) -> Source:
    """Return the source with announced steps.

    All users' steps where the machine's socket can be bound, else this user's.
    """
    try:
        return Stepped(source, StepListener(path))
    except OSError:
        return Marked(source, at_once=True)
