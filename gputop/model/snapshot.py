"""A snapshot: what was measured at one moment.

Frozen, without behaviour and without I/O. Live collection, the demo, replay and every test make the same types. A
value that was not measured is None, and ``unavailable`` says why by key; it is never 0, NaN or a text.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct

from gputop.model.feeders import MainLooks, Outsider, WaitEnd, outsider_words
from gputop.model.metrics import (
    GPU_METRICS,
    GPU_STATE,
    GPU_STATIC,
    HOST_METRICS,
    PROCESS_METRICS,
    PROCESS_STATIC,
    SM_PROVENANCE,
)
from gputop.model.serving import ServerRow
from gputop.model.sm import SmLack, SmSource
from gputop.model.steps import StepPeriod, StepRow

Role = Literal["gpu", "loader", "helper", "orphan"]
EventKind = Literal["mark", "verdict", "gap", "gpu_lost", "ecc", "xid", "throttle"]
ROLES: frozenset[str] = frozenset(get_args(Role))
EVENT_KINDS: frozenset[str] = frozenset(get_args(EventKind))

GAP_INTERVALS = 3.0
"""A sample stands for the time since the one before it, unless more than so many intervals lie between (a gap)."""

Collector = Literal["nvml", "proc"]
"""Who measures: the GPUs and what is on them, or the host and its processes."""
COLLECTORS: tuple[Collector, ...] = get_args(Collector)

NOTHING_MISSING: Mapping[str, str] = MappingProxyType({})
NOTHING_LATE: Mapping[str, float] = MappingProxyType({})

NOT_READ_YET = "not yet read from /proc"
"""Why a process lacks all that /proc tells, in a snapshot that did not wait for it: the next one has it."""


class GpuStatic(Struct, frozen=True):
    """Facts of one GPU that do not change while it is watched. Keys as in ``metrics.GPU_STATIC``."""

    index: int
    uuid: str
    name: str
    architecture: str | None = None
    sm_count: int | None = None
    pci_bus_id: str | None = None
    driver: str | None = None
    nvlink_peak_bytes_per_s: float | None = None
    mig_enabled: bool | None = None
    mig_parent: str | None = None
    mig_instance: str | None = None
    unified_memory: bool | None = None

    @property
    def is_split(self) -> bool:
        """Whether all work of this GPU happens in its MIG instances."""
        return bool(self.mig_enabled) and self.mig_parent is None


class GpuSample(Struct, frozen=True):
    """One GPU at one moment. Keys and units as in ``metrics.GPU_METRICS``, ``SM_PROVENANCE`` and ``GPU_STATE``."""

    static: GpuStatic
    util_pct: float | None = None
    mem_util_pct: float | None = None
    sm_active_pct: float | None = None
    sm_occupancy_pct: float | None = None
    tensor_active_pct: float | None = None
    hmma_active_pct: float | None = None
    imma_active_pct: float | None = None
    dmma_active_pct: float | None = None
    mma_stall_pct: float | None = None
    dram_active_pct: float | None = None
    fp64_active_pct: float | None = None
    fp32_active_pct: float | None = None
    fp16_active_pct: float | None = None
    int_active_pct: float | None = None
    graphics_active_pct: float | None = None
    mem_used_bytes: float | None = None
    mem_total_bytes: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    energy_j: float | None = None
    temp_c: float | None = None
    mem_temp_c: float | None = None
    temp_slowdown_c: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    mem_clock_mhz: float | None = None
    fan_pct: float | None = None
    pstate: int | None = None
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    nvlink_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    encoder_pct: float | None = None
    decoder_pct: float | None = None
    throttle_reasons: int | None = None
    ecc_uncorrected: int | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected_volatile: int | None = None
    ecc_corrected_volatile: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    xid: int | None = None
    sm_source: SmSource = "none"
    sm_window_s: float | None = None
    sm_age_s: float | None = None
    sm_low_pct: float | None = None
    sm_high_pct: float | None = None
    sm_lack: SmLack | None = None
    lost_reason: str | None = None
    lost_since: float | None = None
    asleep: bool | None = None
    unavailable: Mapping[str, str] = NOTHING_MISSING
    doubts: Mapping[str, str] = NOTHING_MISSING
    """What is to be known of a value that is there, by its key; found when it is judged, and in no recording."""

    @property
    def pipes(self) -> tuple[float | None, ...]:
        """How active each kind of arithmetic pipe is, in percent."""
        return (
            self.tensor_active_pct, self.fp64_active_pct, self.fp32_active_pct, self.fp16_active_pct,
            self.int_active_pct,
        )  # fmt: skip

    @property
    def sm_reason(self) -> str | None:
        """``sm_lack`` in words."""
        return None if self.sm_lack is None else self.sm_lack.words


class HostSample(Struct, frozen=True):
    """The machine around the GPUs. Keys and units as in ``metrics.HOST_METRICS``."""

    cpu_pct: float | None = None
    cpu_count: float | None = None
    load1: float | None = None
    mem_used_bytes: float | None = None
    mem_total_bytes: float | None = None
    swap_used_bytes: float | None = None
    disk_read_bytes_per_s: float | None = None
    disk_write_bytes_per_s: float | None = None
    net_rx_bytes_per_s: float | None = None
    net_tx_bytes_per_s: float | None = None
    psi_cpu_pct: float | None = None
    psi_io_pct: float | None = None
    psi_mem_pct: float | None = None
    outsiders: tuple[Outsider, ...] | None = None
    """None unless a process queued for a core."""
    cpu_outsiders_pct: float | None = None
    fabric_rx_bytes_per_s: float | None = None
    fabric_tx_bytes_per_s: float | None = None
    fabric_peak_bytes_per_s: float | None = None
    fabric_drops: int | None = None
    fabric_retransmits: int | None = None
    fabric_link_errors: int | None = None
    fabric_ports_down: int | None = None
    fabric_ports_degraded: int | None = None
    tcp_retransmits: int | None = None
    unavailable: Mapping[str, str] = NOTHING_MISSING

    @property
    def cpu_outsiders(self) -> str | None:
        """``outsiders`` in words."""
        return None if self.outsiders is None else outsider_words(self.outsiders)


class FabricPort(Struct, frozen=True):
    """One port of the fabric: what the sums of the host's fabric metrics are made of. Shown live only.

    ``name`` is device and port (``mlx5_0/1``), ``kind`` InfiniBand, RoCE, iWARP or EFA.

    Bytes a second each way and for the link's speed; counters as the adapter has them since it was reset. ``trouble``
    says in words what is wrong with the link, and is empty where nothing is. A port that was never connected is
    ``spare``: its being down is no fault.
    """

    name: str
    kind: str
    state: str
    up: bool
    spare: bool = False
    width: str = ""
    peak_bytes_per_s: float | None = None
    rx_bytes_per_s: float | None = None
    tx_bytes_per_s: float | None = None
    drops: int | None = None
    retransmits: int | None = None
    link_errors: int | None = None
    trouble: str = ""


POD = "pod"
"""The kind of a Kubernetes pod."""


class CgroupName(Struct, frozen=True):
    """A batch job or a container, as its cgroup's path names it: by scheduler or engine, and its id there."""

    kind: str
    id: str = ""

    @property
    def words(self) -> str:
        """For people: ``slurm 8821``."""
        return f"{self.kind} {self.id}" if self.id else self.kind


