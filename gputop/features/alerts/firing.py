"""Snapshots and diagnoses in, alerts fired and resolved out, with what a fired one passes on: placeholders' values and
a JSON object. Pure: time enters with the snapshots.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.diagnosis_data import verdict_data
from gputop.diagnosis.types import GpuDiagnosis
from gputop.features.alerts.alert_table import PLACEHOLDER, PLACEHOLDERS, Alert, group_of, jobs_by_gpu
from gputop.model.quantity import clean_text, known, which_gpus
from gputop.model.secrets import masked_words
from gputop.model.snapshot import GAP_INTERVALS, GpuSample, Snapshot
from gputop.model.source import SourceError
from gputop.monitor import Frame, Monitor

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
            decided = (self._decide(alert, group, members, snapshot.t) for group, members in groups.items())
            changes += known(decided)
            if alert.per == "job":
                gone = [place for place in self._holding if place[0] == alert.name and place[1] not in groups]
                changes += [replace(self._holding.pop(place), kind="resolved", t=snapshot.t) for place in gone]
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
        holds, index = alert.when.holds(gpu, diagnosis), gpu.static.index
        standing = self._standing.pop(place, None)
        if standing is None or standing.group != group:
            # Another job has come: what the one before it did is not held against it.
            standing = AlertStanding(index, group) if holds else None
        if standing is None or holds is False:
            return None
        self._standing[place] = standing
        standing.gpu = index
        if not standing.is_active and t - standing.seen_t > gap:
            # After a longer gap in what is known it has to hold for its whole time again.
            standing.since = None
        if holds:
            standing.since = t if standing.since is None else standing.since
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
        enough = all if alert.gpus == "all" else any
        last = self.fired.get(place)
        # In both directions: a clock set back by a second must not fire again, and by a year must not silence.
        is_silent = last is not None and abs(t - last) < alert.again_s
        if is_silent or not enough(standing.seen_t == t for _, standing in active):
            return None
        self.fired[place] = t
        return change

    def _forget(self, snapshot: Snapshot) -> None:
        """Jobs come and go, and a recreated MIG instance has another UUID: what is remembered must be bounded."""
        if max(len(self._standing), len(self.fired)) <= len(self.alerts) * MOST_GONE:
            return
        kept = {gpu.static.uuid for gpu in snapshot.gpus}
        self._standing = {place: standing for place, standing in self._standing.items() if place[1] in kept}
        kept |= {standing.group for standing in self._standing.values()}
        self._holding = {place: change for place, change in self._holding.items() if place[1] in kept}
        self.fired = {place: t for place, t in self.fired.items() if place[1] in kept}


# What a firing passes on.

_HARMLESS = re.compile(r"[A-Za-z0-9._:/@][A-Za-z0-9._:/@-]*")
"""Characters allowed in a value: nothing that a program could take for an option or a shell for several words."""

Judged = Sequence[tuple[GpuSample, GpuDiagnosis]]


class NotHanded(Exception):
    """Why a command is not run: a value that it needs is missing or unsafe. One line."""


class Firing(Struct, frozen=True):
    """One alert, on the GPUs of one group. ``values`` gives a text for each placeholder that has one; ``missing`` says
    why not.
    """

    alert: Alert
    t: float
    gpus: tuple[int, ...]
    group: str
    values: Mapping[str, str]
    missing: Mapping[str, str]
    data: Mapping[str, Any]

    def argv(self) -> list[str]:
        """The command with its placeholders filled. Raises NotHanded."""
        return [PLACEHOLDER.sub(lambda match: self._value(match[1]), word) for word in self.alert.run]

    @property
    def where(self) -> str:
        """``GPU 3``, ``GPUs 0-7``; empty where no GPU can be read."""
        return which_gpus(self.gpus) if self.gpus else ""

    def json(self) -> str:
        """The object that the command finds on its stdin."""
        return json.dumps(self.data, ensure_ascii=False) + "\n"

    def _value(self, name: str) -> str:
        value = self.values.get(name)
        if value is None:
            raise NotHanded(f"{{{name}}} has no value: {self.missing.get(name, 'it is not known')}")
        if name != "gpus" and _HARMLESS.fullmatch(value) is None:
            raise NotHanded(
                f"{{{name}}} is {clean_text(value)[:60]!r}: only letters, digits and . _ : / @ - are passed on"
            )
        return value


def firing_of(change: AlertChange, frame: Frame) -> Firing:
    """What a change passes on, from the frame in which it happened."""
    position = {gpu.static.uuid: at for at, gpu in enumerate(frame.snapshot.gpus)}
    return gpus_firing(change, frame, [position[uuid] for uuid in change.uuids])


def gpus_firing(change: AlertChange, frame: Frame, positions: Sequence[int], *, test: bool = False) -> Firing:
    """An alert on the GPUs at these positions of the frame; the first one is described in full."""
    # An alert that never fires needs no words.
    from gputop.output.diagnosis_text import ticket_data

    alert, snapshot = change.alert, frame.snapshot
    gpus = [(snapshot.gpus[position], frame.diagnoses[position]) for position in positions]
    first = gpus[0][0]
    values, missing = _values(alert, snapshot, gpus)
    data = {
        **ticket_data(frame, positions[0]), "alert": alert.name, "when": alert.when.text, "alert_since": change.since,
        "pci": first.static.pci_bus_id, "test": test, "per": alert.per,
        "job_id": values.get("job_id"),
        "gpus": [
            {"gpu": of.index, "uuid": of.uuid, "pci": of.pci_bus_id, **verdict_data(diagnosis)}
            for of, diagnosis in ((gpu.static, diagnosis) for gpu, diagnosis in gpus)
        ],
    }  # fmt: skip
    indices = tuple(gpu.static.index for gpu, _ in gpus)
    return Firing(alert, change.t, indices, change.group, values, missing, data)


def bare_firing(alert: Alert, t: float, host: str, reason: str) -> Firing:
    """An alert tried by hand where no GPU can be read, for ``reason``."""
    values = {"host": host, "alert": alert.name}
    data = {"schema": 1, "t": t, "host": host, "alert": alert.name, "when": alert.when.text, "test": True}
    names = [name for name in PLACEHOLDERS if name not in values]
    return Firing(alert, t, (), "", values, dict.fromkeys(names, reason), data)


def _values(alert: Alert, snapshot: Snapshot, gpus: Judged) -> tuple[dict[str, str], dict[str, str]]:
    """The placeholders' values; those of a single GPU only where there is just one."""
    indices = {gpu.static.index for gpu, _ in gpus}
    processes = [p for p in snapshot.processes if p.gpu in indices and p.role == "gpu"]
    pids = {str(process.pid) for process in processes}
    jobs = {process.static.batch_job.id for process in processes if process.static.batch_job is not None}
    shown = which_gpus(indices)
    values_found: dict[str, str | None] = {
        "host": snapshot.machine.hostname,
        "alert": alert.name,
        "gpus": ",".join(str(gpu.static.index) for gpu, _ in gpus),
        **_only(pids, "pid"),
        **_only(jobs, "job_id"),
    }
    if len(gpus) == 1:
        gpu, diagnosis = gpus[0]
        values_found |= {
            "gpu": str(gpu.static.index), "uuid": gpu.static.uuid, "pci": gpu.static.pci_bus_id,
            "verdict": diagnosis.verdict, "level": diagnosis.level,
        }  # fmt: skip
    several = f"there are {len(gpus)} GPUs"
    missing = {
        "pid": f"{len(pids) or 'no'} processes are on {shown}",
        "job_id": f"{len(jobs) or 'no'} batch jobs are on {shown}",
        "pci": "the driver does not say" if len(gpus) == 1 else several,
        **dict.fromkeys(("gpu", "uuid", "verdict", "level"), several),
    }
    return {name: value for name, value in values_found.items() if value is not None}, missing


