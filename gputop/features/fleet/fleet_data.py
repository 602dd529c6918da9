"""A fleet's frame as data for scripts: one JSON object, or one CSV row a GPU. Unavailable is null, never 0.

And a fleet with numbers in place of its names, for ``--redact``.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from gputop.diagnosis.catalogue import titles
from gputop.features.fleet.exporter_names import HOST_LABELS, group_of, split_host
from gputop.features.fleet.fleet_frame import FleetFrame, Gpu, GpuGroup, worst_first
from gputop.features.fleet.fleet_reading import (
    AskedFleet,
    FiringAlert,
    FleetError,
    FleetReading,
    GpuReading,
    History,
    JobName,
    LastHour,
)
from gputop.features.fleet.judge import Straggler
from gputop.model.quantity import csv_cell, rounded
from gputop.model.redaction import Redactor

SCHEMA = 1
VALUES = (
    "util_pct", "sm_active_pct", "tensor_active_pct", "dram_active_pct", "graphics_active_pct", "power_w", "temp_c",
    "mem_used_bytes",
)  # fmt: skip
"""Keys of the metric catalogue, in its units."""
DIGITS = 4
"""After the point, of every number."""


def gpu_data(gpu: Gpu) -> dict[str, Any]:
    """One GPU with its state and what decided it. The source of SM activity is the exporter's name, or ``none``."""
    read = gpu.read
    return {
        "gpu": read.gpu,
        "uuid": read.uuid or None,
        "name": read.model or None,
        "names": read.names or None,
        **{key: getattr(read, key) for key in VALUES},
        "gap_pct": gpu.gap_pct,
        "sm_source": "none" if read.sm_active_pct is None else read.names,
        "state": gpu.state,
        "state_by": gpu.by,
        "verdict": read.own_verdict,
        "job": read.job or None,
        "user": read.user or None,
        "step_s": read.step_s,
        "step_wait_s": read.step_wait_s,
    }


def fleet_data(frame: FleetFrame) -> dict[str, Any]:
    """The JSON object of a frame (schema 1); hosts are in the order in which they need attention."""
    read = frame.read
    data = {
        "schema": SCHEMA,
        "t": read.t,
        "source": read.source,
        "names": list(read.names),
        "age_s": read.age_s,
        "counts": dict(frame.counts),
        "hosts_down": sum(down.kind == "down" for down in read.down.values()),
        "hosts_late": sum(down.kind == "late" for down in read.down.values()),
        "hosts_gone": [{"host": host, "gpus": gone.gpus, "age_s": gone.since_s} for host, gone in read.gone.items()],
        "not_work_gpu_h": frame.not_work_gpu_h,
        "not_work_span_s": None if read.hour.lost is None else read.hour.span_s,
        "hosts": [_host(group) for group in sorted(frame.hosts, key=worst_first)],
        "stragglers": [_row(entry) for entry in frame.stragglers],
        "waste": [
            {"job": row.job or None, "user": row.user or None, "cause": row.cause, "gpu_h": row.gpu_h}
            for row in frame.waste
        ],
        "alerts": [_row(entry) for entry in frame.read.alerts],
        "problems": list(frame.problems),
    }
    rounded_data: dict[str, Any] = rounded(data, DIGITS)
    return rounded_data


def _row(entry: Straggler | FiringAlert) -> dict[str, Any]:
    """A struct of the shape that its JSON has; an empty text is null."""
    return {key: None if value == "" else value for key, value in to_builtins(entry, enc_hook=str).items()}


def _host(group: GpuGroup) -> dict[str, Any]:
    return {
        "host": group.name,
        "state": "up" if group.down is None else group.down.kind,
        "age_s": None if group.down is None else group.down.since_s,
        "verdict": group.verdict.state,
        "says": group.verdict.text,
        "job": ", ".join(group.jobs) or None,
        "user": ", ".join(group.users) or None,
        "waste_gpu_h": group.waste_gpu_h,
        "gpu_states": dict(group.counts),
        "gpus": [gpu_data(gpu) for gpu in group.gpus],
    }


def fleet_json(frame: FleetFrame) -> str:
    """``fleet_data`` as one line."""
    return json.dumps(fleet_data(frame), ensure_ascii=False, allow_nan=False) + "\n"


def fleet_csv(frame: FleetFrame) -> str:
    """One row a GPU, hosts in the order in which they need attention; an empty cell is unavailable."""
    rows = [
        rounded({"t": frame.t, "host": group.name, **gpu_data(gpu)}, DIGITS)
        for group in sorted(frame.hosts, key=worst_first)
        for gpu in group.gpus
    ]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([*([list(rows[0])] if rows else []), *(map(csv_cell, row.values()) for row in rows)])
    return out.getvalue()


# A fleet as ``--redact`` shows it: users, hosts, jobs and UUIDs as numbers, before anything is made of a reading.
#
# What a job's number is made of stays together: pods of one training job differ in role and number alone, and stay one
# job, so that stragglers and waste are the same with and without.

