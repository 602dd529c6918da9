"""A fleet's numbers at one moment, whatever their source.

Nothing is judged here. A value that is not measured is None. From the outside in: the reading, the names of jobs in it,
its GPUs, absent hosts, the last hour, alerts, shares; and who gives it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from gputop.diagnosis.types import Level, State
from gputop.model.snapshot import POD


class NameOf(Struct, frozen=True):
    """Marks a field that may name a person or a machine; ``kind`` says how it is hidden."""

    kind: Literal["host", "device", "cluster", "user", "process", "verdict", "words", "labels"]


HostName = Annotated[str, NameOf("host")]
DeviceName = Annotated[str, NameOf("device")]
ClusterName = Annotated[str, NameOf("cluster")]
UserName = Annotated[str, NameOf("user")]
ProcessName = Annotated[str, NameOf("process")]
VerdictName = Annotated[str | None, NameOf("verdict")]
Words = Annotated[str, NameOf("words")]
"""A line for people, in which names may occur."""
AboutLabels = Annotated[Mapping[str, str], NameOf("labels")]

GpuState = State | Literal["allocated_unused"]
"""The state of a GPU that is there: of a node, or that a job holds it and no process uses it, which a node by itself
does not know."""
FleetState = GpuState | Literal["down", "late", "pending", "lost"]
WINDOW_S = 300.0
"""The time over which utilisation and SM activity are means: a state in the fleet covers five minutes."""
HOUR_S, MINUTES = 3600.0, 60
GpuId = tuple[str, str, str]
"""See ``gpu_id``."""
History = Mapping[str, tuple[Sequence[float | None], Sequence[float | None]]]
"""GPU → utilisation and SM activity in percent by minute of an hour, the oldest first; None where not measured."""
NO_ANSWER = "the exporter does not answer"
LATE_DRIVER = "the driver does not answer: it is late or hangs"
"""Why a host has no values."""
SIMULATED = "simulated"
"""The source of a reading that came from no engine."""


class FleetReading(Struct, frozen=True):
    """A fleet at Unix time ``t``.

    ``down`` holds hosts without current values; their GPUs carry the last ones. GPUs of hosts that are ``gone`` are in
    no other list. With ``shares`` the fleet is read from them, ``gpus`` are on some hosts alone, and ``missing`` counts
    GPUs of the last day by host. ``age_s`` is the age of the newest value.
    """

    t: float
    source: Words
    gpus: Sequence[GpuReading]
    down: Mapping[HostName, Down] = {}
    names: tuple[str, ...] = ()
    age_s: float | None = None
    hour: LastHour = field(default_factory=lambda: LastHour())
    alerts: Sequence[FiringAlert] = ()
    problems: tuple[Words, ...] = ()
    gone: Mapping[HostName, RemovedHost] = {}
    shares: Sequence[HostShare] = ()
    missing: Mapping[HostName, int] = {}
    faults: Mapping[HostName, Sequence[Words]] = {}
    """Faults of hosts that answer: of their page, their clock or their ports of the fabric."""
    opens: Mapping[str, Sequence[str]] = {}
    """Hosts that are reached by ssh, with the command that opens their own screen."""
    own_names: Mapping[str, str] = {}
    """What hosts call themselves that are known by another name."""
    repeated: Mapping[HostName, HostName] = {}
    """Hosts whose GPUs all count under another host."""


NUMBER = "job"
"""The kind of a job whose number is known, and not its scheduler."""


class JobName(str):
    """A job's name for people, with its kind, name and cluster.

    The kind is a scheduler, ``pod`` or ``container``. The cluster comes first if there are several: each counts its
    jobs from 1. Empty if no job is known.
    """

    __slots__ = ("cluster", "kind", "name")
    kind: str
    name: str
    cluster: str

    def __new__(cls, kind: str = "", name: str = "", cluster: str = "") -> JobName:
        words = f"{kind} {name}" if name else kind
        made = super().__new__(cls, f"{cluster}/{words}" if cluster and words else words)
        made.kind, made.name, made.cluster = kind, name, cluster
        return made

    def within(self, cluster: str) -> JobName:
        """The job of this cluster; empty stays empty."""
        return JobName(self.kind, self.name, cluster) if self and cluster else self


NO_JOB = JobName()


def with_schedulers(jobs: Sequence[JobName]) -> list[JobName]:
    """Replace job numbers by the scheduler's name for them in their cluster."""
    known = {
        (job.cluster, job.name): job for job in jobs if job.name and job.kind not in (NUMBER, POD)
    }
    return [known.get((job.cluster, job.name), job) if job.kind == NUMBER else job for job in jobs]


class FleetError(Exception):
    """A fleet that cannot be read: one line with advice."""


