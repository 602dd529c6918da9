"""Facts that one sample shows: link, clock, memory, counters."""

from __future__ import annotations

from gputop.diagnosis.window.sanity import reads_zero_at_work
from gputop.model.sm import MEASURED
from gputop.model.snapshot import GpuSample, HostSample, ProcessSample

LOUD_UTIL = 5.0
"""p95 of util below this is the idle family; a sample at or above it is loud."""
PCIE_LANE_BYTES = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.97e9, 5: 3.94e9, 6: 7.56e9}
PCIE_USABLE = 0.8
MEMORY_FULL = 0.95
"""Share of the device memory in use from which on it is full."""
SWAP_PSI = 10.0
SWAP_FULL = 0.9
SWAP_BYTES = 1e9
HBM_MAX_C = 95.0
HBM_CARDS = (
    "HBM",
    "P100",
    "V100",
    "A100",
    "A800",
    "A30",
    "H100",
    "H800",
    "H200",
    "H20",
    "GH200",
    "B100",
    "B200",
    "GB200",
)
"""Cards with HBM, whose highest operating temperature the drivers of A100 and H100 give as 95 °C."""
NOT_MEASURED = "the main thread was not measured"
HIDDEN = "the processes live in another PID namespace or are hidden"
STALE_S = 60.0
"""Counters that are this old describe another moment than util does. The slowest exporters publish every 30 s."""


def ratio(part: float | None, whole: float | None) -> float | None:
    """Return part / whole.

    None if either is unknown or the whole is 0.
    """
    return None if part is None or not whole else part / whole


def is_stale(gpu: GpuSample) -> bool:
    """True if the counters are too old for the util beside them."""
    return gpu.sm_age_s is not None and gpu.sm_age_s > max(STALE_S, 2.0 * (gpu.sm_window_s or 0.0))


def is_split(gpu: GpuSample) -> bool:
    """True if SM activity is of a whole GPU in MIG mode."""
    return bool(gpu.static.mig_enabled) and (
        gpu.static.mig_parent is None or gpu.util_pct is not None
    )


def sm_now(gpu: GpuSample) -> float | None:
    """SM activity of one sample, percent.

    None if it was not measured or is not believed.
    """
    if (
        gpu.sm_source not in MEASURED
        or reads_zero_at_work(gpu)
        or is_stale(gpu)
        or "sm_active_pct" in gpu.doubts
    ):
        return None
    return gpu.sm_active_pct


def clock_share(gpu: GpuSample) -> float | None:
    """SM clock as a share of its maximum."""
    return ratio(gpu.sm_clock_mhz, gpu.sm_clock_max_mhz)


def pcie_capacity(gpu: GpuSample) -> float | None:
    """Usable bytes per second of the PCIe link in one direction: 80 % of its present raw rate."""
    lane = PCIE_LANE_BYTES.get(gpu.pcie_gen or 0)
    return None if lane is None or not gpu.pcie_width else lane * gpu.pcie_width * PCIE_USABLE


def memory_of(gpu: GpuSample, host: HostSample) -> tuple[float | None, float | None]:
    """Used and total bytes of the memory that a job on this GPU can fill.

    A GPU without memory of its own is full when the host or the cgroup is: ``MemAvailable`` counts.
    """
    if gpu.static.unified_memory:
        return host.mem_used_bytes, host.mem_total_bytes
    return gpu.mem_used_bytes, gpu.mem_total_bytes


def degraded_link(gpu: GpuSample) -> str:
    """Describe a PCIe link below its best; empty at its best.

    ``gen 1 of 5, x1 of x16``.

    A GPU that shares the host's memory does not copy over PCIe: its link is narrow and unused.
    """
    if gpu.static.unified_memory:
        return ""
    words = []
    if (
        gpu.pcie_gen is not None
        and gpu.pcie_gen_max is not None
        and gpu.pcie_gen < gpu.pcie_gen_max
    ):
        words.append(f"gen {gpu.pcie_gen} of {gpu.pcie_gen_max}")
    if (
        gpu.pcie_width is not None
        and gpu.pcie_width_max is not None
        and gpu.pcie_width < gpu.pcie_width_max
    ):
        words.append(f"x{gpu.pcie_width} of x{gpu.pcie_width_max}")
    return ", ".join(words)


def memory_limit_c(gpu: GpuSample) -> float | None:
    """Highest operating temperature of the memory, °C.

    The driver's, else the usual one of HBM on cards that have it.
    """
    if gpu.mem_temp_max_c:
        return gpu.mem_temp_max_c
    words = gpu.static.name.upper()
    return HBM_MAX_C if any(word in words for word in HBM_CARDS) else None


def link_words(gpu: GpuSample) -> str:
    """``link gen 1 x1 of gen 5 x16``."""
    best = (
        f" of gen {gpu.pcie_gen_max} x{gpu.pcie_width_max}"
        if gpu.pcie_gen_max and gpu.pcie_width_max
        else ""
    )
    return f"link gen {gpu.pcie_gen} x{gpu.pcie_width}{best}"


def why_no_processes(gpu: GpuSample) -> str | None:
    """Why it is not known which processes use a GPU, or None."""
    return gpu.unavailable.get("processes")


def missing_host_reason(primary: ProcessSample | None, gpu: GpuSample) -> str | None:
    """Why nothing is known of the main thread.

    None if it was measured.
    """
    if primary is None:
        why = why_no_processes(gpu)
        return "no process visible on this GPU" if why is None else f"processes n/a: {why}"
    if primary.main_run_pct is not None:
        return None
    if (why := primary.unavailable.get("main_run_pct")) is not None:
        return why
    is_visible = primary.starttime is not None or primary.cpu_pct is not None
    return NOT_MEASURED if is_visible else HIDDEN


def swapping(host: HostSample) -> str | None:
    """Evidence that the host swaps, or None.

    Swap that is merely occupied is old and harmless [judged].
    """
    swap = host.swap_used_bytes
    if not swap:
        return None
    if host.psi_mem_pct is not None and host.psi_mem_pct >= SWAP_PSI:
        return (
            f"{swap / 1e9:.1f} GB in swap, tasks wait for memory {host.psi_mem_pct:.0f} % of the "
            "time"
        )
    full = ratio(host.mem_used_bytes, host.mem_total_bytes)
    if swap >= SWAP_BYTES and full is not None and full >= SWAP_FULL:
        return f"{swap / 1e9:.1f} GB in swap and host memory {100.0 * full:.0f} % full"
    return None
