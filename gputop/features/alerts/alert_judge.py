"""Snapshots and diagnoses in, alerts fired and resolved out. Pure: time enters with the snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.types import GpuDiagnosis
from gputop.features.alerts.alert_table import Alert, group_of, jobs_by_gpu
from gputop.model.snapshot import GAP_INTERVALS, GpuSample, Snapshot

Place = tuple[str, str]
"""An alert's name and whom it acts for, see ``groups.group_of``; a GPU goes by its UUID."""
MOST_GONE = 256
"""How many GPUs (MIG instances included) and jobs are remembered after they are gone."""
_NO_JOBS: frozenset[str] = frozenset()


class AlertChange(Struct, frozen=True):
    """An alert that fired or was resolved at ``t``, on these GPUs by index and UUID. ``since`` is when its condition
    began to hold on the first of them.
    """

    kind: Literal["fired", "resolved"]
    t: float
    alert: Alert
    group: str
    gpus: tuple[int, ...]
    uuids: tuple[str, ...]
    since: float

    @property
    def place(self) -> Place:
        """The key under which its silence is remembered."""
        return (self.alert.name, self.group)


class AlertStanding(Struct):
    """Where one alert stands on one GPU of a group. Times are Unix seconds.

    ``since``: when the condition began to hold, None while it does not; ``seen_t``: when it last did; ``is_active``: it
    has held for as long as the alert asks.
    """

    gpu: int
    group: str
    since: float | None = None
    seen_t: float = 0.0
    is_active: bool = False


Members = list[tuple[GpuSample, AlertStanding | None]]
"""The GPUs of one group, with where the alert stands on each."""