class GpuReading(Struct, frozen=True, gc=False):
    """Values and facts of one GPU or MIG instance (``0/3``).

    It is in no cycle of references, so the collector, which took a third of a refresh, leaves it alone.

    Utilisation and SM activity are means over ``WINDOW_S`` seconds, the other values the newest ones; keys and units
    are from the metric catalogue. ``is_quiet``: the 95th percentile of utilisation was below 5 %, None if not answered;
    ``unanswered`` are keys that were not answered. ``names`` is the dialect. ``own_state``, ``own_level`` and
    ``own_verdict`` come from gputop on the node. A GPU that ``is_lost`` was there within the last day, and its host
    answers without it. ``is_allocated``: a job holds it by the word of the scheduler or the kubelet. ``step_s`` and
    ``step_wait_s`` are the mean training step of its ranks and their wait in it.
    """

    host: HostName
    gpu: str
    uuid: DeviceName = ""
    model: str = ""
    names: str = ""
    util_pct: float | None = None
    sm_active_pct: float | None = None
    tensor_active_pct: float | None = None
    dram_active_pct: float | None = None
    graphics_active_pct: float | None = None
    power_w: float | None = None
    mem_used_bytes: float | None = None
    temp_c: float | None = None
    is_quiet: bool | None = False
    job: JobName = NO_JOB
    user: UserName = ""
    own_state: State | None = None
    own_verdict: VerdictName = None
    is_lost: bool = False
    is_allocated: bool = False
    step_s: float | None = None
    step_wait_s: float | None = None
    unanswered: frozenset[str] = frozenset()
    cluster: ClusterName = ""
    mig: str = ""
    process: ProcessName = ""
    """A program on the GPU, where its exporter names no job and no user."""
    own_level: Level | None = None

    @property
    def id(self) -> GpuId:
        """See ``gpu_id``."""
        return gpu_id(self.cluster, self.uuid, self.mig, self.host, self.gpu)

    @property
    def own_step_s(self) -> float | None:
        """The mean step without what its ranks waited; None where either is unknown."""
        if self.step_s is None or self.step_wait_s is None:
            return None
        return max(0.0, self.step_s - self.step_wait_s)


def gpu_id(cluster: str, uuid: str, mig: str, host: str, gpu: str) -> GpuId:
    """The identity of a GPU or MIG instance, whichever exporters and addresses name it.

    Cluster and UUID; without a UUID cluster, host and number.
    """
    return (cluster, uuid, mig) if uuid else (cluster, host, gpu)


def merged(gpus: Iterable[GpuReading]) -> list[GpuReading]:
    """Each GPU once: the first reading, completed by values that only later ones have.

    Every reader of a fleet ends with this function. A measured 0 is a value.
    """
    by_id: dict[GpuId, GpuReading] = {}
    for gpu in gpus:
        first = by_id.get(gpu.id)
        by_id[gpu.id] = gpu if first is None else _completed(first, gpu)
    return list(by_id.values())


def _completed(first: GpuReading, other: GpuReading) -> GpuReading:
    unknown = [key for key in first.__struct_fields__ if getattr(first, key) in (None, "")]
    # An exporter that names a job sees a process of it.
    is_allocated = first.is_allocated or (not first.job and other.is_allocated)
    from_other = {key: getattr(other, key) for key in unknown}
    return replace(
        first, is_lost=first.is_lost and other.is_lost, is_allocated=is_allocated, **from_other
    )


class Down(Struct, frozen=True):
    """A host without current values, and why.

    Its exporter does not answer (``down``), answers that the driver hangs (``late``), or has not been asked yet
    (``pending``). ``since_s`` is the age of its last values, None if unknown.
    """

    since_s: float | None
    reason: Words
    kind: Literal["down", "late", "pending"] = "down"


class RemovedHost(Struct, frozen=True):
    """A host of the last day that nothing lists any more."""

    gpus: int
    since_s: float | None


class Lost(Struct, frozen=True):
    """GPU-hours without work under the job that the GPU had then.

    Of one GPU, or of a host where ``gpu`` is empty.
    """

    host: HostName
    gpu: str
    job: JobName
    user: UserName
    state: GpuState
    gpu_h: float


class LastHour(Struct, frozen=True):
    """The GPU time without work in the last ``span_s`` seconds.

    ``lost`` is None until it was read, and where it cannot be, as ``note`` says.
    """

    lost: Sequence[Lost] | None = None
    span_s: float = HOUR_S
    note: str = ""
    source: Literal["rules", "samples", "pages", "simulated"] = "pages"
    """The source: recorded by rules, judged from samples, or counted from hosts' pages."""


class FiringAlert(Struct, frozen=True):
    """An alert firing in Prometheus. ``labels`` are what it is about."""

    name: str
    severity: str
    host: HostName
    labels: AboutLabels

    @property
    def about(self) -> str:
        """The labels as text."""
        return " ".join(f"{name}={value}" for name, value in self.labels.items())

    @property
    def key(self) -> str:
        """Identifies the alert among those that fire."""
        return f"{self.name}\t{self.host}\t{self.about}"


class HostShare(Struct, frozen=True, gc=False):
    """GPUs of one owner on a host: states, means and power.

    A large fleet is read from shares, as the rules recorded them.
    """

    host: HostName
    job: JobName
    user: UserName
    states: Mapping[FleetState, int]
    util_pct: float | None = None
    sm_active_pct: float | None = None
    power_w: float | None = None

    @property
    def gpus(self) -> int:
        """How many GPUs these are."""
        return sum(self.states.values())


def with_hour(read: FleetReading, hour: LastHour | None) -> FleetReading:
    """The reading with its last hour, if that was read."""
    return read if hour is None else replace(read, hour=hour)


class FleetSource(Protocol):
    """A source of fleet readings: an engine, hosts, or a simulation.

    Called from one thread; may block; raises FleetError.
    """

    source: str
    interval_s: float

    @abstractmethod
    def ask(self, at: float | None = None) -> FleetReading:
        """The fleet at a Unix time, or now."""

    @abstractmethod
    def history(self, host: str, t: float) -> History:
        """Utilisation and SM activity of a host's GPUs in the hour before ``t``."""

    def settle(self) -> None:
        """Wait for answers that a first ``ask`` would leave for later."""
        return

    def hour(self, t: float) -> LastHour | None:
        """The last hour, if ``ask`` does not give it."""
        return None

    def look(self, hosts: Sequence[str], at: float | None) -> Sequence[GpuReading] | None:
        """The GPUs of these hosts; None where ``ask`` gives every GPU."""
        return None

    def details(self, host: str, at: float | None) -> Mapping[str, Mapping[str, float]]:
        """Values for the host on screen alone, by GPU."""
        return {}

    def close(self) -> None:
        """End every connection."""
        return
