"""A snapshot: all measurements of one moment.

Frozen, without behaviour and without I/O. Live collection, the demo, replay and every test make the same types. A
value that was not measured is None, and ``unavailable`` says why by key; it is never 0, NaN or a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias, get_args

from msgspec import Meta, Struct

from gputop.model.bounds import Count, Number, Reasons, Text, UnixTime
from gputop.model.feeders import MainLooks, Outsider, WaitEnd, outsider_words
from gputop.model.metrics import (
    GPU_METRICS,
    GPU_STATE,
    GPU_STATIC,
    HOST_METRICS,
    PROCESS_METRICS,
    PROCESS_STATIC,
    SM_PROVENANCE,
    Metric,
)
from gputop.model.serving import MOST_SERVERS, ServerRow
from gputop.model.sm import SmLack, SmSource
from gputop.model.step_pace import MOST_PERIODS, StepPeriod
from gputop.model.steps import MOST_STEP_ROWS, StepRow
from gputop.model.wait_shares import WaitShares, percent, share_of
from gputop.model.xid_catalogue import recovery_words

Role = Literal["gpu", "loader", "helper"]
EventKind = Literal["mark", "verdict", "gap", "gpu_lost", "ecc", "xid", "throttle"]
MOST_GPUS, MOST_PROCESSES = 256, 4096
"""Limits of one snapshot of a recording."""

GAP_INTERVALS = 3.0
"""Intervals above which the time between samples is a gap.

Otherwise a sample covers the time since the previous one.
"""

Collector = Literal["nvml", "proc"]
"""Collectors: of GPUs and their processes, or of the host.

``proc`` reads the host and its processes.
"""
COLLECTORS: tuple[Collector, ...] = get_args(Collector)

NOTHING_MISSING: Mapping[str, str] = MappingProxyType({})
NOTHING_LATE: Mapping[str, float] = MappingProxyType({})

NOT_READ_YET = "not yet read from /proc"
"""Reason if a process lacks all facts of /proc.

