"""A reading with what follows from it: hosts with their GPUs' states, counts, stragglers, waste. Pure, frozen data."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Literal

from msgspec import Struct

from gputop.features.fleet.address import ssh_command
from gputop.features.fleet.fleet_reading import Down, FiringAlert, FleetReading, JobName
from gputop.features.fleet.gpu_group import (
    Gpu,
    GpuGroup,
    Hours,
    host_groups,
    hours_by,
    mean,
    powers_of,
    share_groups,
    waste_and_idle,
    whole_jobs,
)
from gputop.features.fleet.judge import (
    ABSENT,
    FLEET_NOT_WORK,
    FLEET_STATES,
    FleetState,
    Straggler,
    host_verdict,
    state_of,
    stragglers,
)
from gputop.model.quantity import count


class WastedHours(Struct, frozen=True):
    """GPU-hours of the last hour that a job of a user did not use, by cause: a verdict of the node, or a state."""

    job: JobName
    user: str
    cause: str
    state: FleetState
    gpu_h: float
    gpus: int


class FleetFrame(Struct, frozen=True, dict=True):
    """Everything that is shown of a fleet at one moment. ``counts`` are GPUs by state.

    What only some screens need is computed on first use, once per frame.
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

    @property
    def alerts(self) -> Sequence[FiringAlert]:
        """The alerts firing in Prometheus."""
        return self.read.alerts

    def ssh(self, host: str) -> str | None:
        """The command that opens gputop on a host; None for a redacted name, and for one that ssh could misread."""
        return None if self.read.is_redacted else ssh_command(host)

    @cached_property
    def total(self) -> int:
        """All GPUs, those that are lost and those of hosts that are down among them."""
        return sum(host.size for host in self.hosts)

    @cached_property
    def models(self) -> Mapping[str, int]:
        """GPUs by product name, the most frequent first; empty where no exporter names it."""
        return dict(Counter(gpu.read.model for host in self.hosts for gpu in host.gpus).most_common())

    @cached_property
    def powers(self) -> list[float | None]:
        """The power of each GPU that answers; None where it is not known."""
        if self.read.shares:
            return powers_of(self.read.shares)
        return [gpu.read.power_w for host in self.hosts for gpu in host.gpus if gpu.state not in ABSENT]

    @cached_property
    def power_w(self) -> float:
        """The sum over the GPUs that answer and whose power is known."""
        return sum(power or 0.0 for power in self.powers)

    @cached_property
    def measured(self) -> int:
        """GPUs that answer and whose SM activity is measured."""
        return sum(
            gpu.read.sm_active_pct is not None for host in self.hosts for gpu in host.gpus if gpu.state not in ABSENT
        )

    @cached_property
    def not_work_gpu_h(self) -> float | None:
        """GPU-hours of the last hour that were not work, including idle ones; None until they were read."""
        if self.read.lost is None:
            return None
        return sum(lost.gpu_h for lost in self.read.lost if lost.state in FLEET_NOT_WORK)

    @cached_property
    def jobs(self) -> tuple[GpuGroup, ...]:
        """The GPUs by job; those without one are a group of their own, the last one."""
        return share_groups(self.read, "job", self.stragglers) if self.read.shares else _groups_of(self, "job")

    @cached_property
    def users(self) -> tuple[GpuGroup, ...]:
        """The GPUs by user; those without one are a group of their own, the last one."""
        return share_groups(self.read, "user", self.stragglers) if self.read.shares else _groups_of(self, "user")

    @cached_property
    def orders(self) -> dict[tuple[str, ...], tuple[GpuGroup, ...]]:
        """Groups in the orders used so far: sorting a thousand hosts is too much for every key."""
        return {}


def fleet_frame(read: FleetReading) -> FleetFrame:
    """The frame of a reading. Of a large fleet, which is read from shares, only some GPUs are known one by one."""
    kinds = {host: down.kind for host, down in read.down.items()}
    gpus = [Gpu(gpu, *state_of(gpu, down=kinds.get(gpu.host, ""))) for gpu in read.gpus]
    straggling = stragglers(whole_jobs(read, [gpu.read for gpu in gpus if gpu.state not in ABSENT]))
    hosts = host_groups(read, gpus, straggling) if read.shares else _hosts(read, gpus, straggling)
    counts: Counter[FleetState] = Counter()
    for host in hosts:
        counts.update(host.counts)
    notes = [] if read.shares else _missing(gpus)
    return FleetFrame(
        read,
        hosts,
        {state: counts[state] for state in FLEET_STATES},
        tuple(straggling),
        _waste(gpus, read),
        (*read.problems, *notes, *([read.lost_note] if read.lost_note else ())),
    )


def _hosts(read: FleetReading, gpus: Sequence[Gpu], straggling: Sequence[Straggler]) -> tuple[GpuGroup, ...]:
    by_host: dict[str, list[Gpu]] = defaultdict(list)
    for gpu in gpus:
        by_host[gpu.read.host].append(gpu)
    for host in read.down:
        by_host.setdefault(host, [])
    context, hours = Context(straggling), hours_by(read, "host")
    return tuple(context.group(name, members, hours, read.down.get(name)) for name, members in by_host.items())