class ProcessStatic(Struct, frozen=True):
    """Facts of one process that do not change while it lives. Keys as in ``metrics.PROCESS_STATIC``.

    Secrets in ``command`` and ``name`` are masked by the source: the raw command line is in no snapshot.
    ``server`` and ``job_key`` were drawn from it before.
    """

    user: str | None = None
    command: str | None = None
    name: str | None = None
    batch_job: CgroupName | None = None
    contained_in: CgroupName | None = None
    loader: str | None = None
    why: str | None = None
    server: str | None = None
    job_key: str | None = None
    rule: str | None = None

    @property
    def job(self) -> str | None:
        """``batch_job`` in words."""
        return None if self.batch_job is None else self.batch_job.words

    @property
    def container(self) -> str | None:
        """``contained_in`` in words."""
        return None if self.contained_in is None else self.contained_in.words


class FeedTime(Struct, frozen=True, gc=False):
    """How the time of what may feed a GPU passed, percent: a loader, or the busiest host thread of a GPU process.

    None is what may not be seen.
    """

    run: float | None = None
    queued: float | None = None
    disk: float | None = None
    network: float | None = None
    lock: float | None = None
    sleep: float | None = None
    poll: float | None = None
    other: float | None = None
    unread: float | None = None


class MainTime(Struct, frozen=True, gc=False):
    """What the main thread of a GPU process waited for while it was not runnable, percent of the time; None where that
    was not measured. ``saves`` is the part of it that it waited for a file to be written."""

    disk: float | None = None
    network: float | None = None
    lock: float | None = None
    sleep: float | None = None
    poll: float | None = None
    pipe: float | None = None
    write: float | None = None
    other: float | None = None
    unread: float | None = None
    saves: float | None = None


