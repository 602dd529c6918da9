"""A large fleet read from its Prometheus by the sums that its rules record.

Hosts and jobs are read from the records, and GPUs on the hosts in sight, each part of them by a ``PrometheusFleet`` of
its own. A refresh grows with hosts, not with GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from msgspec.structs import replace

from gputop.features.fleet.fleet_reading import (
    FleetReading,
    FleetSource,
    GpuReading,
    History,
    LastHour,
    with_hour,
)
from gputop.features.fleet.promql import any_of
from gputop.features.fleet.read.decode_labels import Place
from gputop.features.fleet.read.engine import Client, Engine
from gputop.features.fleet.read.gpu_inventory import USUAL_SCRAPE_S, FleetInventory
from gputop.features.fleet.read.last_hour import HourReader
from gputop.features.fleet.read.prometheus_fleet import PrometheusFleet, within
from gputop.features.fleet.read.recorded_hosts import RecordedHosts

MOST_LOOKED_AT = 64
"""Hosts whose GPUs are asked for at once."""
LONGEST_MATCHER = 600
"""Characters of addresses in a selector: VictoriaMetrics takes 16 kB a query, and one has up to 18 selectors."""


class RecordedFleet(FleetSource):
    """Asks one engine for recorded sums. Not for several threads at once; every method blocks."""

    interval_s = USUAL_SCRAPE_S

    def __init__(
        self, client: Client, source: str, select: str, clock: Callable[[], float]
    ) -> None:
        self.source = source
        self._clock = clock
        self._engine = Engine(client, select)
        self._records = RecordedHosts(self._engine)
        self._hour = HourReader(self._engine)
        self._past: float | None = None
        self._parts: dict[tuple[Place, ...], PrometheusFleet] = {}
        self._part_of: dict[str, PrometheusFleet] = {}
        self._gpus: Sequence[GpuReading] = ()
        self._faults: dict[str, Sequence[str]] = {}
        """Faults of the hosts in sight."""

    def size(self, at: float | None) -> int:
        """How many GPUs the rules record. Raises FleetError."""
        return self._records.size(at)

    def ask(self, at: float | None = None) -> FleetReading:
        self._engine.client.begin()
        if at != self._past:
            self._past = at
            self._records = RecordedHosts(self._engine)
            self._parts, self._part_of, self._gpus, self._faults = {}, {}, (), {}
        reading = self._records.ask(at, self.source, self._clock())
        reading = replace(reading, gpus=self._gpus, faults=self._faults)
        return with_hour(reading, self._hour.known(reading.t))

    def hour(self, t: float) -> LastHour | None:
        """The GPU time without work in the hour before ``t``; None if unanswered."""
        return self._hour.read(t, self._records.names, FleetInventory(self._engine))

    def look(self, hosts: Sequence[str], at: float | None) -> Sequence[GpuReading] | None:
        """GPUs of these hosts, and of hosts whose job has a straggler. Raises FleetError."""
        wanted_hosts = dict.fromkeys((*hosts, *self._records.of_straggling_jobs()))
        before, self._parts, self._part_of = self._parts, {}, {}
        gpus: list[GpuReading] = []
        faults: dict[str, Sequence[str]] = {}
        for part in _parts(self._records.addresses, wanted_hosts):
            addressed = tuple(sorted(part))
            fleet = self._parts[addressed] = before.get(addressed) or self._narrowed(part)
            self._part_of.update(dict.fromkeys(part.values(), fleet))
            read = fleet.ask(at)
            gpus += read.gpus
            faults.update(read.faults)
        self._gpus, self._faults = gpus, faults
        return gpus

    def history(self, host: str, t: float) -> History:
        part = self._part(host)
        return {} if part is None else part.history(host, t)

    def details(self, host: str, at: float | None) -> Mapping[str, Mapping[str, float]]:
        part = self._part(host)
        return {} if part is None else part.details(host, at)

    def close(self) -> None:
        self._engine.client.close()

    def _part(self, host: str) -> PrometheusFleet | None:
        """The part that knows a host's GPUs; None for an unknown host."""
        if host not in self._part_of:
            for hosts in _parts(self._records.addresses, (host,)):
                self._part_of[host] = self._narrowed(hosts)
                self._part_of[host].ask(self._past)
        return self._part_of.get(host)

    def _narrowed(self, hosts: Mapping[Place, str]) -> PrometheusFleet:
        """A fleet of these hosts alone, asked GPU by GPU."""
        select = within({address for _, address in hosts}, self._engine.select)
        return PrometheusFleet(self._engine.client, self.source, select, self._clock, hosts=hosts)


def _parts(addresses: Mapping[str, set[Place]], hosts: Iterable[str]) -> Iterator[dict[Place, str]]:
    """Divide hosts into parts whose addresses fit into one selector."""
    part: dict[Place, str] = {}
    length = 0
    for host in islice((host for host in hosts if host in addresses), MOST_LOOKED_AT):
        places = {place: host for place in sorted(addresses[host]) if place[1]}
        added_length = sum(len(any_of("", (address,))) for _, address in places)
        if part and length + added_length > LONGEST_MATCHER:
            yield part
            part, length = {}, 0
        part |= places
        length += added_length
    if part:
        yield part
