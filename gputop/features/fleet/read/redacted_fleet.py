"""Hide users, hosts, jobs and UUIDs of a fleet behind numbers, for ``--redact``.

Pods of one training job differ in role and number alone, and stay one job, so that stragglers and waste are the same
with and without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.verdict.catalogue import titles
from gputop.features.fleet.exporter_names import HOST_LABELS, group_of, split_host
from gputop.features.fleet.fleet_reading import (
    FleetError,
    FleetReading,
    FleetSource,
    GpuReading,
    History,
    JobName,
    LastHour,
    NameOf,
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


Hider = Callable[[Any], Any]


def _is_mark(argument: Any) -> bool:
    return isinstance(argument, NameOf)


def _kept(value: Any) -> Any:
    return value


class RedactedFleet(FleetSource):
    """Passes on what another fleet answers, redacted."""

    def __init__(self, fleet: FleetSource, redactor: Redactor) -> None:
        self._fleet, self._redactor = fleet, redactor
        self._hosts: dict[str, str] = {}
        self._shown: dict[str, str] = {}
        self._hiders: Mapping[str, Hider] = {
            "host": self._host,
            "device": lambda uuid: redactor.device(uuid) if uuid else "",
            "cluster": lambda cluster: redactor.number("cluster", cluster) if cluster else "",
            "user": lambda user: redactor.user(user) or "",
            "process": lambda name: redactor.number("process", name) if name else "",
            "verdict": self._verdict,
            # A line may name a host: by then it is known as such.
            "words": redactor.text,
            "labels": self._labels,
        }
        """How names of a kind are hidden, see ``NameOf``."""
        self._plans: dict[type, Mapping[str, Hider]] = {}

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

    def _row(self, row: Row) -> Row:
        """The row without names, by the types of its fields."""
        cls = type(row)
        if cls not in self._plans:
            hints = get_type_hints(cls, include_extras=True)
            hiders = {name: self._hider(hint) for name, hint in hints.items()}
            self._plans[cls] = {name: hide for name, hide in hiders.items() if hide is not None}
        hidden = {name: hide(getattr(row, name)) for name, hide in self._plans[cls].items()}
        return replace(row, **hidden)

    def _hider(self, hint: Any) -> Hider | None:
        """The function that hides the names in a value of this type; None for a type without."""
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Annotated:
            mark = next(filter(_is_mark, arguments), None)
            return None if mark is None else self._hiders[mark.kind]
        if hint is JobName:
            return self._job
        if isinstance(hint, type) and issubclass(hint, Struct):
            return self._row
        if origin is Mapping:
            return self._mapping_hider(*map(self._hider, arguments))
        if origin in (Union, UnionType):
            return self._optional_hider(arguments)
        if origin not in (Sequence, tuple):
            return None
        hide = self._hider(next(iter(arguments)))
        if hide is None:
            return None
        kind = tuple if origin is tuple else list
        return lambda values: kind(map(hide, values))

    def _optional_hider(self, arguments: Sequence[Any]) -> Hider | None:
        """The function for ``X | None``."""
        hiders = [hider for hider in map(self._hider, arguments) if hider is not None]
        if not hiders:
            return None
        (hide,) = hiders
        return lambda value: None if value is None else hide(value)

    def _mapping_hider(self, of_key: Hider | None, of_value: Hider | None) -> Hider | None:
        if of_key is None and of_value is None:
            return None
        key, value = of_key or _kept, of_value or _kept
        return lambda rows: {key(name): value(row) for name, row in rows.items()}

    def _labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        return {name: self._label(name, value) for name, value in labels.items()}

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
