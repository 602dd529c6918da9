"""GPUs that belong together: a host's, a job's or a user's, with the verdict on them. Pure, frozen data.

Of a small fleet they are made of its GPUs one by one, of a large one from the shares that the rules record.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.features.fleet.exporter_names import group_of
from gputop.features.fleet.fleet_reading import Down, FleetReading, GpuReading, HostShare, JobName
from gputop.features.fleet.judge import FleetState, FleetVerdict, Straggler, counted_verdict, host_verdict, severity


class Gpu(Struct, frozen=True):
    """One GPU with its state; ``by`` says what decided it, see ``judge.state_of``."""

    read: GpuReading
    state: FleetState
    by: str

    @property
    def gap_pct(self) -> float | None:
        """Utilisation minus SM activity; None where one of the two is not measured."""
        read = self.read
        if read.util_pct is None or read.sm_active_pct is None:
            return None
        return max(0.0, read.util_pct - read.sm_active_pct)


class GpuGroup(Struct, frozen=True):
    """GPUs that belong together: a host, a job or a user. Means and sums are over those where a value is measured.

    ``waste_gpu_h`` and ``idle_gpu_h`` are of the last hour, None until it was read: waste is what a job held and did
    not use, idle is what no job held.
    """

    name: str
    gpus: tuple[Gpu, ...]
    hosts: tuple[str, ...]
    jobs: tuple[str, ...]
    users: tuple[str, ...]
    verdict: FleetVerdict
    util_pct: float | None
    sm_active_pct: float | None
    gap_pct: float | None
    power_w: float | None
    waste_gpu_h: float | None
    idle_gpu_h: float | None
    stragglers: int = 0
    down: Down | None = None
    summed: Mapping[FleetState, int] = {}
    """GPUs by state where the group is read from shares: ``gpus`` are then those that are known one by one, or none."""

    @property
    def counts(self) -> Mapping[FleetState, int]:
        """GPUs by state."""
        return self.summed or Counter(gpu.state for gpu in self.gpus)

    @property
    def size(self) -> int:
        """How many GPUs these are."""
        return sum(self.summed.values()) if self.summed else len(self.gpus)


OF_JOBS = ("busy_not_working", "starved", "idle_allocated", "allocated_unused")
"""States in which a job keeps a GPU from others and does no work on it."""


def worst_first(group: GpuGroup) -> tuple[float, float, str]:
    """The order in which groups need attention: by how bad, then by what they waste."""
    waste = group.waste_gpu_h
    if waste is None:
        waste = sum(n for state, n in group.counts.items() if state in OF_JOBS)
    return severity(group.verdict), -waste, group.name


# Hosts, jobs and users of a large fleet, from the shares that the rules record.


def whole_jobs(read: FleetReading, gpus: Sequence[GpuReading]) -> Sequence[GpuReading]:
    """The GPUs of jobs of which every GPU is known: a part of a job says nothing of stragglers in it."""
    if not read.shares:
        return gpus
    of_job = Counter[JobName]()
    for share in read.shares:
        of_job[group_of(share.job)] += share.gpus
    known_gpus = Counter(group_of(gpu.job) for gpu in gpus if gpu.job)
    return [gpu for gpu in gpus if gpu.job and known_gpus[job := group_of(gpu.job)] >= of_job[job]]


def powers_of(shares: Iterable[HostShare]) -> list[float | None]:
    """A power for each GPU: its part of its share's."""
    return [
        None if share.power_w is None else share.power_w / share.gpus for share in shares for _ in range(share.gpus)
    ]


