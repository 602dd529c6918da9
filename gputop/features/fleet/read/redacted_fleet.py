"""Hide users, hosts, jobs and UUIDs of a fleet behind numbers, for ``--redact``.

Pods of one training job differ in role and number alone, and stay one job, so that stragglers and waste are the same
with and without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.catalogue import titles
from gputop.features.fleet.exporter_names import HOST_LABELS, group_of, split_host
from gputop.features.fleet.fleet_reading import (
    FleetError,
    FleetReading,
    FleetSource,
    GpuReading,
    History,
    JobName,
    LastHour,
)
from gputop.model.redaction import Redactor

SAID = frozenset(
    (
        "gpu",
        "mig",
        "GPU_I_ID",
        "state",
        "verdict",
        "kind",
        "reason",
        "xid",
        "badge",
        "source",
        "severity",
    )
)
"""Labels of alerts that identify no person or machine; all others become numbers."""
KINDS = frozenset(
    ("job", "pod", "container", "slurm", "pbs", "lsf", "sge", "flux", "htcondor", "kubernetes")
)
"""The words before a job's number or name, which identify no person or machine."""
LEAST_HOSTS = 1024
"""How many hosts are remembered at least, however few there are now."""
T = TypeVar("T")
Row = TypeVar("Row", bound=Struct)


class RedactedFleet(FleetSource):
    """Passes on what another fleet answers, redacted."""

    def __init__(self, fleet: FleetSource, redactor: Redactor) -> None:
        self._fleet, self._redactor = fleet, redactor
        self._hosts: dict[str, str] = {}
        self._shown: dict[str, str] = {}
        self._fields: Mapping[str, Callable[[Any], Any]] = {
            "host": self._host, "uuid": lambda uuid: redactor.device(uuid) if uuid else "",
            "cluster": lambda cluster: redactor.number("cluster", cluster) if cluster else "", "job": self._job,
            "user": lambda user: redactor.user(user) or "", "own_verdict": self._verdict, "reason": redactor.text,
            "labels": lambda labels: {name: self._label(name, value) for name, value in labels.items()},
            "source": redactor.text, "gpus": self._rows, "down": self._by_host, "hour": self._row,
            "lost": self._rows, "gone": self._by_host, "shares": self._rows, "missing": self._by_host,
            "repeated": lambda hosts: {self._host(host): self._host(other) for host, other in hosts.items()},
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
        read = self._asked(self._fleet.ask, at)
        if len(self._shown) > 2 * len({gpu.host for gpu in read.gpus}) + LEAST_HOSTS:
            # The redactor gives returning names the same numbers.
            self._hosts.clear()
            self._shown.clear()
        return replace(self._row(read), opens={}, own_names={})

    def hour(self, t: float) -> LastHour | None:
        hour = self._asked(self._fleet.hour, t)
        return None if hour is None else self._row(hour)

    def look(self, hosts: Sequence[str], at: float | None) -> Sequence[GpuReading] | None:
        known = [self._hosts[host] for host in hosts if host in self._hosts]
        return self._rows(self._asked(self._fleet.look, known, at))

    def history(self, host: str, t: float) -> History:
        return self._asked(self._fleet.history, self._hosts.get(host, ""), t)

    def details(self, host: str, at: float | None) -> Mapping[str, Mapping[str, float]]:
        return self._asked(self._fleet.details, self._hosts.get(host, ""), at)

    def settle(self) -> None:
        self._fleet.settle()

    def close(self) -> None:
        self._fleet.close()

    def _asked(self, ask: Callable[..., T], *args: Any) -> T:
        try:
            return ask(*args)
        except FleetError as error:
            raise FleetError(self._redactor.text(str(error))) from None

    def _rows(self, rows: Sequence[Row] | None) -> list[Row] | None:
        return None if rows is None else [self._row(row) for row in rows]

    def _by_host(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        return {
            self._host(host): self._row(row) if isinstance(row, Struct) else row
            for host, row in rows.items()
        }

    def _row(self, row: Row) -> Row:
        # What the row holds; a number of GPUs names none.
        held = {name: getattr(row, name) for name in row.__struct_fields__ if name in self._fields}
        return replace(
            row,
            **{
                name: self._fields[name](value)
                for name, value in held.items()
                if value.__class__ is not int
            },
        )

    def _host(self, host: str) -> str:
        if host and host not in self._shown:
            shown = self._shown[host] = self._redactor.host(host)
            self._hosts[shown] = host
        return self._shown.get(host, "")

    def _verdict(self, verdict: str | None) -> str | None:
        """A verdict of ours; what else an exporter says there may be a name."""
        return (
            verdict
            if verdict is None or verdict in titles()
            else self._redactor.number("verdict", verdict)
        )

    def _job(self, job: JobName) -> JobName:
        """``pod anna-llm-worker-3`` is ``pod job1-worker-3``."""
        cluster = self._redactor.number("cluster", job.cluster) if job.cluster else ""
        if not job.name or job.kind not in KINDS:
            # A word of the exporter's own, which may be a name as well.
            return JobName(self._redactor.number("job", job), cluster=cluster)
        whole = group_of(job).name
        return JobName(
            job.kind, self._redactor.number("job", whole) + job.name[len(whole) :], cluster
        )

    def _label(self, name: str, value: str) -> str:
        if name in SAID:
            return value
        if name in HOST_LABELS:
            host, port = split_host(value)
            return self._host(host) + port
        return (
            self._redactor.device(value)
            if name.lower() == "uuid"
            else self._redactor.number(name, value)
        )