The snapshot did not wait for /proc; the next one has the facts.
"""


class GpuStatic(Struct, frozen=True, omit_defaults=True):
    """Facts of one GPU that do not change while watched.

    Keys as in ``metrics.GPU_STATIC``.
    """

    index: Count
    uuid: Text
    name: Text
    architecture: Text | None = None
    sm_count: Count | None = None
    pci_bus_id: Text | None = None
    driver: Text | None = None
    nvlink_peak_bytes_per_s: Number | None = None
    mig_enabled: bool | None = None
    mig_parent: Text | None = None
    mig_instance: Text | None = None
    unified_memory: bool | None = None
    serial: Text | None = None
    persistence: bool | None = None
    compute_mode: Text | None = None
    cuda: Text | None = None

    @property
    def is_split(self) -> bool:
        """Whether all work of this GPU runs in MIG instances."""
        return bool(self.mig_enabled) and self.mig_parent is None


UNKNOWN_GPU = GpuStatic(0, "unknown", "unknown GPU")
"""Placeholder in a recorded frame, whose facts are on another line."""


class GpuSample(Struct, frozen=True, omit_defaults=True):
    """One GPU at one moment.

    Keys and units as in ``metrics.GPU_METRICS``, ``SM_PROVENANCE`` and ``GPU_STATE``.
    """

    static: GpuStatic = UNKNOWN_GPU
    util_pct: Number | None = None
    mem_util_pct: Number | None = None
    sm_active_pct: Number | None = None
    sm_occupancy_pct: Number | None = None
    tensor_active_pct: Number | None = None
    hmma_active_pct: Number | None = None
    imma_active_pct: Number | None = None
    dmma_active_pct: Number | None = None
    mma_stall_pct: Number | None = None
    dram_active_pct: Number | None = None
    fp64_active_pct: Number | None = None
    fp32_active_pct: Number | None = None
    fp16_active_pct: Number | None = None
    int_active_pct: Number | None = None
    graphics_active_pct: Number | None = None
    mem_used_bytes: Number | None = None
    mem_total_bytes: Number | None = None
    power_w: Number | None = None
    power_limit_w: Number | None = None
    energy_j: Number | None = None
    temp_c: Number | None = None
    mem_temp_c: Number | None = None
    mem_temp_max_c: Number | None = None
    temp_slowdown_c: Number | None = None
    sm_clock_mhz: Number | None = None
    sm_clock_max_mhz: Number | None = None
    mem_clock_mhz: Number | None = None
    fan_pct: Number | None = None
    pstate: Count | None = None
    pcie_rx_bytes_per_s: Number | None = None
    pcie_tx_bytes_per_s: Number | None = None
    pcie_gen: Count | None = None
    pcie_gen_max: Count | None = None
    pcie_width: Count | None = None
    pcie_width_max: Count | None = None
    nvlink_rx_bytes_per_s: Number | None = None
    nvlink_tx_bytes_per_s: Number | None = None
    encoder_pct: Number | None = None
    decoder_pct: Number | None = None
    throttle_reasons: Count | None = None
    ecc_uncorrected: Count | None = None
    ecc_corrected: Count | None = None
    ecc_uncorrected_volatile: Count | None = None
    ecc_corrected_volatile: Count | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    remapped_rows_corrected: Count | None = None
    remapped_rows_uncorrected: Count | None = None
    retired_pending: bool | None = None
    ecc_corrected_per_s: Number | None = None
    recovery_action: Count | None = None
    nvlink_count: Count | None = None
    nvlink_active: Count | None = None
    nvlink_down: Text | None = None
    module_power_w: Number | None = None
    xid: Count | None = None
    xid_class: Text | None = None
    xid_action: Text | None = None
    sm_source: SmSource = "none"
    sm_window_s: Number | None = None
    sm_age_s: Number | None = None
    sm_low_pct: Number | None = None
    sm_high_pct: Number | None = None
    sm_lack: SmLack | None = None
    lost_reason: Text | None = None
    lost_since: Number | None = None
    asleep: bool | None = None
    unavailable: Reasons = NOTHING_MISSING
    doubts: Reasons = NOTHING_MISSING
    """Doubts about present values, by key.

    Found when the sample is judged; no recording has them.
    """

    @property
    def pipes(self) -> tuple[float | None, ...]:
        """Activity of each kind of arithmetic pipe, in percent."""
        return (
            self.tensor_active_pct,
            self.fp64_active_pct,
            self.fp32_active_pct,
            self.fp16_active_pct,
            self.int_active_pct,
        )

    @property
    def recovery(self) -> str | None:
        """``recovery_action`` in words."""
        return recovery_words(self.recovery_action)

    @property
    def sm_reason(self) -> str | None:
        """``sm_lack`` in words."""
        return None if self.sm_lack is None else self.sm_lack.words


class HostSample(Struct, frozen=True, omit_defaults=True):
    """Machine around the GPUs.

    Keys and units as in ``metrics.HOST_METRICS``.
    """

    cpu_pct: Number | None = None
    cpu_count: Number | None = None
    load1: Number | None = None
    load5: Number | None = None
    load15: Number | None = None
    mem_used_bytes: Number | None = None
    mem_total_bytes: Number | None = None
    swap_used_bytes: Number | None = None
    swap_total_bytes: Number | None = None
    uptime_s: Number | None = None
    disk_read_bytes_per_s: Number | None = None
    disk_write_bytes_per_s: Number | None = None
    net_rx_bytes_per_s: Number | None = None
    net_tx_bytes_per_s: Number | None = None
    psi_cpu_pct: Number | None = None
    psi_io_pct: Number | None = None
    psi_mem_pct: Number | None = None
    outsiders: Annotated[tuple[Outsider, ...], Meta(max_length=64)] | None = None
    """Programs outside the jobs; None unless a process queued for a core."""
    cpu_outsiders_pct: Number | None = None
    fabric_rx_bytes_per_s: Number | None = None
    fabric_tx_bytes_per_s: Number | None = None
    fabric_peak_bytes_per_s: Number | None = None
    fabric_drops: Count | None = None
    fabric_retransmits: Count | None = None
    fabric_link_errors: Count | None = None
    fabric_ports_down: Count | None = None
    fabric_ports_degraded: Count | None = None
    tcp_retransmits: Count | None = None
    unavailable: Reasons = NOTHING_MISSING

    @property
    def cpu_outsiders(self) -> str | None:
        """``outsiders`` in words."""
        return None if self.outsiders is None else outsider_words(self.outsiders)


class FabricPort(Struct, frozen=True):
    """One port of the fabric; shown live only.

    Its rates are summands of the host's fabric metrics. ``name`` is device and port (``mlx5_0/1``), ``kind``
    InfiniBand, RoCE, iWARP or EFA. Rates and the link's peak are bytes a second; counters are the adapter's, since its
    reset. ``trouble`` describes the link's fault; empty without a fault. A port that was never connected
    is ``spare``: its down state is no fault.
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


