"""What a fired alert hands on: the values of placeholders, one JSON object, and a text for people. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gputop.diagnosis.alerts.judge import Change
from gputop.diagnosis.alerts.table import PLACEHOLDER, Alert
from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.secrets import masked_text
from gputop.model.snapshot import GpuSample, ProcessSample, Snapshot
from gputop.model.text import clean_text
from gputop.monitor import Frame
from gputop.report.ticket import ticket_data

_HARMLESS = re.compile(r"[A-Za-z0-9._:/@][A-Za-z0-9._:/@-]*")
"""What a value may be made of: nothing that a program could take for an option or a shell for more than a word."""


class NotHanded(Exception):
    """Why a command is not run: a value that it asks for is missing or not harmless. One line."""


class Firing(Struct, frozen=True):
    """One alert on one GPU. ``values`` gives a text for each placeholder that has one; ``missing`` says why not."""

    alert: Alert
    t: float
    gpu: int | None
    uuid: str
    values: Mapping[str, str]
    missing: Mapping[str, str]
    data: Mapping[str, Any]
    title: str
    body: str

    def argv(self) -> list[str]:
        """The command with its placeholders filled. Raises NotHanded."""
        return [PLACEHOLDER.sub(lambda match: self._value(match[1]), word) for word in self.alert.run]

    def json(self) -> str:
        """The object that the command finds on its stdin."""
        return json.dumps(self.data, ensure_ascii=False) + "\n"

    def _value(self, name: str) -> str:
        value = self.values.get(name)
        if value is None:
            raise NotHanded(f"{{{name}}} has no value: {self.missing.get(name, 'it is not known')}")
        if _HARMLESS.fullmatch(value) is None:
            raise NotHanded(
                f"{{{name}}} is {clean_text(value)[:60]!r}: only letters, digits and . _ : / @ - are handed on"
            )
        return value


def firing_of(change: Change, frame: Frame) -> Firing:
    """What a change hands on, from the frame in which it came about."""
    uuids = [gpu.static.uuid for gpu in frame.snapshot.gpus]
    return gpu_firing(change.alert, change.t, frame, uuids.index(change.uuid), since=change.since)


def gpu_firing(alert: Alert, t: float, frame: Frame, position: int, *, since: float, test: bool = False) -> Firing:
    """An alert on the GPU at a position of the frame."""
    gpu, diagnosis = frame.snapshot.gpus[position], frame.diagnoses[position]
    values, missing = _values(alert, frame.snapshot, gpu, diagnosis)
    data = {
        **ticket_data(frame, position), "alert": alert.name, "when": alert.when.text, "alert_since": since,
        "state": diagnosis.state, "pci": gpu.static.pci_bus_id, "test": test,
    }  # fmt: skip
    host = values["host"]
    title = f"gputop: {alert.name} on {host}, GPU {gpu.static.index}{' (a test)' if test else ''}"
    body = _body(alert, gpu, diagnosis)
    return Firing(alert, t, gpu.static.index, gpu.static.uuid, values, missing, data, clean_text(title), body)


def bare_firing(alert: Alert, t: float, host: str, reason: str) -> Firing:
    """An alert tried by hand where no GPU can be read, for ``reason``."""
    values = {"host": host, "alert": alert.name}
    data = {"schema": 1, "t": t, "host": host, "alert": alert.name, "when": alert.when.text, "test": True}
    names = ("gpu", "uuid", "pci", "verdict", "level", "pid", "job_id")
    title = f"gputop: {alert.name} on {host} (a test)"
    return Firing(alert, t, None, "", values, dict.fromkeys(names, reason), data, clean_text(title), alert.when.text)


def _values(
    alert: Alert, snapshot: Snapshot, gpu: GpuSample, diagnosis: GpuDiagnosis
) -> tuple[dict[str, str], dict[str, str]]:
    processes = [p for p in snapshot.processes if p.gpu == gpu.static.index and p.role == "gpu"]
    pids = {str(process.pid) for process in processes}
    jobs = {job for process in processes if (job := _job_id(process)) is not None}
    found = {
        "host": snapshot.machine.hostname,
        "gpu": str(gpu.static.index),
        "uuid": gpu.static.uuid,
        "pci": gpu.static.pci_bus_id,
        "alert": alert.name,
        "verdict": diagnosis.verdict,
        "level": diagnosis.level,
        **_only(pids, "pid"),
        **_only(jobs, "job_id"),
    }
    missing = {
        "pid": f"{len(pids) or 'no'} processes are on GPU {gpu.static.index}",
        "job_id": f"{len(jobs) or 'no'} batch jobs are on GPU {gpu.static.index}",
        "pci": "the driver does not say",
    }
    return {name: value for name, value in found.items() if value is not None}, missing


def _only(values: set[str], name: str) -> dict[str, str]:
    """The value where there is one: of several the wrong one would be hit."""
    return {name: values.pop()} if len(values) == 1 else {}


def _job_id(process: ProcessSample) -> str | None:
    """``8821`` of ``slurm 8821``."""
    return None if process.static.job is None else process.static.job.rpartition(" ")[2]


def _body(alert: Alert, gpu: GpuSample, diagnosis: GpuDiagnosis) -> str:
    """What proves it and what helps; no command line, because this leaves the machine."""
    lines = [
        f"{alert.when.text}",
        f"{gpu.static.name}: {diagnosis.title}",
        *(f"evidence: {line}" for line in diagnosis.evidence),
        *([f"what helps: {diagnosis.remedy}"] if diagnosis.remedy else ()),
        *(f"also: {badge.evidence}" + (f"; {badge.remedy}" if badge.remedy else "") for badge in diagnosis.badges),
    ]
    return "\n".join(masked_text(clean_text(line)) for line in lines)