class ProcessSample(Struct, frozen=True):
    """One process on one GPU. A process with contexts on several GPUs has one sample for each of them.

    Keys and units as in ``metrics.PROCESS_METRICS``. ``starttime`` is None when /proc does not show the process
    (another PID namespace, hidepid); ``unavailable`` then says so. What stands deeper in it has its key as a property:
    ``feed_run_pct`` is ``feed.run``.
    """

    pid: int
    starttime: int | None = None
    ppid: int | None = None
    role: Role = "gpu"
    gpu: int | None = None
    gpu_mem_bytes: float | None = None
    gpu_time_pct: float | None = None
    type: str | None = None
    cpu_pct: float | None = None
    run_pct: float | None = None
    wait_pct: float | None = None
    main_run_pct: float | None = None
    main_wait_pct: float | None = None
    state: str | None = None
    main_state: str | None = None
    waiting_on: str | None = None
    rss_bytes: float | None = None
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    threads: int | None = None
    throttled_pct: float | None = None
    nccl: bool | None = None
    age_s: float | None = None
    pin_memory: bool | None = None
    pool_threads: int | None = None
    pool_run_pct: float | None = None
    feed: FeedTime = FeedTime()
    main: MainTime = MainTime()
    feeder_threads: int | None = None
    feed_by: str | None = None
    net_rx_bytes_per_s: float | None = None
    main_looks: MainLooks | None = None
    waits_for: tuple[WaitEnd, ...] | None = None
    listens: bool | None = None
    mount: str | None = None
    allowed_cores: float | None = None
    framework: str | None = None
    static: ProcessStatic = ProcessStatic()
    unavailable: Mapping[str, str] = NOTHING_MISSING

    @property
    def main_pct(self) -> float | None:
        """The share of its time in which the main thread ran or waited for a core."""
        run = self.main_run_pct
        return None if run is None else min(100.0, run + (self.main_wait_pct or 0.0))

    @property
    def main_waits(self) -> str | None:
        """``main_looks`` in words."""
        return None if self.main_looks is None else self.main_looks.words

    @property
    def held_up_by(self) -> str | None:
        """``waits_for`` in words."""
        return None if self.waits_for is None else "; ".join(end.words for end in self.waits_for)


for _row in PROCESS_METRICS.values():
    if _row.path:
        setattr(ProcessSample, _row.key, property(attrgetter(_row.path)))

AnySample: TypeAlias = GpuSample | HostSample | ProcessSample

_READERS = {
    kind: {key: attrgetter(row.path or key) for key, row in ChainMap(*tables).items()}
    for kind, *tables in (
        (GpuSample, GPU_STATIC, GPU_METRICS, SM_PROVENANCE, GPU_STATE),
        (HostSample, HOST_METRICS),
        (ProcessSample, PROCESS_METRICS, PROCESS_STATIC),
    )
}