class CgroupName(Struct, frozen=True, omit_defaults=True):
    """Batch job or container, as named by its cgroup's path.

    ``kind`` is the scheduler or engine, ``id`` the id there.
    """

    kind: Text
    id: Text = ""

    @property
    def words(self) -> str:
        """The name as a text: ``slurm 8821``."""
        return f"{self.kind} {self.id}" if self.id else self.kind


class ProcessStatic(Struct, frozen=True, omit_defaults=True):
    """Facts of one process that do not change.

    Keys as in ``metrics.PROCESS_STATIC``. Secrets in ``command`` and ``name`` are masked by the source: the raw command
    line is in no snapshot. ``server`` and ``job_key`` were drawn from it before.
    """

    user: Text | None = None
    command: Text | None = None
    name: Text | None = None
    batch_job: CgroupName | None = None
    contained_in: CgroupName | None = None
    loader: Text | None = None
    why: Text | None = None
    server: Text | None = None
    job_key: Text | None = None
    rule: Text | None = None
    rank: Count | None = None
    run: Text | None = None

    @property
    def job(self) -> str | None:
        """``batch_job`` in words."""
        return None if self.batch_job is None else self.batch_job.words

    @property
    def container(self) -> str | None:
        """``contained_in`` in words."""
        return None if self.contained_in is None else self.contained_in.words


UNKNOWN_PROCESS = ProcessStatic()


class FeedTime(Struct, frozen=True, omit_defaults=True, gc=False):
    """Shares of time of a loader or a thread, percent.

    The thread is the busiest host thread of a GPU process. None if it may not be seen.
    """

    run: Number | None = None
    queued: Number | None = None
    disk: Number | None = None
    network: Number | None = None
    lock: Number | None = None
    sleep: Number | None = None
    poll: Number | None = None
    other: Number | None = None
    unread: Number | None = None

    @classmethod
    def of_shares(cls, shares: WaitShares) -> FeedTime:
        """Return a worker's shares as a snapshot carries them."""
        return cls(
            run=percent(shares.run),
            queued=percent(shares.queued),
            disk=percent(shares.disk),
            network=percent(shares.network),
            lock=percent(shares.lock),
            sleep=percent(shares.sleep),
            poll=percent(shares.poll),
            other=percent(shares.other),
            unread=percent(shares.unread),
        )

    @property
    def shares(self) -> WaitShares:
        """Shares 0 to 1; what was not measured counts as 0."""
        return WaitShares(
            run=share_of(self.run),
            queued=share_of(self.queued),
            disk=share_of(self.disk),
            network=share_of(self.network),
            lock=share_of(self.lock),
            sleep=share_of(self.sleep),
            poll=share_of(self.poll),
            other=share_of(self.other),
            unread=share_of(self.unread),
        )


class MainTime(Struct, frozen=True, omit_defaults=True, gc=False):
    """Waits of a GPU process's main thread, percent of time.

    None if not measured. ``saves`` is the part spent waiting for a file to be written.
    """

    disk: Number | None = None
    network: Number | None = None
    lock: Number | None = None
    sleep: Number | None = None
    poll: Number | None = None
    pipe: Number | None = None
    write: Number | None = None
    other: Number | None = None
    unread: Number | None = None
    saves: Number | None = None

    @classmethod
    def of_shares(cls, waits: WaitShares, saves: float) -> MainTime:
        """Return a main thread's waits as a snapshot carries them.

        ``saves`` is a share of the time, 0 to 1.
        """
        return cls(
            disk=percent(waits.disk),
            network=percent(waits.network),
            lock=percent(waits.lock),
            sleep=percent(waits.sleep),
            poll=percent(waits.poll),
            pipe=percent(waits.pipe),
            write=percent(waits.write),
            other=percent(waits.other),
            unread=percent(waits.unread),
            saves=percent(saves),
        )

    @property
    def shares(self) -> WaitShares:
        """Shares 0 to 1 of the waits; what was not measured counts as 0."""
        return WaitShares(
            disk=share_of(self.disk),
            network=share_of(self.network),
            lock=share_of(self.lock),
            sleep=share_of(self.sleep),
            poll=share_of(self.poll),
            pipe=share_of(self.pipe),
            write=share_of(self.write),
            other=share_of(self.other),
            unread=share_of(self.unread),
        )