class Judge:
    """Judges every alert on every GPU. ``fired`` says when each fired last, for its silence."""

    def __init__(self, alerts: Sequence[Alert], fired: Mapping[Place, float] | None = None) -> None:
        self.alerts = tuple(alerts)
        self.fired: dict[Place, float] = dict(fired or {})
        self._standing: dict[Place, AlertStanding] = {}
        self._holding: dict[Place, AlertChange] = {}
        """The groups whose condition holds, as they were when it began to."""
        self._needs_jobs = any(alert.per == "job" for alert in self.alerts)
        self._last_t: float | None = None

    def take(self, snapshot: Snapshot, diagnoses: Iterable[GpuDiagnosis]) -> tuple[AlertChange, ...]:
        """What one more snapshot changes, in the order of the alerts and GPUs.

        A snapshot whose GPUs were not read again changes nothing. Where the clock was set back, every condition starts
        over.
        """
        if self._last_t is not None and snapshot.t <= self._last_t:
            self._standing.clear()
            self._holding.clear()
        self._last_t = snapshot.t
        if "nvml" in snapshot.repeats:
            return ()
        pairs = list(zip(snapshot.gpus, diagnoses, strict=False))
        longest_gap = GAP_INTERVALS * snapshot.interval_s
        jobs = jobs_by_gpu(snapshot.processes) if self._needs_jobs else {}
        changes: list[AlertChange] = []
        for alert in self.alerts:
            groups: dict[str, Members] = {}
            for gpu, diagnosis in pairs:
                group = group_of(alert.per, gpu.static.uuid, jobs.get(gpu.static.index, _NO_JOBS))
                standing = self._stand(alert, gpu, diagnosis, group, snapshot.t, longest_gap)
                groups.setdefault(group, []).append((gpu, standing))
            for group, members in groups.items():
                change = self._decide(alert, group, members, snapshot.t)
                if change is not None:
                    changes.append(change)
            if alert.per == "job":
                changes += self._ended(alert, groups, snapshot.t)
        self._forget(snapshot)
        return tuple(changes)

    def standing(self, name: str) -> tuple[AlertStanding, ...]:
        """The GPUs on which an alert's condition holds now, by their index."""
        standings = [s for (alert, _), s in self._standing.items() if alert == name and s.since is not None]
        return tuple(sorted(standings, key=lambda standing: standing.gpu))

    def silent_until(self, alert: Alert) -> float | None:
        """When an alert may fire again that holds and has fired; None where it is not silent."""
        ends = [
            self.fired[place] + alert.again_s
            for place in self._holding
            if place[0] == alert.name and place in self.fired
        ]
        return min(ends, default=None)

    def _stand(
        self, alert: Alert, gpu: GpuSample, diagnosis: GpuDiagnosis, group: str, t: float, gap: float
    ) -> AlertStanding | None:
        """Where the alert stands on one GPU now; None where its condition does not hold."""
        place = (alert.name, gpu.static.uuid)
        holds = alert.when.holds(gpu, diagnosis)
        standing = self._standing.get(place)
        if standing is not None and standing.group != group:
            # Another job has come: what the one before it did is not held against it.
            del self._standing[place]
            standing = None
        if standing is None:
            if not holds:
                return None
            standing = self._standing[place] = AlertStanding(gpu.static.index, group)
        standing.gpu = gpu.static.index
        if holds is None:
            # Unknown: it neither ends nor goes on. After a longer gap it has to hold for its whole time again.
            if not standing.is_active and t - standing.seen_t > gap:
                standing.since = None
            return standing
        if not holds:
            del self._standing[place]
            return None
        if standing.since is None or (not standing.is_active and t - standing.seen_t > gap):
            standing.since = t
        standing.seen_t = t
        standing.is_active = standing.is_active or t - standing.since >= alert.for_s
        return standing

    def _decide(self, alert: Alert, group: str, members: Members, t: float) -> AlertChange | None:
        """Whether the group's alert fires now, or is resolved."""
        place = (alert.name, group)
        active = [(gpu, s) for gpu, s in members if s is not None and s.is_active and s.since is not None]
        if not active or (alert.gpus == "all" and len(active) < len(members)):
            fired = self._holding.pop(place, None)
            return None if fired is None else replace(fired, kind="resolved", t=t)
        change = AlertChange(
            "fired",
            t,
            alert,
            group,
            tuple(gpu.static.index for gpu, _ in active),
            tuple(gpu.static.uuid for gpu, _ in active),
            min(standing.since or t for _, standing in active),
        )
        self._holding.setdefault(place, change)
        seen_now = [standing.seen_t == t for _, standing in active]
        if not (all(seen_now) if alert.gpus == "all" else any(seen_now)) or self._is_silent(place, alert, t):
            return None
        self.fired[place] = t
        return change

    def _ended(self, alert: Alert, groups: Mapping[str, Members], t: float) -> list[AlertChange]:
        """Jobs that held and are gone."""
        gone = [place for place in self._holding if place[0] == alert.name and place[1] not in groups]
        return [replace(self._holding.pop(place), kind="resolved", t=t) for place in gone]

    def _is_silent(self, place: Place, alert: Alert, t: float) -> bool:
        last = self.fired.get(place)
        # In both directions: a clock set back by a second must not fire again, and by a year must not silence.
        return last is not None and abs(t - last) < alert.again_s

    def _forget(self, snapshot: Snapshot) -> None:
        """Jobs come and go, and a recreated MIG instance has another UUID: what is remembered must be bounded."""
        limit = len(self.alerts) * MOST_GONE
        if len(self._standing) <= limit and len(self.fired) <= limit:
            return
        present = {gpu.static.uuid for gpu in snapshot.gpus}
        for place in [place for place in self._standing if place[1] not in present]:
            del self._standing[place]
        present |= {standing.group for standing in self._standing.values()}
        for place in [place for place in self._holding if place[1] not in present]:
            del self._holding[place]
        for place in [place for place in self.fired if place[1] not in present and place not in self._holding]:
            del self.fired[place]


class WouldFire(Struct):
    """One firing in a recording: since when the condition held and until when (None: to the end), Unix seconds.

    ``command`` is what would have been run, secrets masked; ``not_run`` says why it would not.
    """

    alert: str
    gpus: tuple[int, ...]
    uuids: tuple[str, ...]
    t: float
    since: float
    until: float | None = None
    command: tuple[str, ...] = ()
    not_run: str | None = None


class DryRun(Struct, frozen=True):
    """A recording as alerts judge it: the times of its first and last frame, and what would have fired, in order."""

    names: tuple[str, ...]
    begin: float
    end: float
    fired: tuple[WouldFire, ...]