def _only(values: set[str], name: str) -> dict[str, str]:
    """The value where there is exactly one: with several, the wrong one might be acted on."""
    return {name: values.pop()} if len(values) == 1 else {}


# A recording judged as a live run is: which alerts would have fired, and what they would have run. Runs nothing.


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


def dry_run(snapshots: Iterable[Snapshot], alerts: Sequence[Alert]) -> DryRun:
    """Judge every snapshot. Raises SourceError where there is none."""
    judge = Judge(alerts)
    monitor: Monitor | None = None
    fired: list[WouldFire] = []
    standing: dict[Place, list[WouldFire]] = {}
    begin = end = 0.0
    for snapshot in snapshots:
        if monitor is None:
            monitor, begin = Monitor(snapshot.interval_s), snapshot.t
        frame, end = monitor.feed(snapshot), snapshot.t
        for change in judge.take(frame.snapshot, frame.diagnoses):
            if change.kind == "fired":
                fired.append(_would_fire(firing_of(change, frame), change))
                standing.setdefault(change.place, []).append(fired[-1])
            else:
                for firing in standing.pop(change.place, ()):
                    firing.until = change.t
    if monitor is None:
        raise SourceError("the recording holds nothing to judge")
    return DryRun(tuple(alert.name for alert in alerts), begin, end, tuple(fired))


def _would_fire(firing: Firing, change: AlertChange) -> WouldFire:
    alert = firing.alert
    would_fire = WouldFire(alert.name, change.gpus, change.uuids, change.t, change.since)
    try:
        would_fire.command = tuple(masked_words(firing.argv())) if alert.run else ()
    except NotHanded as error:
        would_fire.not_run = str(error)
    return would_fire