_OTHER_WAITS = ("network", "lock", "sleep", "poll", "pipe", "write", "other")
"""Waits beside the disk; of equal ones the first counts."""


LEAST_WAIT_PCT = 5.0
"""Share of its time from which a process waits on something; one that always runs waits on nothing [judged]."""


class ProcessSample(Struct, frozen=True, omit_defaults=True, gc=False):
    """One process on one GPU.

    A process on several GPUs has a sample for each. Keys and units as in ``metrics.PROCESS_METRICS``. ``starttime`` is
    None when /proc does not show the process (another PID namespace, hidepid); ``unavailable`` then says so. Nested
    values have their keys as properties: ``feed_run_pct`` is ``feed.run``.
    """

    pid: Count
    starttime: Count | None = None
    ppid: Count | None = None
    role: Role = "gpu"
    gpu: Count | None = None
    gpu_mem_bytes: Number | None = None
    gpu_time_pct: Number | None = None
    gpu_mem_time_pct: Number | None = None
    gpu_encoder_pct: Number | None = None
    gpu_decoder_pct: Number | None = None
    type: Text | None = None
    cpu_pct: Number | None = None
    run_pct: Number | None = None
    wait_pct: Number | None = None
    main_run_pct: Number | None = None
    main_wait_pct: Number | None = None
    state: Text | None = None
    rss_bytes: Number | None = None
    read_bytes_per_s: Number | None = None
    write_bytes_per_s: Number | None = None
    threads: Count | None = None
    throttled_pct: Number | None = None
    nccl: bool | None = None
    age_s: Number | None = None
    pin_memory: bool | None = None
    pool_threads: Count | None = None
    pool_run_pct: Number | None = None
    feed: FeedTime = FeedTime()
    main: MainTime = MainTime()
    feeder_threads: Count | None = None
    feed_by: Text | None = None
    net_rx_bytes_per_s: Number | None = None
    main_looks: MainLooks | None = None
    waits_for: Annotated[tuple[WaitEnd, ...], Meta(max_length=64)] | None = None
    listens: bool | None = None
    mount: Text | None = None
    allowed_cores: Number | None = None
    framework: Text | None = None
    static: ProcessStatic = UNKNOWN_PROCESS
    unavailable: Reasons = NOTHING_MISSING

    @property
    def main_pct(self) -> float | None:
        """Percent of time that the main thread ran or was queued."""
        run = self.main_run_pct
        return None if run is None else min(100.0, run + (self.main_wait_pct or 0.0))

    @property
    def waiting_on(self) -> str | None:
        """Wait state that took most time.

        None if the process hardly waited or was not observed.
        """
        if self.main_looks is not None:
            looks = dict(self.main_looks.counts)
            all_looks = sum(looks.values())
            looks.pop("run", None)
            state = max(looks, key=lambda state: looks[state], default=None)
            if state is None or looks[state] < LEAST_WAIT_PCT / 100.0 * all_looks:
                return None
            return state
        time: FeedTime | MainTime = self.main if self.role == "gpu" else self.feed
        wait, most = "disk", time.disk or 0.0
        for name in _OTHER_WAITS:
            share = getattr(time, name, None)
            if share is not None and share > most:
                wait, most = name, share
        if most < LEAST_WAIT_PCT or most <= (time.unread or 0.0):
            return None
        if wait == "poll":
            return "queue"
        if wait == "network" and self.feed_by == "pipe":
            return "pipe"
        return wait

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

CATALOGUE: Mapping[type[Struct], Mapping[str, Metric]] = {
    GpuSample: {**GPU_STATIC, **GPU_METRICS, **SM_PROVENANCE, **GPU_STATE},
    HostSample: HOST_METRICS,
    ProcessSample: {**PROCESS_METRICS, **PROCESS_STATIC},
}
"""All metrics of a sample by key."""
_READERS = {
    kind: {key: attrgetter(metric.path or key) for key, metric in metrics.items()}
    for kind, metrics in CATALOGUE.items()
}


def value(sample: AnySample, key: str) -> Any:
    """Return the value of a sample's catalogue key.

    Raises KeyError for other keys.
    """
    return _READERS[type(sample)][key](sample)


SIMULATED_BOOT = "simulated-"
"""The prefix of a simulated machine's boot id, which recordings keep."""
SIMULATED = " (simulated)"
"""Suffix of a simulated machine's name."""


