"""Snapshots and diagnoses in, alerts fired and resolved out. Pure: time enters with the snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from gputop.diagnosis.alerts.table import Alert
from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.snapshot import GAP_INTERVALS, GpuSample, Snapshot

Place = tuple[str, str]
"""An alert's name and a GPU's UUID."""
MOST_GONE = 256
"""GPUs, MIG instances among them, that are no longer there and of which something is remembered."""


class Change(Struct, frozen=True):
    """An alert that fired or was resolved on one GPU at ``t``. ``since`` is when its condition began to hold."""

    kind: Literal["fired", "resolved"]
    t: float
    alert: Alert
    gpu: int
    uuid: str
    since: float


class Standing(Struct):
    """Where one alert stands on one GPU. Times are Unix seconds.

    ``since``: when the condition began to hold, None while it does not; ``seen``: when it last did; ``is_active``: it
    has held for as long as the alert asks.
    """

    gpu: int
    since: float | None = None
    seen: float = 0.0
    is_active: bool = False


class Judge:
    """Judges every alert on every GPU. ``fired`` says when each fired last, and is kept for the silences."""

    def __init__(self, alerts: Sequence[Alert], fired: Mapping[Place, float] | None = None) -> None:
        self.alerts = tuple(alerts)
        self.fired: dict[Place, float] = dict(fired or {})
        self._standing: dict[Place, Standing] = {}
        self._last_t: float | None = None

    def take(self, snapshot: Snapshot, diagnoses: Iterable[GpuDiagnosis]) -> tuple[Change, ...]:
        """What one more snapshot changes, in the order of the alerts and GPUs.

        A snapshot whose GPUs were not read again changes nothing. Where the clock was set back, what held begins anew.
        """
        if self._last_t is not None and snapshot.t <= self._last_t:
            self._standing.clear()
        self._last_t = snapshot.t
        if "nvml" in snapshot.repeats:
            return ()
        pairs = list(zip(snapshot.gpus, diagnoses, strict=False))
        longest_gap = GAP_INTERVALS * snapshot.interval_s
        found = [
            change
            for alert in self.alerts
            for gpu, diagnosis in pairs
            if (change := self._judge(alert, gpu, diagnosis, snapshot.t, longest_gap)) is not None
        ]
        self._forget(snapshot)
        return tuple(found)

    def standing(self, name: str) -> tuple[Standing, ...]:
        """The GPUs on which an alert's condition holds now, by their index."""
        found = [s for (alert, _), s in self._standing.items() if alert == name and s.since is not None]
        return tuple(sorted(found, key=lambda standing: standing.gpu))

    def silent_until(self, alert: Alert) -> float | None:
        """When an alert may fire again that holds and has fired; None where it is not silent."""
        ends = [
            self.fired[place] + alert.again_s
            for place, standing in self._standing.items()
            if place[0] == alert.name and standing.is_active and place in self.fired
        ]
        return min(ends, default=None)

    def _judge(self, alert: Alert, gpu: GpuSample, diagnosis: GpuDiagnosis, t: float, gap: float) -> Change | None:
        place = (alert.name, gpu.static.uuid)
        holds = alert.when.holds(gpu, diagnosis)
        standing = self._standing.get(place)
        if standing is None:
            if not holds:
                return None
            standing = self._standing[place] = Standing(gpu.static.index)
        standing.gpu = gpu.static.index
        if holds is None:
            # Nobody knows: it neither ends nor goes on. What is not known for longer than a gap has to hold anew.
            if not standing.is_active and t - standing.seen > gap:
                standing.since = None
            return None
        if not holds:
            return self._end(place, standing, alert, t)
        if standing.since is None or (not standing.is_active and t - standing.seen > gap):
            standing.since = t
        standing.seen = t
        standing.is_active = standing.is_active or t - standing.since >= alert.for_s
        if not standing.is_active or self._is_silent(place, alert, t):
            return None
        self.fired[place] = t
        return Change("fired", t, alert, standing.gpu, place[1], standing.since)

    def _end(self, place: Place, standing: Standing, alert: Alert, t: float) -> Change | None:
        del self._standing[place]
        if not standing.is_active or standing.since is None:
            return None
        return Change("resolved", t, alert, standing.gpu, place[1], standing.since)

    def _is_silent(self, place: Place, alert: Alert, t: float) -> bool:
        last = self.fired.get(place)
        # On either side: a clock set back by a second must not fire again, one set back by a year must not silence.
        return last is not None and abs(t - last) < alert.again_s

    def _forget(self, snapshot: Snapshot) -> None:
        """MIG instances that are made again have other UUIDs: without an end there would be ever more of them."""
        most = len(self.alerts) * MOST_GONE
        if len(self._standing) <= most and len(self.fired) <= most:
            return
        here = {gpu.static.uuid for gpu in snapshot.gpus}
        for remembered in (self._standing, self.fired):
            for place in [place for place in remembered if place[1] not in here]:
                del remembered[place]