class Context:
    """Stragglers of a reading, looked up by GPU and job."""

    def __init__(self, straggling: Sequence[Straggler]) -> None:
        self._straggles = {(straggler.host, straggler.gpu): straggler for straggler in straggling}
        self._of_job = {straggler.job: straggler for straggler in straggling}

    def group(self, name: str, gpus: Iterable[Gpu], hours: Hours | None, down: Down | None = None) -> GpuGroup:
        """These GPUs as one group."""
        members = tuple(sorted(gpus, key=_by_number))
        reads = [gpu.read for gpu in members]
        # A host as a whole stands without a GPU.
        places = dict.fromkeys((gpu.host, number) for gpu in reads for number in (gpu.gpu, ""))
        straggling = [self._straggles[place] for place in places if place in self._straggles]
        waste, idle = waste_and_idle(hours, name)
        gaps = [gpu.gap_pct for gpu in members]
        return GpuGroup(
            name,
            members,
            tuple(dict.fromkeys(gpu.host for gpu in reads)),
            tuple(dict.fromkeys(gpu.job for gpu in reads if gpu.job)),
            tuple(dict.fromkeys(gpu.user for gpu in reads if gpu.user)),
            host_verdict([(gpu.read, gpu.state) for gpu in members], down, straggling, self._of_job),
            mean(gpu.util_pct for gpu in reads),
            mean(gpu.sm_active_pct for gpu in reads),
            mean(gaps),
            _sum(gpu.power_w for gpu in reads),
            waste,
            idle,
            len(straggling),
            down,
        )


def _groups_of(frame: FleetFrame, by: Literal["job", "user"]) -> tuple[GpuGroup, ...]:
    by_name: dict[str, list[Gpu]] = defaultdict(list)
    for host in frame.hosts:
        for gpu in host.gpus:
            by_name[getattr(gpu.read, by)].append(gpu)
    without = by_name.pop("", None)
    context, hours = Context(frame.stragglers), hours_by(frame.read, by)
    named = [context.group(name, members, hours) for name, members in by_name.items()]
    return (*named, context.group("", without, hours)) if without else tuple(named)


def _by_number(gpu: Gpu) -> tuple[str, tuple[int, ...], str]:
    return gpu.read.host, _numbers(gpu.read.gpu), gpu.read.gpu


@lru_cache(maxsize=1024)
def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d{1,9}", text))


def _sum(values: Iterable[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return sum(measured) if measured else None


def _waste(gpus: Sequence[Gpu], read: FleetReading) -> tuple[WastedHours, ...]:
    """The last hour's lost GPU-hours by job, user and cause, the most first; idle hours outside of any job come
    last."""
    # A job's hosts may have different exporters: the cause that one node names holds for the job.
    causes: dict[tuple[str, str | None], str] = {}
    for gpu in gpus:
        if gpu.read.own_verdict is not None:
            causes.setdefault((gpu.read.job, gpu.read.own_state), gpu.read.own_verdict)
    hours: dict[tuple[JobName, str, str, FleetState], float] = defaultdict(float)
    members: dict[tuple[JobName, str, str, FleetState], set[tuple[str, str]]] = defaultdict(set)
    for lost in read.lost or ():
        cause = causes.get((lost.job, lost.state), lost.state) if lost.job else lost.state
        key = (lost.job, lost.user, cause, lost.state)
        hours[key] += lost.gpu_h
        members[key].add((lost.host, lost.gpu))
    sizes: Counter[tuple[str, str, str]] = Counter()
    for share in read.shares:
        sizes[share.host, share.job, share.user] += share.gpus
    if not read.shares:
        sizes.update((gpu.read.host, gpu.read.job, gpu.read.user) for gpu in gpus)
    rows = [WastedHours(*key, gpu_h, _size(members[key], key, sizes)) for key, gpu_h in hours.items() if gpu_h > 0.0]
    return tuple(sorted(rows, key=lambda row: (row.state == "idle", -row.gpu_h, row.job, row.cause)))


def _size(members: set[tuple[str, str]], key: tuple[str, ...], sizes: Mapping[tuple[str, str, str], int]) -> int:
    """How many GPUs these are: of a host all that the owner has there now."""
    job, user = key[:2]
    return sum(1 if gpu else sizes.get((host, job, user), 0) for host, gpu in members)


def _missing(gpus: Sequence[Gpu]) -> list[str]:
    """What is not exported and could be, reported once for the fleet."""
    bare = [gpu for gpu in gpus if gpu.read.sm_active_pct is None and gpu.state not in ABSENT]
    dcgm = {gpu.read.names for gpu in bare} & {"legacy", "4.9"}
    if not dcgm:
        return []
    hosts = len({gpu.read.host for gpu in bare if gpu.read.names in dcgm})
    row = "DCGM_FI_PROF_SM_ACTIVE, gauge, SM activity"
    return [f"no SM activity from {count(hosts, 'host')}: dcgm-exporter's CSV needs {row}"]