SAID = frozenset(("gpu", "mig", "GPU_I_ID", "state", "verdict", "kind", "reason", "xid", "badge", "source", "severity"))
"""Labels of alerts that identify no person or machine; all others become numbers."""
KINDS = frozenset(("job", "pod", "container", "slurm", "pbs", "lsf", "sge", "flux", "htcondor", "kubernetes"))
"""The words before a job's number or name, which identify no person or machine."""
LEAST_HOSTS = 1024
"""How many hosts are remembered at least, however few there are now."""
T = TypeVar("T")
Row = TypeVar("Row", bound=Struct)


class RedactedFleet(AskedFleet):
    """Passes on what another fleet answers, redacted."""

    def __init__(self, fleet: AskedFleet, redactor: Redactor) -> None:
        self._fleet, self._redactor = fleet, redactor
        self._hosts: dict[str, str] = {}
        self._shown: dict[str, str] = {}
        self._fields: Mapping[str, Callable[[Any], Any]] = {
            "host": self._host, "uuid": lambda uuid: redactor.device(uuid) if uuid else "", "job": self._job,
            "user": lambda user: redactor.user(user) or "", "own_verdict": self._verdict, "reason": redactor.text,
            "labels": lambda labels: {name: self._label(name, value) for name, value in labels.items()},
            "source": redactor.text, "gpus": self._rows, "down": self._hosts_rows, "hour": self._row,
            "lost": self._rows, "gone": self._hosts_rows, "shares": self._rows, "missing": self._hosts_rows,
            "alerts": self._rows, "problems": lambda problems: tuple(map(redactor.text, problems)),
        }  # fmt: skip
        """What is hidden of a reading, of its parts and of their rows, by field. A reason may name a host: by then it
        is known as such."""

    @property
    def source(self) -> str:  # type: ignore[override]
        """The engine, without its host."""
        return self._redactor.text(self._fleet.source)

    @property
    def interval_s(self) -> float:  # type: ignore[override]
        return self._fleet.interval_s

    def ask(self, at: float | None = None) -> FleetReading:
        read = self._asked(lambda: self._fleet.ask(at))
        if len(self._shown) > 2 * len({gpu.host for gpu in read.gpus}) + LEAST_HOSTS:
            # The redactor gives returning names the same numbers.
            self._hosts.clear()
            self._shown.clear()
        return replace(self._row(read), opens={}, own_names={}, is_redacted=True)

    def hour(self, t: float) -> LastHour | None:
        hour = self._asked(lambda: self._fleet.hour(t))
        return None if hour is None else self._row(hour)

    def look(self, hosts: Sequence[str], at: float | None) -> Sequence[GpuReading] | None:
        known = [self._hosts[host] for host in hosts if host in self._hosts]
        readings = self._asked(lambda: self._fleet.look(known, at))
        return self._rows(readings)

    def history(self, host: str, t: float) -> History:
        return self._asked(lambda: self._fleet.history(self._hosts.get(host, ""), t))

    def details(self, host: str, at: float | None) -> Mapping[str, Mapping[str, float]]:
        return self._asked(lambda: self._fleet.details(self._hosts.get(host, ""), at))

    def settle(self) -> None:
        self._fleet.settle()

    def close(self) -> None:
        self._fleet.close()

    def _asked(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except FleetError as error:
            raise FleetError(self._redactor.text(str(error))) from None

    def _rows(self, rows: Sequence[Row] | None) -> list[Row] | None:
        return None if rows is None else [self._row(row) for row in rows]

    def _hosts_rows(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        return {self._host(host): self._row(row) if isinstance(row, Struct) else row for host, row in rows.items()}

    def _row(self, row: Row) -> Row:
        hidden = {name: hide(getattr(row, name)) for name, hide in self._fields.items() if hasattr(row, name)}
        return replace(row, **hidden)

    def _host(self, host: str) -> str:
        if host and host not in self._shown:
            shown = self._shown[host] = self._redactor.host(host)
            self._hosts[shown] = host
        return self._shown.get(host, "")

    def _verdict(self, verdict: str | None) -> str | None:
        """A verdict of ours; what else an exporter says there may be a name."""
        return verdict if verdict is None or verdict in titles() else self._redactor.number("verdict", verdict)

    def _job(self, job: JobName) -> JobName:
        """``pod anna-llm-worker-3`` is ``pod job1-worker-3``."""
        cluster = self._redactor.number("cluster", job.cluster) if job.cluster else ""
        if not job.name or job.kind not in KINDS:
            # A word of the exporter's own, which may be a name as well.
            return JobName(self._redactor.number("job", job), cluster=cluster)
        whole = group_of(job).name
        return JobName(job.kind, self._redactor.number("job", whole) + job.name[len(whole) :], cluster)

    def _label(self, name: str, value: str) -> str:
        if name in SAID:
            return value
        if name in HOST_LABELS:
            host, port = split_host(value)
            return self._host(host) + port
        return self._redactor.device(value) if name.lower() == "uuid" else self._redactor.number(name, value)
