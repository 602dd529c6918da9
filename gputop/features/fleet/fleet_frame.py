"""Build hosts, jobs and users from a reading, with states, stragglers and waste.

Of a small fleet they are made of its GPUs, of a large one from the shares that the rules record. Pure, frozen data.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.features.fleet import gpu_state, group_verdict, straggler
from gputop.features.fleet.address import ssh_command
from gputop.features.fleet.exporter_names import group_of
from gputop.features.fleet.fleet_reading import Down, FleetReading, FleetState, GpuReading, HostShare, JobName
from gputop.features.fleet.group_verdict import FleetVerdict
from gputop.features.fleet.straggler import Straggler
from gputop.model.quantity import count


class Gpu(Struct, frozen=True):
    """One GPU with its state; ``state_by`` says what decided it, see ``gpu_state.state_of``."""

    read: GpuReading
    state: FleetState
    state_by: str

    @property
    def gap_pct(self) -> float | None:
        """Utilisation minus SM activity; None where one of the two is not measured."""
        return gap(self.read)


def gap(of: GpuReading | HostShare) -> float | None:
    """Utilisation minus SM activity; None where one of the two is not measured."""
    if of.util_pct is None or of.sm_active_pct is None:
        return None
    return max(0.0, of.util_pct - of.sm_active_pct)


class GpuGroup(Struct, frozen=True):
    """GPUs of one host, job or user.

    Means and sums are over GPUs with a value. ``counts`` are GPUs by state; ``gpus`` are all of them, or in a large
    fleet the ones of hosts in sight. ``waste_gpu_h`` was held by a job and not used in the last hour, ``idle_gpu_h``
    was held by no job; None until read.
    """

    name: str
    gpus: tuple[Gpu, ...]
    hosts: tuple[str, ...]
    jobs: tuple[str, ...]
    users: tuple[str, ...]
    counts: Mapping[FleetState, int]
    verdict: FleetVerdict
    util_pct: float | None
    sm_active_pct: float | None
    gap_pct: float | None
    power_w: float | None
    waste_gpu_h: float | None
    idle_gpu_h: float | None
    stragglers: int = 0
    down: Down | None = None
    own_name: str = ""
    """What a host calls itself that is known by another name."""

    @property
    def title(self) -> str:
        """The name for people."""
        return f"{self.name} ({self.own_name})" if self.own_name else self.name

    @property
    def size(self) -> int:
        """How many GPUs these are."""
        return sum(self.counts.values())

    @property
    def remedy(self) -> str:
        """The remedy for its worst state, or nothing."""
        return group_verdict.remedy_of(
            [gpu.read for gpu in self.gpus if gpu.state == self.verdict.state], self.verdict.state
        )


OF_JOBS: tuple[FleetState, ...] = ("busy_not_working", "starved", "idle_allocated", "allocated_unused")
"""States in which a job keeps a GPU from others and does no work on it."""


def worst_first(group: GpuGroup) -> tuple[float, float, str]:
    """Sort key: worst state first, then waste."""
    waste = group.waste_gpu_h
    if waste is None:
        waste = sum(group.counts.get(state, 0) for state in OF_JOBS)
    return group_verdict.severity(group.verdict), -waste, group.name


class WastedHours(Struct, frozen=True):
    """GPU-hours of the last hour lost by a job, with their cause.

    The cause is a verdict of the node, or a state.
    """

    job: JobName
    user: str
    cause: str
    state: FleetState
    gpu_h: float
    gpus: int


class FleetFrame(Struct, frozen=True, dict=True):
    """A fleet at one moment, ready to show. ``counts`` are GPUs by state.

    Values that only some screens need are computed on first use.
    """

    read: FleetReading
    hosts: tuple[GpuGroup, ...]
    counts: Mapping[FleetState, int]
    stragglers: tuple[Straggler, ...]
    waste: tuple[WastedHours, ...]
    problems: tuple[str, ...]

    @property
    def t(self) -> float:
        """Unix time in seconds."""
        return self.read.t

    def ssh(self, host: str) -> str | None:
        """The command that opens gputop on a host.

        None for a redacted name, and for one that ssh could misread.
        """
        return None if self.read.is_redacted else ssh_command(host)

    def host(self, name: str | None) -> GpuGroup | None:
        """The host of this name."""
        return next((host for host in self.hosts if host.name == name), None)

    @cached_property
    def total(self) -> int:
        """All GPUs, with lost ones and GPUs of hosts that are down."""
        return sum(self.counts.values())

    @property
    def gpus(self) -> list[Gpu]:
        """GPUs that are known one by one."""
        return [gpu for host in self.hosts for gpu in host.gpus]

    @cached_property
    def present(self) -> list[Gpu]:
        """Known GPUs that answer."""
        return [gpu for gpu in self.gpus if gpu.state not in gpu_state.ABSENT]

    @cached_property
    def models(self) -> Mapping[str, int]:
        """GPUs by product name, the most frequent first; empty where no exporter names it."""
        return dict(Counter(gpu.read.model for gpu in self.gpus).most_common())

    @cached_property
    def power(self) -> tuple[float, int, int]:
        """Watts of GPUs that answer, how many these are, and of how many."""
        reads: Iterable[HostShare | GpuReading] = self.read.shares or (gpu.read for gpu in self.present)
        known = [(of.power_w, of.gpus if isinstance(of, HostShare) else 1) for of in reads]
        powers = [(power, n) for power, n in known if power is not None]
        return sum(power for power, _ in powers), sum(n for _, n in powers), sum(n for _, n in known)

    @cached_property
    def measured(self) -> int:
        """GPUs that answer and whose SM activity is measured."""
        return sum(gpu.read.sm_active_pct is not None for gpu in self.present)

    @cached_property
    def not_work_gpu_h(self) -> float | None:
        """GPU-hours of the last hour that were no work; None until read."""
        if self.read.hour.lost is None:
            return None
        return sum(lost.gpu_h for lost in self.read.hour.lost)

    @cached_property
    def idle_gpu_h(self) -> float:
        """GPU-hours of the last hour that no job held."""
        return sum(row.gpu_h for row in self.waste if row.state == "idle")

    @cached_property
    def jobs(self) -> tuple[GpuGroup, ...]:
        """The fleet by job; GPUs without one come last."""
        return _groups(self.read, "job", self.gpus, self.stragglers)

    @cached_property
    def users(self) -> tuple[GpuGroup, ...]:
        """The fleet by user; GPUs without one come last."""
        return _groups(self.read, "user", self.gpus, self.stragglers)

    @cached_property
    def orders(self) -> dict[tuple[str, ...], tuple[GpuGroup, ...]]:
        """Groups by order; sorting a thousand hosts at every key is slow."""
        return {}


def fleet_frame(read: FleetReading, before: FleetFrame | None = None) -> FleetFrame:
    """Build the frame of a reading.

    A large fleet is read from shares, and only some GPUs are known: hosts that are as ``before`` are taken from there.
    """
    kinds = {host: down.kind for host, down in read.down.items()}
    gpus = [Gpu(gpu, *gpu_state.state_of(gpu, down=kinds.get(gpu.host, ""))) for gpu in read.gpus]
    straggling = straggler.stragglers(
        _of_whole_jobs(read, [gpu.read for gpu in gpus if gpu.state not in gpu_state.ABSENT])
    )
    known = {}
    # The rules record something new of a host once a minute.
    if before and read.shares and (read.shares is before.read.shares and read.hour is before.read.hour) and (
        (read.down, read.missing) == (before.read.down, before.read.missing)
    ):  # fmt: skip
        known = {host.name: host for host in before.hosts if not host.gpus and not host.stragglers}
    hosts = _groups(read, "host", gpus, straggling, known)
    counts: dict[FleetState, int] = dict.fromkeys(gpu_state.FLEET_STATES, 0)
    for host in hosts:
        for state, n in host.counts.items():
            counts[state] += n
    notes = [] if read.shares else _not_exported(gpus)
    return FleetFrame(
        read,
        hosts,
        counts,
        tuple(straggling),
        _waste(gpus, read),
        (
            *read.problems,
            *(f"{host} has the GPUs of {other}: they count once" for host, other in read.repeated.items()),
            *notes,
            *([read.hour.note] if read.hour.note else ()),
        ),
    )


def _of_whole_jobs(read: FleetReading, gpus: Sequence[GpuReading]) -> Sequence[GpuReading]:
    """GPUs of jobs that are known completely: only these can have stragglers."""
    if not read.shares:
        return gpus
    of_job = Counter[JobName]()
    for share in read.shares:
        of_job[group_of(share.job)] += share.gpus
    known_gpus = Counter(group_of(gpu.job) for gpu in gpus if gpu.job)
    return [gpu for gpu in gpus if gpu.job and known_gpus[job := group_of(gpu.job)] >= of_job[job]]


# Hosts, jobs and users: sums of the shares that owners have of hosts. A GPU that is known by itself is a share of one.


def _shares(read: FleetReading, gpus: Iterable[Gpu]) -> list[HostShare]:
    """Shares as they were read, with absent hosts; else each GPU as one."""
    if read.shares:
        kinds = {host: down.kind for host, down in read.down.items()}
        return [
            replace(share, states={kinds[share.host]: share.gpus}) if share.host in kinds else share
            for share in read.shares
        ]
    return [
        HostShare(of.read.host, of.read.job, of.read.user, {of.state: 1}, of.read.util_pct, of.read.sm_active_pct,
                  of.read.power_w)
        for of in gpus
    ]  # fmt: skip


def _by_number(gpu: Gpu) -> tuple[str, tuple[int, ...], str]:
    return gpu.read.host, _numbers(gpu.read.gpu), gpu.read.gpu


@lru_cache(maxsize=1024)
def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d{1,9}", text))


class _Stragglers:
    """The stragglers of a fleet by GPU, by group of shares, and by job."""

    def __init__(self, straggling: Sequence[Straggler], by: str) -> None:
        self._at = {(late.host, late.gpu): late for late in straggling}
        self._of_name: dict[str, list[Straggler]] = defaultdict(list)
        for late in straggling:
            self._of_name[getattr(late, by)].append(late)
        self.of_job = {late.job: late for late in straggling}

    def among(self, name: str, gpus: Sequence[Gpu]) -> list[Straggler]:
        """The stragglers of a group; a straggling host has no GPU number."""
        if not gpus:
            return self._of_name[name] if name else []
        places = dict.fromkeys((gpu.read.host, number) for gpu in gpus for number in (gpu.read.gpu, ""))
        return [self._at[place] for place in places if place in self._at]


def _groups(
    read: FleetReading,
    by: Literal["host", "job", "user"],
    gpus: Iterable[Gpu],
    straggling: Sequence[Straggler],
    known: Mapping[str, GpuGroup] = {},
) -> tuple[GpuGroup, ...]:
    """Group the fleet by host, job or user.

    GPUs without a job or user are the last group.
    """
    gpus = sorted(gpus, key=_by_number)
    members: dict[str, list[HostShare]] = defaultdict(list)
    for share in _shares(read, gpus):
        members[getattr(share, by)].append(share)
    if by == "host":
        for host in (*read.down, *read.missing):
            members[host]
    elif "" in members:
        members[""] = members.pop("")
    gpus_of: dict[str, list[Gpu]] = defaultdict(list)
    for gpu in gpus if by == "host" or not read.shares else ():
        gpus_of[getattr(gpu.read, by)].append(gpu)
    hours, late = _hours(read, by), _Stragglers(straggling, by)
    return tuple(
        known[name]
        if name in known and name not in gpus_of
        else _group(name, by, own, gpus_of.get(name, ()), read, hours, late)
        for name, own in members.items()
    )


def _group(
    name: str, by: str, shares: Sequence[HostShare], gpus: Sequence[Gpu], read: FleetReading,
    hours: Mapping[str, tuple[float, float]] | None, late: _Stragglers,
) -> GpuGroup:  # fmt: skip
    down = read.down.get(name) if by == "host" else None
    counts = Counter[FleetState]()
    for share in shares:
        counts.update(share.states)
    if by == "host" and (missing := read.missing.get(name, 0)):
        counts["lost" if down is None else down.kind] += missing
    straggling = late.among(name, gpus)
    waste, idle = (None, None) if hours is None else hours.get(name, (0.0, 0.0))
    powers = [share.power_w for share in shares if share.power_w is not None]
    return GpuGroup(
        name,
        tuple(gpus),
        tuple(dict.fromkeys(share.host for share in shares)) or (name,) * bool(read.shares),
        tuple(dict.fromkeys(share.job for share in shares if share.job)),
        tuple(dict.fromkeys(share.user for share in shares if share.user)),
        counts,
        group_verdict.verdict_of(counts, [(gpu.read, gpu.state) for gpu in gpus], down, straggling, late.of_job),
        mean((share.util_pct, share.gpus) for share in shares),
        mean((share.sm_active_pct, share.gpus) for share in shares),
        mean((gap(share), share.gpus) for share in shares),
        sum(powers) if powers else None,
        waste,
        idle,
        len(straggling),
        down,
        read.own_names.get(name, "") if by == "host" else "",
    )


def mean(values: Iterable[tuple[float | None, int]]) -> float | None:
    """The weighted mean of measured values; the second number is a count of GPUs."""
    total, gpus = 0.0, 0
    for value, n in values:
        if value is not None:
            total += value * n
            gpus += n
    return total / gpus if gpus else None


def _hours(read: FleetReading, by: str) -> Mapping[str, tuple[float, float]] | None:
    """Lost GPU-hours by host, job or user: of jobs, and of nobody."""
    if read.hour.lost is None:
        return None
    hours: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for lost in read.hour.lost:
        name = getattr(lost, by)
        waste, idle = hours[name]
        hours[name] = (waste, idle + lost.gpu_h) if lost.state == "idle" else (waste + lost.gpu_h, idle)
    return hours


def _waste(gpus: Sequence[Gpu], read: FleetReading) -> tuple[WastedHours, ...]:
    """Lost GPU-hours by job, user and cause, the most first.

    Idle hours outside of any job come last.
    """
    # A job's hosts may have different exporters: the cause that one node names holds for the job.
    causes: dict[tuple[str, str | None], str] = {}
    for gpu in gpus:
        if gpu.read.own_verdict is not None:
            causes.setdefault((gpu.read.job, gpu.read.own_state), gpu.read.own_verdict)
    hours: dict[tuple[JobName, str, str, FleetState], float] = defaultdict(float)
    members: dict[tuple[JobName, str, str, FleetState], set[tuple[str, str]]] = defaultdict(set)
    key: tuple[JobName, str, str, FleetState]
    for lost in read.hour.lost or ():
        cause = causes.get((lost.job, lost.state), lost.state) if lost.job else lost.state
        key = (lost.job, lost.user, cause, lost.state)
        hours[key] += lost.gpu_h
        members[key].add((lost.host, lost.gpu))
    sizes: Counter[tuple[str, str, str]] = Counter()
    for of in read.shares or (gpu.read for gpu in gpus):
        sizes[of.host, of.job, of.user] += of.gpus if isinstance(of, HostShare) else 1
    rows = []
    for key, gpu_h in hours.items():
        # Of a host as a whole it is all that the owner has there now.
        n = sum(1 if number else sizes[host, key[0], key[1]] for host, number in members[key])
        rows += [WastedHours(*key, gpu_h, n)] if gpu_h > 0.0 else []
    return tuple(sorted(rows, key=lambda row: (row.state == "idle", -row.gpu_h, row.job, row.cause)))


def _not_exported(gpus: Sequence[Gpu]) -> list[str]:
    """A line on SM activity that dcgm-exporter could export."""
    hosts = {
        gpu.read.host
        for gpu in gpus
        if gpu.read.sm_active_pct is None and gpu.state not in gpu_state.ABSENT and gpu.read.names in ("legacy", "4.9")
    }
    if not hosts:
        return []
    row = "DCGM_FI_PROF_SM_ACTIVE, gauge, SM activity"
    return [f"no SM activity from {count(len(hosts), 'host')}: dcgm-exporter's CSV needs {row}"]
