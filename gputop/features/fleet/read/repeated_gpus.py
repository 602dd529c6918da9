"""Count each GPU of a few hosts once, though several addresses tell of it. Pure.

Two hosts that tell of one UUID are one machine with two addresses, or with two exporters, unless the same kind of
exporter names them differently: then somebody copied the UUID, or an exporter runs twice under two names, and both rows
stay. Either way it is said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from gputop.features.fleet.fleet_reading import GpuId, GpuReading, merged

MOST_TOLD = 32
"""Repeated GPUs that have a line each; the rest has one line."""


class HostGpus(Struct, frozen=True):
    """A host, what it calls itself by dialect, and its GPUs."""

    name: str
    own_names: Mapping[str, str]
    gpus: Sequence[GpuReading]


class CountedGpus(Struct, frozen=True):
    """GPUs that count, and repeated ones.

    ``elsewhere`` are host and number of GPUs that count under another host. ``repeated`` are hosts whose GPUs all
    count under another one.
    """

    gpus: list[GpuReading]
    elsewhere: frozenset[tuple[str, str]]
    repeated: dict[str, str]
    problems: tuple[str, ...]


class _Machine(Struct):
    """One GPU as all addresses of one machine tell of it."""

    own_names: dict[str, str]
    readings: list[GpuReading]

    def may_be(self, own_names: Mapping[str, str]) -> bool:
        """Whether a host of these names may be the same machine.

        Exporters of two kinds have ways of their own to name a host.
        """
        common = self.own_names.keys() & own_names.keys()
        return all(self.own_names[dialect] == own_names[dialect] for dialect in common)


class _Repeated(Struct, frozen=True):
    """A GPU, and the one that was told of before it under the same UUID."""

    first: GpuReading
    second: GpuReading

    def __str__(self) -> str:
        first, second = self.first, self.second
        return (
            f"{first.uuid} is on {first.host} (GPU {first.gpu}) and on {second.host} "
            f"(GPU {second.gpu})"
        )


def counted(hosts: Sequence[HostGpus]) -> CountedGpus:
    """Return each GPU under the first host that tells of it."""
    machines_by_gpu: dict[GpuId, list[_Machine]] = defaultdict(list)
    elsewhere: list[_Repeated] = []
    on_both: list[_Repeated] = []
    for host in hosts:
        for gpu in host.gpus:
            machines = machines_by_gpu[gpu.id]
            same = next((one for one in machines if one.may_be(host.own_names)), None)
            if same is None:
                if machines:
                    on_both.append(_Repeated(machines[0].readings[0], gpu))
                machines.append(_Machine(dict(host.own_names), [gpu]))
                continue
            if same.readings[0].host != gpu.host:
                elsewhere.append(_Repeated(same.readings[0], gpu))
            same.own_names.update(host.own_names)
            same.readings.append(gpu)
    gpus: list[GpuReading] = []
    for machines in machines_by_gpu.values():
        for machine in machines:
            gpus += merged(machine.readings)
    repeated = _repeated_hosts(hosts, gpus, elsewhere)
    lines = [f"{one}, by their own names two machines: it counts on both" for one in on_both]
    lines += [
        f"{one}: it counts on {one.first.host} alone"
        for one in elsewhere
        if one.second.host not in repeated
    ]
    if len(lines) > MOST_TOLD:
        lines[MOST_TOLD:] = [f"{len(lines) - MOST_TOLD:,} more GPUs are on two hosts each"]
    counts_elsewhere = frozenset((one.second.host, one.second.gpu) for one in elsewhere)
    return CountedGpus(gpus, counts_elsewhere, repeated, tuple(lines))


def _repeated_hosts(
    hosts: Sequence[HostGpus], gpus: Sequence[GpuReading], elsewhere: Sequence[_Repeated]
) -> dict[str, str]:
    """Return hosts without a GPU of their own, with the host that has their first one."""
    owners = {gpu.host for gpu in gpus}
    repeated: dict[str, str] = {}
    for one in elsewhere:
        if one.second.host not in owners:
            repeated.setdefault(one.second.host, one.first.host)
    return {host.name: repeated[host.name] for host in hosts if host.name in repeated}