def value(sample: AnySample, key: str) -> Any:
    """What a sample holds under a key of the catalogue, wherever in it that stands. Raises KeyError for any other."""
    return _READERS[type(sample)][key](sample)


SIMULATED_BOOT = "simulated-"
"""The prefix of a simulated machine's boot id, which recordings keep."""
SIMULATED = " (simulated)"
"""Appended to its name."""


class Machine(Struct, frozen=True):
    """Where the numbers come from."""

    hostname: str
    boot_id: str | None = None
    driver: str | None = None
    source: Literal["local", "simulated", "recorded"] = "local"

    @property
    def is_simulated(self) -> bool:
        """Whether it is a simulation, also when it comes from a recording."""
        return self.source == "simulated" or (self.boot_id or "").startswith(SIMULATED_BOOT)


class OwnCost(Struct, frozen=True):
    """What gputop itself takes: CPU in percent of one core since the last snapshot, resident memory in bytes.

    The helper that reads the hardware counters is counted apart; None while there is none or it has not reported yet.
    """

    cpu_pct: float | None = None
    rss_bytes: float | None = None
    helper_cpu_pct: float | None = None
    helper_rss_bytes: float | None = None


class Event(Struct, frozen=True):
    """Something that happened at a moment: a mark of the user, a lost GPU, an Xid. ``gpu`` is an index or None.

    ``text`` says it to people. What code needs of it stands beside: the number of an Xid, the id of a verdict with its
    flag (A, B or C), whether a gap is damage of the recording.
    """

    t: float
    kind: EventKind
    text: str
    gpu: int | None = None
    xid: int | None = None
    verdict: str | None = None
    flag: str | None = None
    is_damage: bool = False


class Lasting(Struct, frozen=True):
    """What has held on a GPU without a break since before a recording, or one of its files, began.

    Since when, Unix seconds, the GPU with this index has hardly run a kernel, has hardly used its tensor cores, and has
    had a link below its best; None where that does not hold.
    """

    gpu: int
    quiet_since: float | None = None
    little_tensor_since: float | None = None
    degraded_since: float | None = None


class Snapshot(Struct, frozen=True):
    """Everything measured at one moment.

    ``t`` is Unix time in seconds. ``interval_s`` is the distance that the source aims at. ``stale`` names each
    collector that is late, with the age of its data in seconds. ``notices`` are machine-wide remarks with their fix.
    ``repeats`` names each collector whose values are those of the snapshot before, shown again because there are no
    newer ones: what is repeated was not measured at ``t``, so it is no sample of anything. ``steps`` are those that
    jobs have announced since the snapshot before. ``servers`` is what inference servers say of themselves, where their
    addresses were given. ``periods`` are steps seen from outside, in what is recorded and what comes from a recording:
    live they are found from the snapshots. ``lasting`` is what has held since before a recording or one of its files
    began, in their first frames. ``fabric_ports`` are the ports behind the host's fabric sums; a
    recording keeps the sums alone.
    """

    t: float
    machine: Machine
    gpus: tuple[GpuSample, ...] = ()
    processes: tuple[ProcessSample, ...] = ()
    host: HostSample = HostSample()
    interval_s: float = 1.0
    events: tuple[Event, ...] = ()
    own: OwnCost | None = None
    stale: Mapping[str, float] = NOTHING_LATE
    notices: tuple[str, ...] = ()
    repeats: tuple[Collector, ...] = ()
    steps: tuple[StepRow, ...] = ()
    fabric_ports: tuple[FabricPort, ...] = ()
    servers: tuple[ServerRow, ...] = ()
    periods: tuple[StepPeriod, ...] = ()
    lasting: tuple[Lasting, ...] = ()

    def __repr__(self) -> str:
        """One line for a log or a notebook; all fields of a node are 100,000 characters."""
        counts = f"{len(self.gpus)} GPUs, {len(self.processes)} processes, {len(self.notices)} notices"
        return f"<Snapshot of {self.machine.hostname}, t={self.t:.3f}: {counts}>"
