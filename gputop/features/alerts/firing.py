"""What a fired alert passes on: the values of placeholders, and a JSON object. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gputop.diagnosis.diagnosis_data import verdict_data
from gputop.diagnosis.types import GpuDiagnosis
from gputop.features.alerts.alert_judge import AlertChange, DryRun, Judge, Place, WouldFire
from gputop.features.alerts.alert_table import PLACEHOLDER, PLACEHOLDERS, Alert
from gputop.model.quantity import clean_text, which_gpus
from gputop.model.secrets import masked_words
from gputop.model.snapshot import GpuSample, Snapshot
from gputop.model.source import SourceError
from gputop.monitor import Frame, Monitor
from gputop.report.verdict_data import ticket_data

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
    def place(self) -> Place:
        """What its silence is remembered by."""
        return (self.alert.name, self.group)

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
    alert, snapshot = change.alert, frame.snapshot
    gpus = [(snapshot.gpus[position], frame.diagnoses[position]) for position in positions]
    first = gpus[0][0]
    values, missing = _values(alert, snapshot, gpus)
    data = {
        **ticket_data(frame, positions[0]), "alert": alert.name, "when": alert.when.text, "alert_since": change.since,
        "pci": first.static.pci_bus_id, "test": test, "per": alert.per,
        "job_id": values.get("job_id"), "gpus": [_gpu_data(gpu, d) for gpu, d in gpus],
    }  # fmt: skip
    indices = tuple(gpu.static.index for gpu, _ in gpus)
    return Firing(alert, change.t, indices, change.group, values, missing, data)


def _gpu_data(gpu: GpuSample, diagnosis: GpuDiagnosis) -> dict[str, Any]:
    """One of the GPUs, without what it measures."""
    static = gpu.static
    return {"gpu": static.index, "uuid": static.uuid, "pci": static.pci_bus_id, **verdict_data(diagnosis)}


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
