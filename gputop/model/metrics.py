"""The metric catalogue: every number that gputop knows, declared once.

Table columns, charts, JSON keys, CSV headers, recording columns, history and the glossary derive from these rows.
Adding a metric is adding a row here, the field of the same name in ``snapshot.py`` and the question that fills it.
Nothing here measures or draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.sm import SM_SOURCES

Unit = Literal[
    "pct",
    "bytes",
    "bytes/s",
    "1/s",
    "W",
    "J",
    "C",
    "MHz",
    "s",
    "count",
    "flags",
    "bool",
    "text",
    "id",
]
Kind = Literal["gauge", "counter", "ratio", "fact"]


IMPOSSIBLE = "an impossible value"
"""Part of the reason for rejecting a value."""
ROUNDED_PCT = 101.0
"""Highest percentage that counts as rounding."""


class Metric(Struct, frozen=True):
    """One row of the metric catalogue.

    ``low`` and ``high`` bound a believable value; None means unbounded. ``history``: kept, so that charts can show its
    past. ``seldom``: slow to read and slow to change, so it is read only every few seconds. ``glossary``: explained in
    the help. ``activity``: only a source of SM activity measures it, and values of two sources are never mixed.
    ``path``: attribute path of the value in its sample, if not under its key. ``field``: the field whose text form this
    is; JSON has the field instead.
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
    history: bool = False
    seldom: bool = False
    glossary: bool = False
    activity: bool = False
    path: str = ""
    field: str = ""

    def is_valid(self, value: float) -> bool:
        """Return whether a number lies inside the metric's bounds.

        NaN never does.
        """
        return (
            value == value
            and (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
        )

    def believed(self, value: float) -> float | None:
        """Return a plausible value; None for an impossible one.

        A percentage that only rounding has brought above 100 becomes 100. NaN, 2^31 - 1 (DCGM#83) and blanks are
        impossible.
        """
        if self.unit == "pct" and 100.0 < value <= ROUNDED_PCT:
            return 100.0
        return value if self.is_valid(value) else None


_UNITS: Mapping[str, Unit] = {
    "_bytes_per_s": "bytes/s", "_per_s": "1/s", "_pct": "pct", "_bytes": "bytes", "_mhz": "MHz", "_w": "W", "_j": "J",
    "_c": "C", "_s": "s",
}  # fmt: skip
"""Unit by the end of a key; the first that fits."""


def _row(
    kind: Kind,
    key: str,
    label: str,
    definition: str,
    origin: str | None = None,
    *,
    unit: Unit | None = None,
    dcgm: str | None = None,
    part: str = "",
    history: bool = False,
    seldom: bool = False,
    glossary: bool = False,
    activity: bool = False,
    field: str = "",
) -> Metric:
    """Return a metric.

    Its unit, if not given, follows from the end of its key; otherwise facts are texts and numbers are counts. ``dcgm``
    is DCGM's name without DCGM_FI_, ``part`` the part of the sample that has the value.
    """
    usual: Unit = "text" if kind == "fact" else "count"
    by_end: Unit = next((known for end, known in _UNITS.items() if key.endswith(end)), usual)
    return Metric(
        key,
        unit or by_end,
        label,
        definition,
        dcgm and f"DCGM_FI_{dcgm}",
        origin,
        kind,
        None if kind == "fact" else 0.0,
        100.0 if kind == "ratio" else None,
        history,
        seldom,
        glossary,
        activity,
        part and f"{part}.{key}",
        field,
    )


def _share(key: str, label: str, definition: str, origin: str) -> Metric:
    """Return the time spent in a state: ``feed_run_pct`` is the ``run`` of a process's ``feed``."""
    return replace(
        _ratio(key, label, definition, origin), path=key.removesuffix("_pct").replace("_", ".", 1)
    )


def _by_key(*metrics: Metric) -> dict[str, Metric]:
    return {metric.key: metric for metric in metrics}


_gauge, _counter, _ratio = partial(_row, "gauge"), partial(_row, "counter"), partial(_row, "ratio")
_fact, _static = partial(_row, "fact"), partial(_row, "fact", part="static")
_MAIN = "share of time in which the main thread"
_FEEDER = "share of time in which a loader, or the busiest host thread of a GPU process,"

# fmt: off
GPU_STATIC = _by_key(
    _static("index", "GPU", "NVML index of the GPU", "nvmlDeviceGetIndex", unit="id"),
    _static("uuid", "UUID", "the GPU's identity, stable over reboots", "nvmlDeviceGetUUID"),
    _static("name", "NAME", "product name", "nvmlDeviceGetName"),
    _static("architecture", "ARCH", "architecture, lower case", "nvmlDeviceGetArchitecture"),
    _static("sm_count", "SMS", "streaming multiprocessors", "nvmlDeviceGetAttributes_v2 or GPU cores", unit="count"),
    _static("pci_bus_id", "PCI", "PCI address", "nvmlDeviceGetPciInfo"),
    _static("driver", "DRIVER", "driver version", "nvmlSystemGetDriverVersion"),
    _static("nvlink_peak_bytes_per_s", "NVL PEAK", "sum of the NVLink speeds, one direction", "NVLink speed"),
    _static("mig_enabled", "MIG", "whether the GPU is split into instances", "nvmlDeviceGetMigMode", unit="bool"),
    _static("mig_parent", "PARENT", "UUID of the GPU that a MIG instance belongs to", "MIG handle"),
    _static("mig_instance", "INSTANCE", "GPU instance / compute instance of a MIG device", "MIG handle"),
    _static("serial", "SERIAL", "the board's serial number", "nvmlDeviceGetSerial"),
    _static("persistence", "PERSISTENCE", "whether the driver stays loaded without programs",
        "nvmlDeviceGetPersistenceMode", unit="bool"),
    _static("compute_mode", "COMPUTE", "default, prohibited or exclusive process", "nvmlDeviceGetComputeMode"),
    _static("cuda", "CUDA", "highest CUDA version of the driver", "nvmlSystemGetCudaDriverVersion"),
    _static("unified_memory", "UNIFIED", "whether the GPU has no memory of its own and uses the host's",
        "nvmlDeviceGetMemoryInfo", unit="bool"),
)

GPU_METRICS = _by_key(
    _ratio("util_pct", "UTIL",
        "share of the sample time in which at least one kernel ran; says nothing about how many multiprocessors ran it",
        "nvmlDeviceGetUtilizationRates.gpu", dcgm="DEV_GPU_UTIL", history=True, glossary=True),
    _ratio("mem_util_pct", "MEM TIME", "share of time in which device memory was read or written; time, not bandwidth",
        "nvmlDeviceGetUtilizationRates.memory", dcgm="DEV_MEM_COPY_UTIL", glossary=True),
    _ratio("sm_active_pct", "SM", "SM activity: share of the multiprocessors, averaged over cycles, with at least "
        "one warp resident; breadth of use, not work", "GPM metric 2", dcgm="PROF_SM_ACTIVE", history=True,
        glossary=True, activity=True),
    _ratio("sm_occupancy_pct", "OCC", "resident warps as a share of the warps that all multiprocessors could hold",
        "GPM metric 3", dcgm="PROF_SM_OCCUPANCY", history=True, glossary=True, activity=True),
    _ratio("tensor_active_pct", "TENSOR", "share of cycles in which a tensor pipe was active", "GPM metric 5",
        dcgm="PROF_PIPE_TENSOR_ACTIVE", history=True, glossary=True, activity=True),
    _ratio("hmma_active_pct", "HMMA", "share of cycles in which the tensor pipe did half-precision work (FP16, BF16)",
        "GPM metric 7", dcgm="PROF_PIPE_TENSOR_HMMA_ACTIVE", activity=True),
    _ratio("imma_active_pct", "IMMA", "share of cycles in which the tensor pipe did integer work (INT8)",
        "GPM metric 9", dcgm="PROF_PIPE_TENSOR_IMMA_ACTIVE", activity=True),
    _ratio("dmma_active_pct", "DMMA", "share of cycles in which the tensor pipe did FP64 work (DMMA)", "GPM metric 8",
        activity=True),
    _ratio("mma_stall_pct", "MMA STALL", "share of time in which tensor instructions were held up; newest drivers only",
        "field 297"),
    _ratio("dram_active_pct", "DRAM",
        "device memory bandwidth used, of the theoretical peak; about 80 % is the practical peak", "GPM metric 10",
        dcgm="PROF_DRAM_ACTIVE", history=True, glossary=True, activity=True),
    _ratio("fp64_active_pct", "FP64", "share of cycles with the FP64 pipe active", "GPM metric 11",
        dcgm="PROF_PIPE_FP64_ACTIVE", activity=True),
    _ratio("fp32_active_pct", "FP32", "share of cycles with the FP32 pipe active", "GPM metric 12",
        dcgm="PROF_PIPE_FP32_ACTIVE", activity=True),
    _ratio("fp16_active_pct", "FP16", "share of cycles with the FP16 pipe active", "GPM metric 13",
        dcgm="PROF_PIPE_FP16_ACTIVE", activity=True),
    _ratio("int_active_pct", "INT", "share of cycles with the integer pipe active", "GPM metric 4",
        dcgm="PROF_PIPE_INT_ACTIVE", activity=True),
    _ratio("graphics_active_pct", "GR", "share of time in which the compute or graphics engine was active",
        "GPM metric 1", dcgm="PROF_GR_ENGINE_ACTIVE", activity=True),
    _gauge("mem_used_bytes", "MEM USED", "device memory in use, without the driver's reserve",
        "nvmlDeviceGetMemoryInfo_v2.used", dcgm="DEV_FB_USED", history=True),
    _gauge("mem_total_bytes", "MEM", "device memory in all", "nvmlDeviceGetMemoryInfo_v2.total", dcgm="DEV_FB_TOTAL"),
    _gauge("power_w", "POWER", "power drawn by the board", "nvmlDeviceGetPowerUsage", dcgm="DEV_POWER_USAGE",
        history=True),
    _gauge("power_limit_w", "LIMIT", "enforced power limit", "nvmlDeviceGetEnforcedPowerLimit",
        dcgm="DEV_ENFORCED_POWER_LIMIT", seldom=True),
    _counter("energy_j", "ENERGY", "energy since the driver was loaded", "nvmlDeviceGetTotalEnergyConsumption",
        dcgm="DEV_TOTAL_ENERGY_CONSUMPTION", seldom=True),
    _gauge("temp_c", "TEMP", "temperature of the GPU chip", "nvmlDeviceGetTemperature", dcgm="DEV_GPU_TEMP",
        history=True),
    _gauge("mem_temp_c", "MEM TEMP", "temperature of the memory", "field 82", dcgm="DEV_MEMORY_TEMP"),
    _gauge("mem_temp_max_c", "MEM MAX", "highest temperature at which the memory may run",
        "nvmlDeviceGetTemperatureThreshold", dcgm="DEV_MEM_MAX_OP_TEMP", seldom=True),
    _gauge("temp_slowdown_c", "SLOWDOWN", "chip temperature at which the clocks are cut",
        "nvmlDeviceGetTemperatureThreshold", dcgm="DEV_SLOWDOWN_TEMP", seldom=True),
    _gauge("sm_clock_mhz", "CLOCK", "SM clock now", "nvmlDeviceGetClockInfo", dcgm="DEV_SM_CLOCK", history=True),
    _gauge("sm_clock_max_mhz", "MAX", "highest SM clock", "nvmlDeviceGetMaxClockInfo", dcgm="DEV_MAX_SM_CLOCK",
        seldom=True),
    _gauge("mem_clock_mhz", "MEM CLOCK", "memory clock now", "nvmlDeviceGetClockInfo", dcgm="DEV_MEM_CLOCK"),
    _ratio("fan_pct", "FAN", "intended fan speed", "nvmlDeviceGetFanSpeed", dcgm="DEV_FAN_SPEED", seldom=True),
    _gauge("pstate", "PSTATE", "performance state, 0 is the fastest", "nvmlDeviceGetPerformanceState", unit="id",
        dcgm="DEV_PSTATE", seldom=True),
    _gauge("pcie_rx_bytes_per_s", "PCIe ↓", "PCIe traffic into the GPU", "GPM metric 21, or field 198",
        dcgm="PROF_PCIE_RX_BYTES", history=True),
    _gauge("pcie_tx_bytes_per_s", "PCIe ↑", "PCIe traffic out of the GPU", "GPM metric 20, or field 197",
        dcgm="PROF_PCIE_TX_BYTES", history=True),
    _gauge("pcie_gen", "GEN", "PCIe generation now", "nvmlDeviceGetCurrPcieLinkGeneration", unit="id",
        dcgm="DEV_PCIE_LINK_GEN", seldom=True),
    _gauge("pcie_gen_max", "GEN MAX", "highest PCIe generation of GPU and slot", "nvmlDeviceGetMaxPcieLinkGeneration",
        unit="id", dcgm="DEV_PCIE_MAX_LINK_GEN", seldom=True),
    _gauge("pcie_width", "LANES", "PCIe lanes now", "nvmlDeviceGetCurrPcieLinkWidth", unit="id",
        dcgm="DEV_PCIE_LINK_WIDTH", seldom=True),
    _gauge("pcie_width_max", "LANES MAX", "most PCIe lanes of GPU and slot", "nvmlDeviceGetMaxPcieLinkWidth", unit="id",
        dcgm="DEV_PCIE_MAX_LINK_WIDTH", seldom=True),
    _gauge("nvlink_rx_bytes_per_s", "NVL ↓", "NVLink traffic into the GPU, all links", "GPM metric 60, or field 139",
        dcgm="PROF_NVLINK_RX_BYTES", history=True),
    _gauge("nvlink_tx_bytes_per_s", "NVL ↑", "NVLink traffic out of the GPU, all links", "GPM metric 61, or field 138",
        dcgm="PROF_NVLINK_TX_BYTES", history=True),
    _ratio("encoder_pct", "ENC", "video encoder use", "nvmlDeviceGetEncoderUtilization", dcgm="DEV_ENC_UTIL",
        seldom=True),
    _ratio("decoder_pct", "DEC", "video decoder use", "nvmlDeviceGetDecoderUtilization", dcgm="DEV_DEC_UTIL",
        seldom=True),
    _gauge("throttle_reasons", "THROTTLE", "clocks-event reasons, NVML's bit mask",
        "nvmlDeviceGetCurrentClocksEventReasons", unit="flags", dcgm="DEV_CLOCKS_EVENT_REASONS", glossary=True),
    _counter("ecc_uncorrected_volatile", "ECC", "uncorrected memory errors since the driver was loaded",
        "nvmlDeviceGetTotalEccErrors", dcgm="DEV_ECC_DBE_VOL_TOTAL", seldom=True),
    _counter("ecc_corrected_volatile", "ECC CORR", "corrected memory errors since the driver was loaded",
        "nvmlDeviceGetTotalEccErrors", dcgm="DEV_ECC_SBE_VOL_TOTAL", seldom=True),
    _counter("ecc_uncorrected", "ECC LIFE", "uncorrected memory errors, aggregate over the GPU's life",
        "nvmlDeviceGetTotalEccErrors", dcgm="DEV_ECC_DBE_AGG_TOTAL", seldom=True),
    _counter("ecc_corrected", "ECC CORR LIFE", "corrected memory errors, aggregate over the GPU's life",
        "nvmlDeviceGetTotalEccErrors", dcgm="DEV_ECC_SBE_AGG_TOTAL", seldom=True),
    _fact("remap_pending", "REMAP", "a row remap waits for a reset", "nvmlDeviceGetRemappedRows", unit="bool",
        seldom=True),
    _fact("remap_failed", "REMAP FAILED", "a row remap has failed", "nvmlDeviceGetRemappedRows", unit="bool",
        seldom=True),
    _counter("remapped_rows_corrected", "REMAPPED CORR", "memory rows remapped after corrected errors",
        "nvmlDeviceGetRemappedRows", seldom=True),
    _counter("remapped_rows_uncorrected", "REMAPPED", "memory rows remapped after uncorrected errors",
        "nvmlDeviceGetRemappedRows", seldom=True),
    _fact("retired_pending", "RETIRE", "a page retirement waits for a reset", "field 31", unit="bool", seldom=True),
    _gauge("ecc_corrected_per_s", "ECC CORR/S", "corrected memory errors a second, since the reading before",
        "nvmlDeviceGetTotalEccErrors", seldom=True),
    _gauge("recovery_action", "RECOVERY",
        "what the driver asks for: 0 nothing, 1 reset the GPU, 2 reboot the node, 3 drain peer-to-peer traffic, "
        "4 drain and reset", "field 230", unit="id", seldom=True),
    _gauge("nvlink_count", "LINKS", "NVLinks that the GPU has", "field 91", seldom=True),
    _gauge("nvlink_active", "LINKS UP", "NVLinks that are up", "field 165", seldom=True),
    _gauge("module_power_w", "MODULE", "power of the whole module, with its CPU (GH200, GB200)",
        "field 186, scope module", seldom=True),
    _gauge("xid", "XID", "last Xid error seen while watching", "NVML event set", unit="id", dcgm="DEV_XID_ERRORS"),
)

SM_PROVENANCE = _by_key(
    _fact("sm_source", "SM SOURCE", f'where SM activity comes from: {", ".join(SM_SOURCES)}'),
    _fact("sm_window_s", "SM WINDOW", "time over which SM activity is the mean"),
    _fact("sm_age_s", "SM AGE", "age of the SM activity value"),
    _fact("sm_low_pct", "SM LOW", "lower bound of SM activity where it is not measured"),
    _fact("sm_high_pct", "SM HIGH", "upper bound of SM activity where it is not measured"),
    _fact("sm_reason", "SM REASON", "why SM activity is not measured", "the source in use", field="sm_lack"),
)

GPU_STATE = _by_key(
    _fact("lost_reason", "LOST", "why this GPU cannot be read at present; null when it can"),
    _fact("lost_since", "SINCE", "Unix time since which this GPU cannot be read", unit="s"),
    _fact("nvlink_down", "LINKS DOWN", "the numbers of the NVLinks that are down, or none", "field 165"),
    _fact("xid_class", "XID CLASS", "whose fault the last Xid is: program, device or memory",
        "NVIDIA's catalogue"),
    _fact("xid_action", "XID ACTION", "what NVIDIA says to do after the last Xid", "NVIDIA's catalogue"),
    _fact("asleep", "ASLEEP", "whether the kernel has switched the GPU off, so that it was not asked",
        "/sys/bus/pci/devices/*/power/runtime_status", unit="bool"),
)

HOST_METRICS = _by_key(
    _ratio("cpu_pct", "CPU", "processor time in use, of all cores", "/proc/stat"),
    _gauge("cpu_count", "CORES", "cores that gputop's cgroup and affinity leave", "affinity, cgroup"),
    _gauge("load1", "LOAD", "load average over one minute", "/proc/loadavg"),
    _gauge("load5", "LOAD 5", "load average over five minutes", "/proc/loadavg"),
    _gauge("load15", "LOAD 15", "load average over fifteen minutes", "/proc/loadavg"),
    _gauge("mem_used_bytes", "MEM", "memory in use, without caches", "/proc/meminfo"),
    _gauge("mem_total_bytes", "MEM TOTAL", "memory in all, or the cgroup's limit", "/proc/meminfo"),
    _gauge("swap_used_bytes", "SWAP", "swap in use", "/proc/meminfo"),
    _gauge("swap_total_bytes", "SWAP TOTAL", "swap in all", "/proc/meminfo"),
    _gauge("uptime_s", "UPTIME", "time since the machine was booted", "/proc/stat"),
    _gauge("disk_read_bytes_per_s", "DISK ↓", "read from block devices", "/proc/diskstats"),
    _gauge("disk_write_bytes_per_s", "DISK ↑", "written to block devices", "/proc/diskstats"),
    _gauge("net_rx_bytes_per_s", "NET ↓", "received, without loopback", "/proc/net/dev"),
    _gauge("net_tx_bytes_per_s", "NET ↑", "sent, without loopback", "/proc/net/dev"),
    _ratio("psi_cpu_pct", "CPU WAIT", "share of time in which some task waited for a core", "/proc/pressure/cpu"),
    _ratio("psi_io_pct", "I/O WAIT", "share of time in which some task waited for I/O", "/proc/pressure/io"),
    _ratio("psi_mem_pct", "MEM WAIT", "share of time some task waited for memory", "/proc/pressure/memory"),
    _fact("cpu_outsiders", "OUTSIDERS", "largest CPU users outside the GPUs' process trees: user, name, percent",
        "/proc/PID/stat", field="outsiders"),
    _gauge("cpu_outsiders_pct", "OUTSIDERS CPU",
        "what all processes outside the GPUs' process trees use together, percent of one core", "/proc/PID/stat"),
    _gauge("fabric_rx_bytes_per_s", "FABRIC ↓", "received over InfiniBand, RoCE and EFA", "/sys/class/infiniband"),
    _gauge("fabric_tx_bytes_per_s", "FABRIC ↑", "sent over InfiniBand, RoCE and EFA", "/sys/class/infiniband"),
    _gauge("fabric_peak_bytes_per_s", "FABRIC PEAK", "speed of the ports that are up, each way",
        "/sys/class/infiniband"),
    _counter("fabric_drops", "FABRIC DROPS", "packets that the fabric's ports dropped", "/sys/class/infiniband"),
    _counter("fabric_retransmits", "FABRIC RETRANS", "events after which the fabric sent packets again",
        "/sys/class/infiniband"),
    _counter("fabric_link_errors", "FABRIC ERRORS", "symbol and link errors of the fabric's ports",
        "/sys/class/infiniband"),
    _gauge("fabric_ports_down", "PORTS DOWN", "ports without a link that have had one", "/sys/class/infiniband"),
    _gauge("fabric_ports_degraded", "PORTS SLOW", "ports slower or narrower than they were or than their like",
        "/sys/class/infiniband"),
    _counter("tcp_retransmits", "TCP RETRANS", "TCP segments sent again since boot", "/proc/1/net/snmp"),
)

PROCESS_METRICS = _by_key(
    _fact("pid", "PID", "process id", unit="id"),
    _fact("starttime", "START", "start time in clock ticks since boot; with pid, the identity", "stat field 22",
        unit="id"),
    _fact("ppid", "PPID", "parent's process id", "stat field 4", unit="id"),
    _fact("role", "ROLE", "gpu (holds a GPU context), loader (dataloader worker) or helper"),
    _fact("gpu", "GPU", "index of the GPU that the process, or its nearest GPU ancestor, uses", unit="id"),
    _gauge("gpu_mem_bytes", "GPU-MEM", "device memory held on this GPU", "NVML process lists"),
    _ratio("gpu_time_pct", "GPU%",
        "share of time in which this process had a kernel running; time, not SM activity",
        "nvmlDeviceGetProcessUtilization.smUtil"),
    _ratio("gpu_mem_time_pct", "MEM-BW%",
        "share of time in which this process read or wrote device memory; time, not bandwidth",
        "nvmlDeviceGetProcessUtilization.memUtil"),
    _ratio("gpu_encoder_pct", "ENC%", "video encoder use of this process", "nvmlDeviceGetProcessUtilization.encUtil"),
    _ratio("gpu_decoder_pct", "DEC%", "video decoder use of this process", "nvmlDeviceGetProcessUtilization.decUtil"),
    _fact("type", "TYPE", "C compute, G graphics, X both", "NVML process lists"),
    _gauge("cpu_pct", "CPU%", "CPU time of all threads, percent of one core", "/proc/PID/stat"),
    _gauge("run_pct", "RUN", "time on a core, percent of one core", "/proc/PID/schedstat"),
    _gauge("wait_pct", "QUEUE", "time queued for a core, percent of one core", "/proc/PID/schedstat"),
    _ratio("main_run_pct", "MAIN RUN",
        "the main thread's time on a core, with PyTorch's threads in which its backward pass runs",
        "/proc/PID/schedstat"),
    _ratio("main_wait_pct", "MAIN QUEUE", "the main thread's time queued for a core", "/proc/PID/schedstat"),
    _fact("state", "S", "kernel state: R running, S asleep, D disk wait, Z zombie, T stopped", "stat field 3"),
    _fact("waiting_on", "WAITS ON", "the wait that took most of the time of its main thread, or of a loader: queue, "
        "network, pipe, disk, sleep, lock, gpu or other", "/proc/PID/wchan", field="main_looks"),
    _gauge("rss_bytes", "HOST-MEM", "resident host memory", "/proc/PID/stat"),
    _gauge("read_bytes_per_s", "READ", "read from storage", "/proc/PID/io"),
    _gauge("write_bytes_per_s", "WRITE", "written to storage", "/proc/PID/io"),
    _gauge("threads", "THREADS", "number of threads", "stat field 20"),
    _ratio("throttled_pct", "THROTTLED", "scheduling periods cut short by the cgroup's CPU limit", "cpu.stat"),
    _fact("nccl", "NCCL", "whether the process runs NCCL threads", "thread names", unit="bool"),
    _gauge("age_s", "TIME", "time since the process started", "stat field 22"),
    _fact("pin_memory", "PIN", "whether a pin-memory thread runs", "thread names", unit="bool"),
    _gauge("pool_threads", "HOST THREADS", "threads neither main nor CUDA, NCCL or autograd"),
    _gauge("pool_run_pct", "POOL RUN", "CPU time of those host threads, percent of one core"),
    _share("feed_run_pct", "FEED RUN", f"{_FEEDER} ran on a core", "schedstat"),
    _share("feed_queued_pct", "FEED QUEUE", f"{_FEEDER} was queued for a core", "schedstat"),
    _share("feed_disk_pct", "FEED DISK", f"{_FEEDER} waited for a disk", "stat field 3"),
    _share("feed_network_pct", "FEED NET", f"{_FEEDER} waited for the network", "wchan, sock_diag"),
    _share("feed_lock_pct", "FEED LOCK", f"{_FEEDER} waited for a lock", "wchan"),
    _share("feed_sleep_pct", "FEED SLEEP", f"{_FEEDER} slept by a timer", "wchan"),
    _share("feed_poll_pct", "FEED POLL", f"{_FEEDER} polled: idle, or a socket with a timeout", "wchan"),
    _gauge("feeder_threads", "FEEDERS", "threads that can prepare data, without the main thread"),
    _fact("feed_by", "FEED BY",
        "what resolved a wait of the feeder: child, socket, thread, task queue or parent listens"),
    _gauge("net_rx_bytes_per_s", "NET ↓", "received on TCP sockets of this process", "sock_diag"),
    _fact("main_waits", "MAIN WAITS", "what the main thread waited for at looks between two readings", "wchan",
        field="main_looks"),
    _fact("held_up_by", "HELD UP BY", "whom or what the main thread waited for at those looks", "syscall, fd, wchan",
        field="waits_for"),
    _fact("listens", "LISTENS", "whether its main thread waits for connections", "sock_diag, wchan", unit="bool"),
    _share("feed_other_pct", "FEED OTHER", f"{_FEEDER} waited for something else: work, a reader", "wchan"),
    _share("feed_unread_pct", "FEED UNREAD", f"{_FEEDER} slept, and what for was not seen", "wchan"),
    _share("main_disk_pct", "MAIN DISK", f"{_MAIN} waited for a disk", "wchan, stat field 3"),
    _share("main_network_pct", "MAIN NET", f"{_MAIN} waited for the network", "wchan, sock_diag"),
    _share("main_lock_pct", "MAIN LOCK", f"{_MAIN} waited for a lock", "wchan"),
    _share("main_sleep_pct", "MAIN SLEEP", f"{_MAIN} slept by a timer", "wchan"),
    _share("main_poll_pct", "MAIN POLL", f"{_MAIN} polled: for a batch, a request, a socket", "wchan"),
    _share("main_pipe_pct", "MAIN PIPE", f"{_MAIN} waited for data of a pipe", "wchan"),
    _share("main_write_pct", "MAIN WRITE", f"{_MAIN} waited for the reader of a full pipe", "wchan"),
    _share("main_other_pct", "MAIN OTHER", f"{_MAIN} waited for something else", "wchan"),
    _share("main_unread_pct", "MAIN UNREAD", f"{_MAIN} slept, and what for was not seen", "wchan"),
    _fact("mount", "MOUNT", "the networked file system on which it waits", "fdinfo, mountinfo"),
    _gauge("allowed_cores", "CORES",
        "cores that its CPU mask and cgroup leave to a process that holds a GPU, and to loaders together"),
    _fact("framework", "FRAMEWORK", "torch, jax or tensorflow, where its threads show which", "thread names"),
    _share("main_saves_pct", "MAIN SAVES", f"{_MAIN} waited for a file to be written", "syscall"),
)

PROCESS_STATIC = _by_key(
    _static("user", "USER", "owner"),
    _static("command", "COMMAND", "command line, what looks like a secret masked"),
    _static("name", "NAME", "executable's name"),
    _static("job", "JOB", "batch job, from the cgroup path", "/proc/PID/cgroup", field="batch_job"),
    _static("container", "CONTAINER", "container or pod, from the cgroup path", "/proc/PID/cgroup",
        field="contained_in"),
    _static("loader", "LOADER", "kind of dataloader worker"),
    _static("why", "WHY", "the rule by which the role was given, in words"),
    _static("server", "SERVER", "the program that serves requests, by the command line"),
    _static("job_key", "JOB KEY", "the same for processes of one user and command line; salted, it reveals neither"),
    _static("rank", "RANK", "number of the process in its run, from its environment", "/proc/PID/environ"),
    _static("run", "RUN", "the same for all ranks of one run on this machine: where they meet, and their number",
        "/proc/PID/environ"),
    _static("rule", "RULE", "the rule by which the role was given: R1 to R6, or never"),
)
# fmt: on

ACTIVITY_KEYS = tuple(key for key, metric in GPU_METRICS.items() if metric.activity)
HISTORY_KEYS = tuple(key for key, metric in GPU_METRICS.items() if metric.history)
