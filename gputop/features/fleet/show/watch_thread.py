"""Keep a fleet's newest frame on a thread, so that no screen waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from gputop.features.fleet.fleet_reading import (
    FleetError,
    FleetReading,
    FleetSource,
    History,
    with_hour,
)
from gputop.features.fleet.judge.fleet_frame import FleetFrame, fleet_frame
from gputop.model.source import unexpected
from gputop.system.worker import Worker


class ShownFrame(Struct, frozen=True):
    """The newest frame, an error, and the history of one host."""

    frame: FleetFrame | None = None
    error: str | None = None
    host: str | None = None
    history: History | None = None


class FleetWatch:
    """Refreshes a fleet until closed. ``shown`` may be read from any thread."""

    def __init__(self, fleet: FleetSource) -> None:
        self.fleet = fleet
        self.shown = ShownFrame()
        self.is_failing = False
        """Whether the last refresh failed: what is shown grows old from then on."""
        self._notify: Callable[[], object] = lambda: None
        self._at: float | None = None
        self._in_sight: tuple[tuple[str, ...], str | None] = (), None
        self._heard = monotonic()
        self._details: tuple[str, Mapping[str, Mapping[str, float]]] = "", {}
        self._present: tuple[float, float] | None = None
        self._due, self._asked_at = monotonic(), object()
        self._answered: dict[str, object] = {}
        """What was asked for last of the hosts on screen, of the open one and of the hour."""
        self._worker = Worker(
            "fleet", self._turn, again=lambda: max(0.05, self._due - monotonic()), close=fleet.close
        )

    def start(self, notify: Callable[[], object]) -> None:
        """Begin; ``notify`` is called from the thread whenever ``shown`` has changed."""
        self._notify = notify
        self._worker.ask()

    def close(self) -> None:
        """End soon. A query that hangs is left to its deadline."""
        self._worker.stop()

    @property
    def age_s(self) -> float:
        """Seconds since an answer came."""
        return monotonic() - self._heard

    @property
    def present(self) -> float | None:
        """The fleet's present in Unix time, estimated from its last answer about the present."""
        return None if self._present is None else self._present[0] + monotonic() - self._present[1]

    def go_to(self, at: float | None) -> None:
        """Show the fleet at a Unix time, or the present again."""
        self._at = at
        self._worker.wake()

    def see(self, hosts: tuple[str, ...], host: str | None) -> None:
        """Name the hosts on screen, and the one whose hour is drawn."""
        if (hosts, host) != self._in_sight:
            self._in_sight = hosts, host
            self._worker.wake()

    def _turn(self) -> None:
        """Ask for due answers, for hosts on screen, and for the last hour."""
        at = self._at
        if monotonic() >= self._due or at is not self._asked_at:
            self._guarded(lambda: self._refresh(at))
            self._due, self._asked_at = monotonic() + self.fleet.interval_s, at
        if self.shown.frame is None:
            return
        t, (hosts, host) = self.shown.frame.t, self._in_sight
        self._once("hosts", (hosts, t), lambda: self._look(hosts))
        if host is not None:
            self._once("host", (host, t), lambda: self._read_history(host, t))
        self._once("hour", t, lambda: self._read_hour(t))

    def _once(self, name: str, of: object, work: Callable[[], None]) -> None:
        """Do the work where that is not the last one of its name."""
        if self._answered.get(name) != of and not self._worker.stopping.is_set():
            self._answered[name] = of
            self._guarded(work)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do the work and show any error; no answer ends the screen."""
        try:
            work()
            return
        except FleetError as error:
            text = str(error)
        except Exception as error:  # noqa: BLE001  # an answer that nobody thought of
            text = unexpected(error)
        self._show(replace(self.shown, error=text))

    def _refresh(self, at: float | None) -> None:
        try:
            frame = fleet_frame(self._detailed(self.fleet.ask(at)), self.shown.frame)
        except Exception:
            self.is_failing = True
            raise
        self.is_failing, self._heard = False, monotonic()
        if at is None:
            self._present = (frame.t, self._heard)
        if at is self._at or at == self._at:
            self._show(replace(self.shown, frame=frame, error=None))

    def _read_hour(self, t: float) -> None:
        """Read the last hour unless the newest answer had it."""
        hour, frame = self.fleet.hour(t), self.shown.frame
        if hour is not None and frame is not None and hour != frame.read.hour:
            self._show(replace(self.shown, frame=fleet_frame(with_hour(frame.read, hour), frame)))

    def _look(self, hosts: Sequence[str]) -> None:
        """Read the GPUs of the hosts on screen, where not all are known."""
        gpus = self.fleet.look(hosts, self._at)
        frame = self.shown.frame
        if gpus is not None and frame is not None:
            frame = fleet_frame(self._detailed(replace(frame.read, gpus=gpus)), frame)
            self._show(replace(self.shown, frame=frame))

    def _read_history(self, host: str, t: float) -> None:
        history = self.fleet.history(host, t)
        self._details = host, self.fleet.details(host, self._at)
        frame = self.shown.frame
        if frame is not None:
            frame = fleet_frame(self._detailed(frame.read), frame)
        self._show(replace(self.shown, frame=frame, host=host, history=history))

    def _detailed(self, read: FleetReading) -> FleetReading:
        """The reading with details of the host on screen."""
        host, of = self._details
        if not of:
            return read
        return replace(
            read,
            gpus=[
                replace(gpu, **of.get(gpu.gpu, {})) if gpu.host == host else gpu
                for gpu in read.gpus
            ],
        )

    def _show(self, shown: ShownFrame) -> None:
        self.shown = shown
        if not self._worker.stopping.is_set():
            self._notify()
