"""The metric catalogue: every number that gputop knows, declared once.

Table columns, charts, JSON keys, CSV headers, recording columns, history and the glossary derive from these rows.
Adding a metric is adding a row here, the field of the same name in ``snapshot.py`` and the question that fills it.
Nothing here measures or draws.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.sm import SM_SOURCES

# One row of the metric catalogue, and short ways to write the usual kinds of row.

Unit = Literal["pct", "bytes", "bytes/s", "W", "J", "C", "MHz", "s", "count", "flags", "bool", "text", "id"]
Kind = Literal["gauge", "counter", "ratio", "fact"]


IMPOSSIBLE = "an impossible value"
"""In the reason for which a value that was given counts as none."""
ROUNDED_PCT = 101.0
"""What lies above 100 up to here is rounding."""


class Metric(Struct, frozen=True):
    """One row of the catalogue. ``low`` and ``high`` bound a believable value; None means unbounded.

    ``history``: remembered, so that charts can show its past. ``seldom``: slow to answer and slow to change, so it is
    read only every few seconds. ``glossary``: explained in the help. ``activity``: only a source of SM activity
    can give it, and what two sources gave is never mixed. ``path``: where in its sample the value stands, attribute by
    attribute, if not under its key.
    """

    key: str
    unit: Unit
    label: str
    definition: str
    dcgm: str | None = None
    origin: str | None = None
    kind: Kind = "gauge"
    low: float | None = None
    high: float | None = None
    decimals: int = 0
    history: bool = False
    seldom: bool = False
    glossary: bool = False
    activity: bool = False
    path: str = ""

    def is_valid(self, value: float) -> bool:
        """Whether a finite number lies inside the metric's bounds (NaN never does)."""
        return value == value and (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def believed(self, value: float) -> float | None:
        """The value, 100 for a percentage that only rounding has brought above it, or None for what cannot be: NaN,
        2^31 - 1 (DCGM#83), blanks."""
        if self.unit == "pct" and 100.0 < value <= ROUNDED_PCT:
            return 100.0
        return value if self.is_valid(value) else None


def pct(
    key: str, label: str, definition: str, dcgm: str | None = None, origin: str | None = None, **flags: Any
) -> Metric:
    """A percentage, 0 to 100."""
    return Metric(key, "pct", label, definition, dcgm, origin, "ratio", 0.0, 100.0, **flags)


gauge = partial(Metric, kind="gauge", low=0.0)
"""A value that rises and falls, never below 0."""
count = partial(Metric, kind="counter", low=0.0)
"""A counter, which only rises until it is reset."""


def fact(key: str, unit: Unit, label: str, definition: str, origin: str | None = None, **flags: Any) -> Metric:
    """Something that stays the same while it is watched."""
    return Metric(key, unit, label, definition, origin=origin, kind="fact", **flags)


def passed(part: str, state: str, label: str, definition: str, origin: str) -> Metric:
    """The share of time that something spent in a state: ``feed_run_pct`` is the ``run`` of a process' ``feed``."""
    return replace(pct(f"{part}_{state}_pct", label, definition, origin=origin), path=f"{part}.{state}")


def table(*rows: Metric, under: str = "") -> dict[str, Metric]:
    """The rows by key, in their order. ``under``: the part of the sample in which all of them stand."""
    return {row.key: replace(row, path=f"{under}.{row.key}") if under else row for row in rows}


GPU_STATIC = table(
    fact("index", "id", "GPU", "NVML index of the GPU", "nvmlDeviceGetIndex"),
    fact("uuid", "text", "UUID", "the GPU's identity, stable over reboots", "nvmlDeviceGetUUID"),
    fact("name", "text", "NAME", "product name", "nvmlDeviceGetName"),
    fact("architecture", "text", "ARCH", "architecture, lower case", "nvmlDeviceGetArchitecture"),
    fact("sm_count", "count", "SMS", "streaming multiprocessors", "nvmlDeviceGetAttributes_v2 or GPU cores"),
    fact("pci_bus_id", "text", "PCI", "PCI address", "nvmlDeviceGetPciInfo"),
    fact("driver", "text", "DRIVER", "driver version", "nvmlSystemGetDriverVersion"),
    fact("nvlink_peak_bytes_per_s", "bytes/s", "NVL PEAK", "sum of the NVLink speeds, one direction", "NVLink speed"),
    fact("mig_enabled", "bool", "MIG", "whether the GPU is split into instances", "nvmlDeviceGetMigMode"),
    fact("mig_parent", "text", "PARENT", "UUID of the GPU that a MIG instance belongs to", "MIG handle"),
    fact("mig_instance", "text", "INSTANCE", "GPU instance / compute instance of a MIG device", "MIG handle"),
    fact(
        "unified_memory",
        "bool",
        "UNIFIED",
        "whether the GPU has no memory of its own and uses the host's",
        "nvmlDeviceGetMemoryInfo",
    ),
    under="static",
)

# fmt: off
GPU_METRICS = table(
    pct("util_pct", "UTIL",
        "share of the sample time in which at least one kernel ran; says nothing about how many multiprocessors ran it",
        "DCGM_FI_DEV_GPU_UTIL", "nvmlDeviceGetUtilizationRates.gpu", history=True, glossary=True),
    pct("mem_util_pct", "MEM TIME", "share of time in which device memory was read or written; time, not bandwidth",
        "DCGM_FI_DEV_MEM_COPY_UTIL", "nvmlDeviceGetUtilizationRates.memory", glossary=True),
    pct("sm_active_pct", "SM",
        "SM activity: share of the multiprocessors, averaged over cycles, with at least one warp resident; "
        "breadth of use, not work",
        "DCGM_FI_PROF_SM_ACTIVE", "GPM metric 2", history=True, glossary=True, activity=True),
    pct("sm_occupancy_pct", "OCC", "resident warps as a share of the warps that all multiprocessors could hold",
        "DCGM_FI_PROF_SM_OCCUPANCY", "GPM metric 3", history=True, glossary=True, activity=True),
    pct("tensor_active_pct", "TENSOR", "share of cycles in which a tensor pipe was active",
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "GPM metric 5", history=True, glossary=True, activity=True),
    pct("hmma_active_pct", "HMMA", "share of cycles in which the tensor pipe did half-precision work (FP16, BF16)",
        "DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE", "GPM metric 7", activity=True),
    pct("imma_active_pct", "IMMA", "share of cycles in which the tensor pipe did integer work (INT8)",
        "DCGM_FI_PROF_PIPE_TENSOR_IMMA_ACTIVE", "GPM metric 9", activity=True),
    pct("dmma_active_pct", "DMMA", "share of cycles in which the tensor pipe did FP64 work (DMMA)",
        origin="GPM metric 8", activity=True),
    pct("mma_stall_pct", "MMA STALL", "share of time in which tensor instructions were held up; newest drivers only",
        origin="field 297"),
    pct("dram_active_pct", "DRAM",
        "device memory bandwidth used, of the theoretical peak; about 80 % is the practical peak",
        "DCGM_FI_PROF_DRAM_ACTIVE", "GPM metric 10", history=True, glossary=True, activity=True),
    pct("fp64_active_pct", "FP64", "share of cycles with the FP64 pipe active", "DCGM_FI_PROF_PIPE_FP64_ACTIVE",
        "GPM metric 11", activity=True),
    pct("fp32_active_pct", "FP32", "share of cycles with the FP32 pipe active", "DCGM_FI_PROF_PIPE_FP32_ACTIVE",
        "GPM metric 12", activity=True),
    pct("fp16_active_pct", "FP16", "share of cycles with the FP16 pipe active", "DCGM_FI_PROF_PIPE_FP16_ACTIVE",
        "GPM metric 13", activity=True),
    pct("int_active_pct", "INT", "share of cycles with the integer pipe active", "DCGM_FI_PROF_PIPE_INT_ACTIVE",
        "GPM metric 4", activity=True),
    pct("graphics_active_pct", "GR", "share of time in which the compute or graphics engine was active",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "GPM metric 1", activity=True),
    gauge("mem_used_bytes", "bytes", "MEM USED", "device memory in use, without the driver's reserve",
        "DCGM_FI_DEV_FB_USED", "nvmlDeviceGetMemoryInfo_v2.used", history=True),
    gauge("mem_total_bytes", "bytes", "MEM", "device memory in all", "DCGM_FI_DEV_FB_TOTAL",
        "nvmlDeviceGetMemoryInfo_v2.total"),
    gauge("power_w", "W", "POWER", "power drawn by the board", "DCGM_FI_DEV_POWER_USAGE", "nvmlDeviceGetPowerUsage",
        history=True),
    gauge("power_limit_w", "W", "LIMIT", "enforced power limit", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
        "nvmlDeviceGetEnforcedPowerLimit", seldom=True),
    count("energy_j", "J", "ENERGY", "energy since the driver was loaded", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "nvmlDeviceGetTotalEnergyConsumption", seldom=True),
    gauge("temp_c", "C", "TEMP", "temperature of the GPU chip", "DCGM_FI_DEV_GPU_TEMP", "nvmlDeviceGetTemperature",
        history=True),
    gauge("mem_temp_c", "C", "MEM TEMP", "temperature of the memory", "DCGM_FI_DEV_MEMORY_TEMP", "field 82"),
    gauge("temp_slowdown_c", "C", "SLOWDOWN", "chip temperature at which the clocks are cut",
        "DCGM_FI_DEV_SLOWDOWN_TEMP", "nvmlDeviceGetTemperatureThreshold", seldom=True),
    gauge("sm_clock_mhz", "MHz", "CLOCK", "SM clock now", "DCGM_FI_DEV_SM_CLOCK", "nvmlDeviceGetClockInfo",
        history=True),
    gauge("sm_clock_max_mhz", "MHz", "MAX", "highest SM clock", "DCGM_FI_DEV_MAX_SM_CLOCK", "nvmlDeviceGetMaxClockInfo",
        seldom=True),
    gauge("mem_clock_mhz", "MHz", "MEM CLOCK", "memory clock now", "DCGM_FI_DEV_MEM_CLOCK", "nvmlDeviceGetClockInfo"),
    pct("fan_pct", "FAN", "intended fan speed", "DCGM_FI_DEV_FAN_SPEED", "nvmlDeviceGetFanSpeed", seldom=True),
    gauge("pstate", "id", "PSTATE", "performance state, 0 is the fastest", "DCGM_FI_DEV_PSTATE",
        "nvmlDeviceGetPerformanceState", seldom=True),
    gauge("pcie_rx_bytes_per_s", "bytes/s", "PCIe ↓", "PCIe traffic into the GPU", "DCGM_FI_PROF_PCIE_RX_BYTES",
        "GPM metric 21, or field 198", history=True),
    gauge("pcie_tx_bytes_per_s", "bytes/s", "PCIe ↑", "PCIe traffic out of the GPU", "DCGM_FI_PROF_PCIE_TX_BYTES",
        "GPM metric 20, or field 197", history=True),
    gauge("pcie_gen", "id", "GEN", "PCIe generation now", "DCGM_FI_DEV_PCIE_LINK_GEN",
        "nvmlDeviceGetCurrPcieLinkGeneration", seldom=True),
    gauge("pcie_gen_max", "id", "GEN MAX", "highest PCIe generation of GPU and slot", "DCGM_FI_DEV_PCIE_MAX_LINK_GEN",
        "nvmlDeviceGetMaxPcieLinkGeneration", seldom=True),
    gauge("pcie_width", "id", "LANES", "PCIe lanes now", "DCGM_FI_DEV_PCIE_LINK_WIDTH",
        "nvmlDeviceGetCurrPcieLinkWidth", seldom=True),
    gauge("pcie_width_max", "id", "LANES MAX", "most PCIe lanes of GPU and slot", "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH",
        "nvmlDeviceGetMaxPcieLinkWidth", seldom=True),
    gauge("nvlink_rx_bytes_per_s", "bytes/s", "NVL ↓", "NVLink traffic into the GPU, all links",
        "DCGM_FI_PROF_NVLINK_RX_BYTES", "GPM metric 60, or field 139", history=True),
    gauge("nvlink_tx_bytes_per_s", "bytes/s", "NVL ↑", "NVLink traffic out of the GPU, all links",
        "DCGM_FI_PROF_NVLINK_TX_BYTES", "GPM metric 61, or field 138", history=True),
    pct("encoder_pct", "ENC", "video encoder use", "DCGM_FI_DEV_ENC_UTIL", "nvmlDeviceGetEncoderUtilization",
        seldom=True),
    pct("decoder_pct", "DEC", "video decoder use", "DCGM_FI_DEV_DEC_UTIL", "nvmlDeviceGetDecoderUtilization",
        seldom=True),
    gauge("throttle_reasons", "flags", "THROTTLE", "clocks-event reasons, NVML's bit mask",
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "nvmlDeviceGetCurrentClocksEventReasons", glossary=True),
    count("ecc_uncorrected_volatile", "count", "ECC", "uncorrected memory errors since the driver was loaded",
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "nvmlDeviceGetTotalEccErrors", seldom=True),
    count("ecc_corrected_volatile", "count", "ECC CORR", "corrected memory errors since the driver was loaded",
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "nvmlDeviceGetTotalEccErrors", seldom=True),
    count("ecc_uncorrected", "count", "ECC LIFE", "uncorrected memory errors, aggregate over the GPU's life",
        "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "nvmlDeviceGetTotalEccErrors", seldom=True),
    count("ecc_corrected", "count", "ECC CORR LIFE", "corrected memory errors, aggregate over the GPU's life",
        "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "nvmlDeviceGetTotalEccErrors", seldom=True),
    fact("remap_pending", "bool", "REMAP", "a row remap waits for a reset", "nvmlDeviceGetRemappedRows", seldom=True),
    fact("remap_failed", "bool", "REMAP FAILED", "a row remap has failed", "nvmlDeviceGetRemappedRows", seldom=True),
    gauge("xid", "id", "XID", "last Xid error seen while watching", "DCGM_FI_DEV_XID_ERRORS", "NVML event set"),
)
# fmt: on

SM_PROVENANCE = table(
    fact("sm_source", "text", "SM SOURCE", f"where SM activity comes from: {', '.join(SM_SOURCES)}"),
    fact("sm_window_s", "s", "SM WINDOW", "time over which SM activity is the mean"),
    fact("sm_age_s", "s", "SM AGE", "age of the SM activity value"),
    fact("sm_low_pct", "pct", "SM LOW", "lower bound of SM activity where it is not measured"),
    fact("sm_high_pct", "pct", "SM HIGH", "upper bound of SM activity where it is not measured"),
    fact("sm_reason", "text", "SM REASON", "why SM activity is not measured"),
)

GPU_STATE = table(
    fact("lost_reason", "text", "LOST", "why this GPU cannot be read at present; null when it can"),
    fact("lost_since", "s", "SINCE", "Unix time since which this GPU cannot be read"),
    fact(
        "asleep",
        "bool",
        "ASLEEP",
        "whether the kernel has switched the GPU off, so that it was not asked",
        "/sys/bus/pci/devices/*/power/runtime_status",
    ),
)

_PORTS = "/sys/class/infiniband"
HOST_METRICS = table(
    pct("cpu_pct", "CPU", "processor time in use, of all cores", origin="/proc/stat"),
    gauge("cpu_count", "count", "CORES", "cores that gputop's cgroup and affinity leave", origin="affinity, cgroup"),
    gauge("load1", "count", "LOAD", "load average over one minute", origin="/proc/loadavg", decimals=2),
    gauge("mem_used_bytes", "bytes", "MEM", "memory in use, without caches", origin="/proc/meminfo"),
    gauge("mem_total_bytes", "bytes", "MEM TOTAL", "memory in all, or the cgroup's limit", origin="/proc/meminfo"),
    gauge("swap_used_bytes", "bytes", "SWAP", "swap in use", origin="/proc/meminfo"),
    gauge("disk_read_bytes_per_s", "bytes/s", "DISK ↓", "read from block devices", origin="/proc/diskstats"),
    gauge("disk_write_bytes_per_s", "bytes/s", "DISK ↑", "written to block devices", origin="/proc/diskstats"),
    gauge("net_rx_bytes_per_s", "bytes/s", "NET ↓", "received, without loopback", origin="/proc/net/dev"),
    gauge("net_tx_bytes_per_s", "bytes/s", "NET ↑", "sent, without loopback", origin="/proc/net/dev"),
    pct("psi_cpu_pct", "CPU WAIT", "share of time in which some task waited for a core", origin="/proc/pressure/cpu"),
    pct("psi_io_pct", "I/O WAIT", "share of time in which some task waited for I/O", origin="/proc/pressure/io"),
    pct("psi_mem_pct", "MEM WAIT", "share of time some task waited for memory", origin="/proc/pressure/memory"),
    fact(
        "cpu_outsiders",
        "text",
        "OUTSIDERS",
        "largest CPU users outside the GPUs' process trees: user, name, percent",
        "/proc/PID/stat",
    ),
    gauge(
        "cpu_outsiders_pct",
        "pct",
        "OUTSIDERS CPU",
        "what all processes outside the GPUs' process trees use together, percent of one core",
        origin="/proc/PID/stat",
    ),
    gauge("fabric_rx_bytes_per_s", "bytes/s", "FABRIC ↓", "received over InfiniBand, RoCE and EFA", origin=_PORTS),
    gauge("fabric_tx_bytes_per_s", "bytes/s", "FABRIC ↑", "sent over InfiniBand, RoCE and EFA", origin=_PORTS),
    gauge(
        "fabric_peak_bytes_per_s", "bytes/s", "FABRIC PEAK", "speed of the ports that are up, each way", origin=_PORTS
    ),
    count("fabric_drops", "count", "FABRIC DROPS", "packets that the fabric's ports dropped", origin=_PORTS),
    count(
        "fabric_retransmits",
        "count",
        "FABRIC RETRANS",
        "events after which the fabric sent packets again",
        origin=_PORTS,
    ),
    count(
        "fabric_link_errors", "count", "FABRIC ERRORS", "symbol and link errors of the fabric's ports", origin=_PORTS
    ),
    gauge("fabric_ports_down", "count", "PORTS DOWN", "ports without a link that have had one", origin=_PORTS),
    gauge(
        "fabric_ports_degraded",
        "count",
        "PORTS SLOW",
        "ports slower or narrower than they were or than their like",
        origin=_PORTS,
    ),
    count("tcp_retransmits", "count", "TCP RETRANS", "TCP segments sent again since boot", origin="/proc/1/net/snmp"),
)

_MAIN = "share of time in which the main thread"
_FEEDER = "share of time in which a loader, or the busiest host thread of a GPU process,"

PROCESS_METRICS = table(
    fact("pid", "id", "PID", "process id"),
    fact("starttime", "id", "START", "start time in clock ticks since boot; with pid, the identity", "stat field 22"),
    fact("ppid", "id", "PPID", "parent's process id", "stat field 4"),
    fact("role", "text", "ROLE", "gpu (holds a GPU context), loader (dataloader worker), helper or orphan"),
    fact("gpu", "id", "GPU", "index of the GPU that the process, or its nearest GPU ancestor, uses"),
    gauge("gpu_mem_bytes", "bytes", "GPU-MEM", "device memory held on this GPU", origin="NVML process lists"),
    pct(
        "gpu_time_pct",
        "GPU% time",
        "share of time in which this process had a kernel running; time, not SM activity",
        origin="nvmlDeviceGetProcessUtilization.smUtil",
    ),
    fact("type", "text", "TYPE", "C compute, G graphics, X both", "NVML process lists"),
    gauge("cpu_pct", "pct", "CPU%", "CPU time of all threads, percent of one core", origin="/proc/PID/stat"),
    gauge("run_pct", "pct", "RUN", "time on a core, percent of one core", origin="/proc/PID/schedstat"),
    gauge("wait_pct", "pct", "QUEUE", "time queued for a core, percent of one core", origin="/proc/PID/schedstat"),
    pct(
        "main_run_pct",
        "MAIN RUN",
        "the main thread's time on a core, with PyTorch's threads in which its backward pass runs",
        origin="/proc/PID/schedstat",
    ),
    pct("main_wait_pct", "MAIN QUEUE", "the main thread's time queued for a core", origin="/proc/PID/schedstat"),
    fact("state", "text", "S", "kernel state: R running, S asleep, D disk wait, Z zombie, T stopped", "stat field 3"),
    fact("main_state", "text", "MAIN", "kernel state of the main thread", "stat field 3"),
    fact(
        "waiting_on",
        "text",
        "WAITS ON",
        "queue, network, pipe, disk, sleep, lock, gpu or other, from the kernel's wait channel",
        "/proc/PID/wchan",
    ),
    gauge("rss_bytes", "bytes", "HOST-MEM", "resident host memory", origin="/proc/PID/stat"),
    gauge("read_bytes_per_s", "bytes/s", "READ", "read from storage", origin="/proc/PID/io"),
    gauge("write_bytes_per_s", "bytes/s", "WRITE", "written to storage", origin="/proc/PID/io"),
    gauge("threads", "count", "THREADS", "number of threads", origin="stat field 20"),
    pct("throttled_pct", "THROTTLED", "scheduling periods cut short by the cgroup's CPU limit", origin="cpu.stat"),
    fact("nccl", "bool", "NCCL", "whether the process runs NCCL threads", "thread names"),
    gauge("age_s", "s", "TIME", "time since the process started", origin="stat field 22"),
    fact("pin_memory", "bool", "PIN", "whether a pin-memory thread runs", "thread names"),
    gauge("pool_threads", "count", "HOST THREADS", "threads neither main nor CUDA, NCCL or autograd"),
    gauge("pool_run_pct", "pct", "POOL RUN", "CPU time of those host threads, percent of one core"),
    passed("feed", "run", "FEED RUN", f"{_FEEDER} ran on a core", "schedstat"),
    passed("feed", "queued", "FEED QUEUE", f"{_FEEDER} was queued for a core", "schedstat"),
    passed("feed", "disk", "FEED DISK", f"{_FEEDER} waited for a disk", "stat field 3"),
    passed("feed", "network", "FEED NET", f"{_FEEDER} waited for the network", "wchan, sock_diag"),
    passed("feed", "lock", "FEED LOCK", f"{_FEEDER} waited for a lock", "wchan"),
    passed("feed", "sleep", "FEED SLEEP", f"{_FEEDER} slept by a timer", "wchan"),
    passed("feed", "poll", "FEED POLL", f"{_FEEDER} polled: idle, or a socket with a timeout", "wchan"),
    gauge("feeder_threads", "count", "FEEDERS", "threads that can prepare data, without the main thread"),
    fact(
        "feed_by",
        "text",
        "FEED BY",
        "what resolved a wait of the feeder: child, kinship, socket, thread, task queue or parent listens",
    ),
    gauge("net_rx_bytes_per_s", "bytes/s", "NET ↓", "received on TCP sockets of this process", origin="sock_diag"),
    fact("main_waits", "text", "MAIN WAITS", "what the main thread waited for at looks between two readings", "wchan"),
    fact(
        "held_up_by",
        "text",
        "HELD UP BY",
        "whom or what the main thread waited for at those looks",
        "syscall, fd, wchan",
    ),
    fact("listens", "bool", "LISTENS", "whether its main thread waits for connections", "sock_diag, wchan"),
    passed("feed", "other", "FEED OTHER", f"{_FEEDER} waited for something else: work, a reader", "wchan"),
    passed("feed", "unread", "FEED UNREAD", f"{_FEEDER} slept, and what for was not seen", "wchan"),
    passed("main", "disk", "MAIN DISK", f"{_MAIN} waited for a disk", "wchan, stat field 3"),
    passed("main", "network", "MAIN NET", f"{_MAIN} waited for the network", "wchan, sock_diag"),
    passed("main", "lock", "MAIN LOCK", f"{_MAIN} waited for a lock", "wchan"),
    passed("main", "sleep", "MAIN SLEEP", f"{_MAIN} slept by a timer", "wchan"),
    passed("main", "poll", "MAIN POLL", f"{_MAIN} polled: for a batch, a request, a socket", "wchan"),
    passed("main", "pipe", "MAIN PIPE", f"{_MAIN} waited for data of a pipe", "wchan"),
    passed("main", "write", "MAIN WRITE", f"{_MAIN} waited for the reader of a full pipe", "wchan"),
    passed("main", "other", "MAIN OTHER", f"{_MAIN} waited for something else", "wchan"),
    passed("main", "unread", "MAIN UNREAD", f"{_MAIN} slept, and what for was not seen", "wchan"),
    fact("mount", "text", "MOUNT", "the networked file system on which it waits", "fdinfo, mountinfo"),
    gauge("allowed_cores", "count", "CORES", "cores that its CPU mask and cgroup leave to a process that holds a GPU"),
    fact("framework", "text", "FRAMEWORK", "torch, jax or tensorflow, where its threads show which", "thread names"),
    passed("main", "saves", "MAIN SAVES", f"{_MAIN} waited for a file to be written", "syscall"),
)

PROCESS_STATIC = table(
    fact("user", "text", "USER", "owner"),
    fact("command", "text", "COMMAND", "command line, what looks like a secret masked"),
    fact("name", "text", "NAME", "executable's name"),
    fact("job", "text", "JOB", "batch job, from the cgroup path"),
    fact("container", "text", "CONTAINER", "container or pod, from the cgroup path"),
    fact("loader", "text", "LOADER", "kind of dataloader worker"),
    fact("why", "text", "WHY", "the rule by which the role was given, in words"),
    fact("server", "text", "SERVER", "the program that serves requests, by the command line"),
    fact(
        "job_key", "text", "JOB KEY", "the same for processes of one user and command line; salted, it reveals neither"
    ),
    fact("rule", "text", "RULE", "the rule by which the role was given: R1 to R6, or never"),
    under="static",
)

ACTIVITY_KEYS = tuple(key for key, metric in GPU_METRICS.items() if metric.activity)
HISTORY_KEYS = tuple(key for key, metric in GPU_METRICS.items() if metric.history)