def host_groups(read: FleetReading, gpus: Iterable[Gpu], straggling: Sequence[Straggler]) -> tuple[GpuGroup, ...]:
    """The hosts. Numbers are those that the rules recorded, also where GPUs are known: rows keep their order."""
    gpus_of_host: dict[str, list[Gpu]] = defaultdict(list)
    for gpu in gpus:
        gpus_of_host[gpu.read.host].append(gpu)
    by_host: dict[str, list[HostShare]] = defaultdict(list)
    for share in read.shares:
        by_host[share.host].append(share)
    for host in (*read.down, *read.missing):
        by_host.setdefault(host, [])
    hours = hours_by(read, "host")
    straggling_on: dict[str, list[Straggler]] = defaultdict(list)
    for straggler in straggling:
        straggling_on[straggler.host].append(straggler)
    of_job = {straggler.job: straggler for straggler in straggling}
    groups = []
    for host, shares in by_host.items():
        group = _group(host, shares, read, hours, straggling_on[host])
        members = (
            tuple(sorted(gpus_of_host[host], key=lambda gpu: (len(gpu.read.gpu), gpu.read.gpu)))
            if host in gpus_of_host
            else ()
        )
        if members:
            now = host_verdict([(gpu.read, gpu.state) for gpu in members], group.down, straggling_on[host], of_job)
            verdict = now if now.state == group.verdict.state else group.verdict
            group = replace(group, gpus=members, verdict=verdict)
        groups.append(group)
    return tuple(groups)


def share_groups(
    read: FleetReading, by: Literal["job", "user"], straggling: Sequence[Straggler]
) -> tuple[GpuGroup, ...]:
    """The GPUs by job or user; those without one are a group of their own, the last one."""
    members: dict[str, list[HostShare]] = defaultdict(list)
    for share in read.shares:
        members[getattr(share, by)].append(share)
    without = members.pop("", None)
    hours = hours_by(read, by)
    straggling_in: dict[str, list[Straggler]] = defaultdict(list)
    for straggler in straggling:
        straggling_in[getattr(straggler, by)].append(straggler)
    groups = [_group(name, shares, read, hours, straggling_in[name]) for name, shares in members.items()]
    if without:
        groups.append(_group("", without, read, hours, []))
    return tuple(groups)


Hours = Mapping[str, tuple[float, float]]


def waste_and_idle(hours: Hours | None, name: str) -> tuple[float, float] | tuple[None, None]:
    """The hours of one host, job or user; None where the last hour is not known."""
    return (None, None) if hours is None else hours.get(name, (0.0, 0.0))


def hours_by(read: FleetReading, by: str) -> Hours | None:
    """GPU-hours of the last hour by host, job or user: what somebody did not use, and what nobody used."""
    if read.lost is None:
        return None
    hours: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for lost in read.lost:
        name = getattr(lost, by)
        waste, idle = hours[name]
        hours[name] = (waste, idle + lost.gpu_h) if lost.state == "idle" else (waste + lost.gpu_h, idle)
    return hours


def _group(
    name: str,
    shares: Sequence[HostShare],
    read: FleetReading,
    hours: Hours | None,
    straggling: Sequence[Straggler],
) -> GpuGroup:
    down = read.down.get(name) if not shares or shares[0].host == name else None
    counts: Counter[FleetState] = Counter()
    for share in shares:
        of_host = read.down.get(share.host)
        if of_host is None:
            counts.update(share.states)
        else:
            counts["late" if of_host.kind == "late" else "down"] += share.gpus
    if missing := read.missing.get(name, 0):
        counts["lost" if down is None else "late" if down.kind == "late" else "down"] += missing
    waste, idle = waste_and_idle(hours, name)
    power = [share.power_w for share in shares if share.power_w is not None]
    return GpuGroup(
        name,
        (),
        tuple(dict.fromkeys(share.host for share in shares)) or (name,),
        tuple(dict.fromkeys(share.job for share in shares if share.job)),
        tuple(dict.fromkeys(share.user for share in shares if share.user)),
        counted_verdict(counts, down, straggling),
        _mean(shares, "util_pct"),
        _mean(shares, "sm_active_pct"),
        _mean(shares, "gap_pct"),
        sum(power) if power else None,
        waste,
        idle,
        len(straggling),
        down,
        counts,
    )


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of those that are measured."""
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured else None


def _mean(shares: Iterable[HostShare], key: str) -> float | None:
    """The mean over all GPUs of shares that have the value."""
    measured = [(value, share.gpus) for share in shares if (value := getattr(share, key)) is not None]
    gpus = sum(n for _, n in measured)
    return sum(value * n for value, n in measured) / gpus if gpus else None
