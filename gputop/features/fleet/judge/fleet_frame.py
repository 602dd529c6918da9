"""Build hosts, jobs and users from a reading, with states, stragglers and waste.

Takes a ``FleetReading``; returns a ``FleetFrame``, which screen and data only show. Of a small fleet it is made of its
GPUs, of a large one from the shares that the rules record, and as old as the reading. Pure, frozen data.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gputop.features.fleet.exporter_names import DIALECTS, group_of
from gputop.features.fleet.fleet_reading import (
    Down,
    FleetReading,
    FleetState,
    GpuReading,
    HostShare,
    JobName,
)
from gputop.features.fleet.judge import gpu_state, group_verdict, straggler
from gputop.features.fleet.judge.gpu_state import Gpu, gap
from gputop.features.fleet.judge.group_verdict import FleetVerdict
from gputop.features.fleet.judge.straggler import Straggler
from gputop.model.quantity import count


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
    faults: Sequence[str] = ()
    """Faults of a host besides the states of its GPUs."""

    @property
    def key(self) -> str:
        """Identifies the group among all of its kind."""
        return self.name

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
        return group_verdict.remedy_of(self.gpus, self.verdict.state)


OF_JOBS: tuple[FleetState, ...] = (
    "busy_not_working",
    "starved",
    "idle_allocated",
    "allocated_unused",
)
"""States in which a job keeps a GPU from others and does no work on it."""


def worst_first(group: GpuGroup) -> tuple[float, float, str]:
    """Sort key: worst state first, then waste."""
    waste = group.waste_gpu_h
    if waste is None:
        waste = sum(group.counts.get(state, 0) for state in OF_JOBS)
    return group_verdict.severity(group.verdict), -waste, group.name


GroupedBy = Literal["host", "job", "user"]


class WastedHours(Struct, frozen=True):
    """GPU-hours of the last hour wasted by a job, with their cause.

    The cause is a verdict of the node, or a state.
    """

    job: JobName
    user: str
    cause: str
    state: FleetState
    gpu_h: float
    gpus: int

    @property
    def key(self) -> str:
        """Identifies the row among all."""
        return f"{self.job}\t{self.user}\t{self.cause}"


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

    @cached_property
    def most_wasted_gpu_h(self) -> float:
        """The most hours of a job, to which bars are drawn."""
        return max((row.gpu_h for row in self.waste if row.state != "idle"), default=1.0)

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
        shares = _shares(self.read, self.present)
        known = [share for share in shares if share.power_w is not None]
        power_w = sum(share.power_w or 0.0 for share in known)
        return power_w, sum(share.gpus for share in known), sum(share.gpus for share in shares)

    @cached_property
    def measured(self) -> int:
        """GPUs that answer and whose SM activity is measured."""
        return sum(gpu.read.sm_active_pct is not None for gpu in self.present)

    @cached_property
    def not_work_gpu_h(self) -> float | None:
        """GPU-hours of the last hour that were no work; None until read."""
        lost = self.read.hour.lost
        return None if lost is None else sum(row.gpu_h for row in lost)

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
    def _waste_by_hosts(self) -> dict[frozenset[str], tuple[WastedHours, ...]]:
        return {}

    def waste_of(self, hosts: frozenset[str]) -> tuple[WastedHours, ...]:
        """GPU-hours without work of some hosts, by job, user and cause."""
        known = self._waste_by_hosts.get(hosts)
        if known is not None:
            return known
        hour = self.read.hour
        lost = [row for row in hour.lost or () if row.host in hosts]
        shares = [share for share in self.read.shares if share.host in hosts]
        read = replace(self.read, hour=replace(hour, lost=lost), shares=shares)
        waste = _waste([gpu for gpu in self.gpus if gpu.read.host in hosts], read)
        self._waste_by_hosts[hosts] = waste
        return waste

    @cached_property
    def orders(self) -> dict[tuple[str, ...], tuple[GpuGroup, ...]]:
        """Groups by order; sorting a thousand hosts at every key is slow."""
        return {}


def fleet_frame(read: FleetReading, before: FleetFrame | None = None) -> FleetFrame:
    """Build the frame of a reading.

    A large fleet is read from shares, and only some GPUs are known: hosts that are as ``before`` are taken from there.
    """
    kinds = {host: down.kind for host, down in read.down.items()}
    judged = (Gpu(gpu, *gpu_state.state_of(gpu, down=kinds.get(gpu.host, ""))) for gpu in read.gpus)
    gpus = sorted(judged, key=lambda gpu: (gpu.read.host, _numbers(gpu.read.gpu), gpu.read.gpu))
    late = straggler.stragglers(
        _of_whole_jobs(read, [gpu.read for gpu in gpus if gpu.state not in gpu_state.ABSENT])
    )
    known = {}
    # The rules record something new of a host once a minute.
    if (
        before
        and read.shares
        and (read.shares is before.read.shares and read.hour is before.read.hour)
        and ((read.down, read.missing) == (before.read.down, before.read.missing))
        and read.faults == before.read.faults
    ):
        known = {host.name: host for host in before.hosts if not host.gpus and not host.stragglers}
    hosts = _groups(read, "host", gpus, late, known)
    counts: dict[FleetState, int] = dict.fromkeys(gpu_state.FLEET_STATES, 0)
    for host in hosts:
        for state, n in host.counts.items():
            counts[state] += n
    repeated = (
        f"{host} has the GPUs of {other}: they count once" for host, other in read.repeated.items()
    )
    faults = (f"{host}: {text}" for host, texts in read.faults.items() for text in texts)
    problems = (
        *read.problems,
        *faults,
        *repeated,
        *([] if read.shares else _without_sm(gpus)),
        read.hour.note,
    )
    return FleetFrame(
        read, hosts, counts, tuple(late), _waste(gpus, read), tuple(filter(None, problems))
    )


def group_of_gpu(host: GpuGroup, gpu: Gpu) -> GpuGroup:
    """One GPU of a host as a group of its own."""
    read = gpu.read
    counts: dict[FleetState, int] = {gpu.state: 1}
    return replace(
        host,
        gpus=(gpu,),
        jobs=tuple(filter(None, (read.job,))),
        users=tuple(filter(None, (read.user,))),
        counts=counts,
        verdict=group_verdict.verdict_of(counts, (gpu,), host.down, (), {}),
        util_pct=read.util_pct,
        sm_active_pct=read.sm_active_pct,
        gap_pct=gpu.gap_pct,
        power_w=read.power_w,
        stragglers=0,
        faults=(),
    )


def _of_whole_jobs(read: FleetReading, gpus: Sequence[GpuReading]) -> Sequence[GpuReading]:
    """GPUs of jobs that are known completely: only these can have stragglers."""
    if not read.shares:
        return gpus
    sizes = Counter[JobName]()
    for share in read.shares:
        sizes[group_of(share.job)] += share.gpus
    known = Counter(group_of(gpu.job) for gpu in gpus if gpu.job)
    return [gpu for gpu in gpus if gpu.job and known[job := group_of(gpu.job)] >= sizes[job]]


def _shares(read: FleetReading, gpus: Iterable[Gpu]) -> list[HostShare]:
    """Shares as they were read, with absent hosts; else each GPU as one."""
    if read.shares:
        kinds = {host: down.kind for host, down in read.down.items()}
        return [
            replace(share, states={kinds[share.host]: share.gpus}) if share.host in kinds else share
            for share in read.shares
        ]
    return [
        HostShare(
            gpu.read.host,
            gpu.read.job,
            gpu.read.user,
            {gpu.state: 1},
            gpu.read.util_pct,
            gpu.read.sm_active_pct,
            gpu.read.power_w,
        )
        for gpu in gpus
    ]


@lru_cache(maxsize=1024)
def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d{1,9}", text))


def _groups(
    read: FleetReading,
    by: GroupedBy,
    gpus: Sequence[Gpu],
    straggling: Sequence[Straggler],
    known: Mapping[str, GpuGroup] = {},
) -> tuple[GpuGroup, ...]:
    """Group the fleet by host, job or user: sums of the shares that owners have of hosts.

    GPUs without a job or user are the last group.
    """
    members = _members(read, by, gpus)
    # Of a large fleet only hosts in sight have GPUs of their own.
    grouped = _GroupedGpus(by, gpus if by == "host" or not read.shares else ())
    late_of = grouped.stragglers(straggling)
    hours = _hours(read, by)
    late_of_job = {late.job: late for late in straggling}
    groups: list[GpuGroup] = []
    for name, shares in members.items():
        if name in known and name not in grouped.gpus_of:
            groups.append(known[name])
            continue
        own = tuple(grouped.gpus_of.get(name, ()))
        late = late_of.get(name, [])
        group = _group(name, shares, own, len(late))
        if by == "host":
            group = _as_host(group, read)
        of_hour = (None, None) if hours is None else hours.get(name, (0.0, 0.0))
        waste_gpu_h, idle_gpu_h = of_hour
        judged = group_verdict.verdict_of(group.counts, own, group.down, late, late_of_job)
        groups.append(
            replace(
                group,
                verdict=group_verdict.with_faults(judged, group.faults),
                waste_gpu_h=waste_gpu_h,
                idle_gpu_h=idle_gpu_h,
            )
        )
    return tuple(groups)


def _members(
    read: FleetReading, by: GroupedBy, gpus: Sequence[Gpu]
) -> Mapping[str, Sequence[HostShare]]:
    """Shares by host, job or user, with hosts that have none."""
    members: dict[str, list[HostShare]] = defaultdict(list)
    for share in _shares(read, gpus):
        members[getattr(share, by)].append(share)
    if by == "host":
        for host in (*read.down, *read.missing):
            members.setdefault(host, [])
    elif "" in members:
        members[""] = members.pop("")
    return members


class _GroupedGpus:
    """GPUs by host, job or user, and the groups that each of them is in."""

    def __init__(self, by: GroupedBy, gpus: Sequence[Gpu]) -> None:
        self._by = by
        self.gpus_of: dict[str, list[Gpu]] = defaultdict(list)
        self._names_of: dict[tuple[str, str], set[str]] = defaultdict(set)
        for gpu in gpus:
            name = getattr(gpu.read, by)
            self.gpus_of[name].append(gpu)
            self._names_of[gpu.read.host, gpu.read.gpu].add(name)
            # A host that straggles as a whole has no number.
            self._names_of[gpu.read.host, ""].add(name)

    def stragglers(self, straggling: Sequence[Straggler]) -> Mapping[str, list[Straggler]]:
        """Stragglers by group."""
        found: dict[str, list[Straggler]] = defaultdict(list)
        for late in straggling:
            names = self._names_of.get((late.host, late.gpu), (getattr(late, self._by),))
            for name in names:
                found[name].append(late)
        return found


_NOT_JUDGED = FleetVerdict("idle", "grey", "")


def _group(name: str, shares: Sequence[HostShare], gpus: tuple[Gpu, ...], late: int) -> GpuGroup:
    """Sum the shares of a group; it has no verdict yet."""
    counts = Counter[FleetState]()
    for share in shares:
        counts.update(share.states)
    powers = [share.power_w for share in shares if share.power_w is not None]
    return GpuGroup(
        name,
        gpus,
        hosts=tuple(dict.fromkeys(share.host for share in shares)),
        jobs=tuple(dict.fromkeys(share.job for share in shares if share.job)),
        users=tuple(dict.fromkeys(share.user for share in shares if share.user)),
        counts=counts,
        verdict=_NOT_JUDGED,
        util_pct=mean((share.util_pct, share.gpus) for share in shares),
        sm_active_pct=mean((share.sm_active_pct, share.gpus) for share in shares),
        gap_pct=mean((gap(share), share.gpus) for share in shares),
        power_w=sum(powers) if powers else None,
        waste_gpu_h=None,
        idle_gpu_h=None,
        stragglers=late,
    )


def _as_host(group: GpuGroup, read: FleetReading) -> GpuGroup:
    """The group with what is known of a host alone."""
    name = group.name
    down = read.down.get(name)
    counts = Counter(group.counts)
    missing = read.missing.get(name, 0)
    if missing:
        counts["lost" if down is None else down.kind] += missing
    hosts = group.hosts
    if read.shares and not hosts:
        hosts = (name,)
    return replace(
        group,
        hosts=hosts,
        counts=counts,
        down=down,
        own_name=read.own_names.get(name, ""),
        faults=read.faults.get(name, ()),
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
    """GPU-hours without work by host, job or user: of jobs, and of nobody."""
    if read.hour.lost is None:
        return None
    hours: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for lost in read.hour.lost:
        name = getattr(lost, by)
        waste, idle = hours[name]
        hours[name] = (
            (waste, idle + lost.gpu_h) if lost.state == "idle" else (waste + lost.gpu_h, idle)
        )
    return hours


class _WasteKey(NamedTuple):
    """Under what lost GPU-hours are added up."""

    job: JobName
    user: str
    cause: str
    state: FleetState


def _waste(gpus: Sequence[Gpu], read: FleetReading) -> tuple[WastedHours, ...]:
    """GPU-hours without work by job, user and cause, the most first.

    Idle hours outside of any job come last.
    """
    if not read.hour.lost:
        return ()
    causes = _causes(gpus)
    hours: dict[_WasteKey, float] = defaultdict(float)
    members: dict[_WasteKey, set[tuple[str, str]]] = defaultdict(set)
    for lost in read.hour.lost:
        cause: str = lost.state
        if lost.job:
            cause = causes.get((lost.job, lost.state), lost.state)
        key = _WasteKey(lost.job, lost.user, cause, lost.state)
        hours[key] += lost.gpu_h
        members[key].add((lost.host, lost.gpu))
    sizes = _sizes(gpus, read)
    rows: list[WastedHours] = []
    for key, gpu_h in hours.items():
        if gpu_h <= 0.0:
            continue
        n_gpus = 0
        for host, gpu in members[key]:
            # Of a host as a whole these are all GPUs that the owner has there now.
            n_gpus += 1 if gpu else sizes[host, key.job, key.user]
        rows.append(WastedHours(key.job, key.user, key.cause, key.state, gpu_h, n_gpus))
    return tuple(sorted(rows, key=_most_first))


def _most_first(row: WastedHours) -> tuple[bool, float, str, str]:
    return row.state == "idle", -row.gpu_h, row.job, row.cause


def _causes(gpus: Sequence[Gpu]) -> Mapping[tuple[str, str | None], str]:
    """The cause that nodes name for a job's state.

    A job's hosts may have different exporters: the cause that one node names holds for the job.
    """
    causes: dict[tuple[str, str | None], str] = {}
    for gpu in reversed(gpus):
        read = gpu.read
        if read.own_verdict:
            causes[read.job, read.own_state] = read.own_verdict
    return causes


def _sizes(gpus: Sequence[Gpu], read: FleetReading) -> Counter[tuple[str, str, str]]:
    """How many GPUs an owner has on a host now, by host, job and user."""
    sizes: Counter[tuple[str, str, str]] = Counter()
    if not read.shares:
        sizes.update((gpu.read.host, gpu.read.job, gpu.read.user) for gpu in gpus)
        return sizes
    for share in read.shares:
        sizes[share.host, share.job, share.user] += share.gpus
    return sizes


def _without_sm(gpus: Sequence[Gpu]) -> list[str]:
    """Lines on SM activity that is not there, by exporter, and on what helps."""
    hosts: dict[str, set[str]] = defaultdict(set)
    for gpu in gpus:
        if gpu.read.sm_active_pct is None and gpu.state not in gpu_state.ABSENT:
            hosts[gpu.read.names].add(gpu.read.host)
    dcgm = len({host for name in ("legacy", "4.9") for host in hosts.pop(name, ())})
    lines = []
    if dcgm:
        row = "DCGM_FI_PROF_SM_ACTIVE, gauge, SM activity"
        lines.append(f"no SM activity from {count(dcgm, 'host')}: dcgm-exporter's CSV needs {row}")
    for name, of_name in hosts.items():
        dialect = DIALECTS.get(name)
        if dialect is not None and not dialect.measures_sm:
            lines.append(
                f"no SM activity from {count(len(of_name), 'host')}: {dialect.words} does not "
                "measure it; gputop export or dcgm-exporter there does"
            )
    return lines
