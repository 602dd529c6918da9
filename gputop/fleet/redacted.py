"""A fleet as ``--redact`` shows it: users, hosts, jobs and UUIDs as numbers, before anything is made of a reading.

What a job's number is made of stays together: pods of one training job differ in role and number alone, and stay one
job, so that stragglers and waste are the same with and without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from gputop.fleet.history import History
from gputop.fleet.names import HOST_LABELS, group_of, split_host
from gputop.fleet.reading import Alert, FleetError, FleetReading, GpuReading, Lost
from gputop.model.redaction import Redactor

if TYPE_CHECKING:
    from gputop.fleet.watch import AskedFleet

SAID = frozenset(("gpu", "mig", "GPU_I_ID", "state", "verdict", "kind", "reason", "xid", "badge", "source", "severity"))
"""Labels of alerts that identify nobody; all others become numbers."""
LEAST_HOSTS = 1024
"""How many hosts are remembered at least, however few there are now."""
T = TypeVar("T")


class RedactedFleet:
    """Passes on what another fleet answers, redacted."""

    def __init__(self, fleet: AskedFleet, redactor: Redactor) -> None:
        self._fleet, self._redactor = fleet, redactor
        self._hosts: dict[str, str] = {}
        self._shown: dict[str, str] = {}

    @property
    def source(self) -> str:
        """The engine, without its host."""
        return self._redactor.text(self._fleet.source)

    @property
    def interval_s(self) -> float:
        return self._fleet.interval_s

    def ask(self, at: float | None = None) -> FleetReading:
        """As ``AskedFleet.ask``, with numbers in place of names."""
        read = self._told(lambda: self._fleet.ask(at))
        if len(self._shown) > 2 * len({gpu.host for gpu in read.gpus}) + LEAST_HOSTS:
            # The redactor gives returning names the same numbers.
            self._hosts.clear()
            self._shown.clear()
        gpus = [self._gpu(gpu) for gpu in read.gpus]
        return replace(
            read,
            source=self.source,
            gpus=gpus,
            down={self._host(host): down for host, down in read.down.items()},
            lost=self._lost(read.lost),
            alerts=tuple(map(self._alert, read.alerts)),
            problems=tuple(map(self._redactor.text, read.problems)),
            is_redacted=True,
        )

    def more(self, t: float) -> bool:
        return self._fleet.more(t)

    def hour(self, t: float) -> Sequence[Lost] | None:
        return self._lost(self._fleet.hour(t))

    def history(self, host: str, t: float, span_s: float, columns: int) -> History:
        return self._told(lambda: self._fleet.history(self._hosts.get(host, ""), t, span_s, columns))

    def details(self, hosts: Sequence[str], at: float | None) -> Mapping[tuple[str, str], Mapping[str, float]]:
        asked = [self._hosts[host] for host in hosts if host in self._hosts]
        found = self._told(lambda: self._fleet.details(asked, at))
        return {(self._host(host), gpu): values for (host, gpu), values in found.items()}

    def close(self) -> None:
        self._fleet.close()

    def _told(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except FleetError as error:
            raise FleetError(self._redactor.text(str(error))) from None

    def _host(self, host: str) -> str:
        shown = self._shown.get(host)
        if shown is None:
            shown = self._shown[host] = self._redactor.host(host)
            self._hosts[shown] = host
        return shown

    def _gpu(self, gpu: GpuReading) -> GpuReading:
        return replace(
            gpu,
            host=self._host(gpu.host),
            uuid=self._redactor.device(gpu.uuid) if gpu.uuid else "",
            job=self._job(gpu.job),
            user=self._redactor.user(gpu.user) or "",
        )

    def _lost(self, lost: Sequence[Lost] | None) -> Sequence[Lost] | None:
        if lost is None:
            return None
        user = self._redactor.user
        return [
            replace(one, host=self._host(one.host), job=self._job(one.job), user=user(one.user) or "") for one in lost
        ]

    def _job(self, job: str) -> str:
        """``pod anna-llm-worker-3`` is ``pod job1-worker-3``."""
        whole = group_of(job)
        return f"{self._redactor.job(whole)}{job[len(whole) :]}" if whole else job

    def _alert(self, alert: Alert) -> Alert:
        labels = {name: self._label(name, value) for name, value in alert.labels.items()}
        return replace(alert, host=self._host(alert.host) if alert.host else "", labels=labels)

    def _label(self, name: str, value: str) -> str:
        if name in SAID:
            return value
        if name in HOST_LABELS:
            host, port = split_host(value)
            return self._host(host) + port
        return self._redactor.device(value) if name.lower() == "uuid" else self._redactor.number(name, value)