class Machine(Struct, frozen=True, omit_defaults=True):
    """The machine and the kind of source of a snapshot."""

    hostname: Text
    boot_id: Text | None = None
    driver: Text | None = None
    source: Literal["local", "simulated", "recorded"] = "local"

    @property
    def is_simulated(self) -> bool:
        """Whether the machine is simulated, live or in a recording."""
        return self.source == "simulated" or (self.boot_id or "").startswith(SIMULATED_BOOT)


UNKNOWN_MACHINE = Machine("unknown")
DEFAULT_INTERVAL_S = 1.0


class OwnCost(Struct, frozen=True):
    """CPU time and resident memory of gputop itself.

    CPU is in percent of one core since the last snapshot, memory in bytes.

    The helper that reads the hardware counters is counted apart; None while there is none or it has not reported yet.
    """

    cpu_pct: float | None = None
    rss_bytes: float | None = None
    helper_cpu_pct: float | None = None
    helper_rss_bytes: float | None = None


class Event(Struct, frozen=True, omit_defaults=True, tag_field="k", tag="event"):
    """Event at one moment: a mark, a lost GPU, an Xid.

    ``gpu`` is an index or None. ``text`` is for people. Code uses the number of an Xid, the id of a verdict with its
    flag (A, B or C), and whether a gap is damage of the recording.
    """

    t: UnixTime
    kind: EventKind
    text: Text
    gpu: Count | None = None
    xid: Count | None = None
    verdict: Text | None = None
    flag: Text | None = None
    is_damage: bool = False
    derived: bool = False
    """Concluded from frames, verdicts above all: a replay draws its own conclusions."""


class OngoingConditions(Struct, frozen=True, omit_defaults=True):
    """Conditions of a GPU that began before a recording or file.

    Unix seconds since which the GPU with this index has hardly run a kernel, has hardly used its tensor cores, and has
    had a link below its best; None for a condition that does not hold.
    """

    gpu: Count
    quiet_since: Number | None = None
    little_tensor_since: Number | None = None
    degraded_since: Number | None = None


class Snapshot(
    Struct,
    frozen=True,
    omit_defaults=True,
    tag_field="k",
    tag="frame",
    rename={"ongoing": "lasting"},
):
    """All measurements of one moment.

    ``t`` is Unix time in seconds, ``interval_s`` the intended distance between snapshots. ``stale`` gives the age of
    the data of each late collector, seconds. ``notices`` are remarks about the machine with their fix. ``repeats``
    names collectors without newer values: they repeat the last snapshot's values, which are no new samples. ``steps``
    are training steps that jobs announced since the last snapshot. ``servers`` are the counters of inference servers
    with a known address. ``periods`` are steps found from outside; only recordings have them. ``ongoing`` are
    conditions, in the first frame of a recording's file. ``fabric_ports`` are the ports behind the host's fabric sums;
    recordings keep only the sums.
    """

    t: UnixTime
    machine: Machine = UNKNOWN_MACHINE
    gpus: Annotated[tuple[GpuSample, ...], Meta(max_length=MOST_GPUS)] = ()
    processes: Annotated[tuple[ProcessSample, ...], Meta(max_length=MOST_PROCESSES)] = ()
    host: HostSample = HostSample()
    interval_s: float = DEFAULT_INTERVAL_S
    events: tuple[Event, ...] = ()
    own: OwnCost | None = None
    stale: Annotated[Mapping[str, Number], Meta(max_length=128)] = NOTHING_LATE
    notices: Annotated[tuple[Text, ...], Meta(max_length=128)] = ()
    repeats: tuple[Collector, ...] = ()
    steps: Annotated[tuple[StepRow, ...], Meta(max_length=MOST_STEP_ROWS)] = ()
    fabric_ports: tuple[FabricPort, ...] = ()
    servers: Annotated[tuple[ServerRow, ...], Meta(max_length=MOST_SERVERS)] = ()
    periods: Annotated[tuple[StepPeriod, ...], Meta(max_length=MOST_PERIODS)] = ()
    ongoing: Annotated[tuple[OngoingConditions, ...], Meta(max_length=MOST_GPUS)] = ()

    def __repr__(self) -> str:
        """Return one line for a log or a notebook.

        All fields of a node are 100,000 characters.
        """
        gpus, processes, notices = len(self.gpus), len(self.processes), len(self.notices)
        counts = f"GPUs: {gpus}, processes: {processes}, notices: {notices}"
        return f"<Snapshot of {self.machine.hostname}, t={self.t:.3f}: {counts}>"
