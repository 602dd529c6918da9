"""The parts of ``Signals`` that come from a window and one moment of the host, each a dict by field name. Pure."""

from __future__ import annotations

from math import ceil
from typing import Any

from gputop.diagnosis import window as col
from gputop.diagnosis.host import HostTick
from gputop.diagnosis.window import Means, Window
from gputop.diagnosis.window_row import swapping, why_dark
from gputop.model.feeders import MainWaits, outsiders_in, waits_in
from gputop.model.snapshot import GpuSample, HostSample

Part = dict[str, Any]


def gpu_part(window: Window, mean: Means, sm: float | None, gpu: GpuSample) -> Part:
    """What the GPU did, as means and shares of the window, and its memory now."""
    n = len(window)
    return {
        "sm": sm,
        "occ": mean[col.OCC],
        "tensor": mean[col.TENSOR],
        "fp32": mean[col.FP32],
        "dram": mean[col.DRAM],
        "pcie_rx": mean[col.PCIE_RX],
        "pcie_tx": mean[col.PCIE_TX],
        "nvlink": mean[col.NVLINK],
        "power": mean[col.POWER],
        "clock": mean[col.CLOCK],
        "thermal": window.count(col.THERMAL) / n,
        "brake": window.count(col.BRAKE) / n,
        "capped": window.count(col.CAPPED) / n,
        "mem_used": gpu.mem_used_bytes,
        "mem_total": gpu.mem_total_bytes,
    }


def host_part(window: Window, mean: Means, tick: HostTick, host: HostSample) -> Part:
    """What the host did for this GPU: its main thread, its loaders, the machine around them."""
    p = tick.primary
    return {
        "host": p is not None and p.main_run_pct is not None,
        "host_reason": why_dark(p),
        "main": mean[col.MAIN],
        "main_disk": mean[col.MAIN_DISK],
        "loaders": tick.loader_count or ceil(window.total(col.LOADERS) / len(window)),
        "workers": mean[col.WORKERS],
        "running": mean[col.RUNNING],
        "queued": mean[col.QUEUED],
        "disk": mean[col.DISK],
        "network": mean[col.NETWORK],
        "waits_known": not tick.loader_count or tick.wait_channels > 0,
        "tree_cores": mean[col.TREE],
        "read_bytes_per_s": mean[col.READ],
        "write_bytes_per_s": mean[col.WRITE],
        "io_known": not tick.loader_count or tick.read_bytes is not None,
        "throttled": mean[col.THROTTLED],
        "pool_cores": mean[col.POOL],
        "host_cpu": host.cpu_pct,
        "psi_cpu": host.psi_cpu_pct,
        "swapping": swapping(host),
        "listens": mean[col.LISTENS] or 0.0,
        "main_fetches": p is not None and p.feed_by == "main socket",
        "main_looks": 1 if p is None else max(1, sum(waits_in(p.main_waits).values())),
        "main_queued": mean[col.MAIN_QUEUED],
        "main_rx": None if p is None else p.net_rx_bytes_per_s,
        "main_waits": main_waits(mean),
        "knows_feeders": tick.knows_feeders,
        "cores": host.cpu_count,
        "outsiders": outsiders_in(host.cpu_outsiders),
    }


def main_waits(mean: Means) -> MainWaits | None:
    """What the main thread waited for; None where it cannot be seen."""
    if mean[col.MAIN] is None:
        return None
    return MainWaits(
        mean[col.MAIN_DISK] or 0.0,
        mean[col.MAIN_NETWORK] or 0.0,
        mean[col.MAIN_LOCK] or 0.0,
        mean[col.MAIN_SLEEP] or 0.0,
        mean[col.MAIN_POLL] or 0.0,
        mean[col.MAIN_PIPE] or 0.0,
    )


def process_part(tick: HostTick) -> Part:
    """Who uses this GPU at this moment."""
    p = tick.primary
    return {
        "processes": tick.computing(),
        "process_bytes": tick.process_bytes,
        "age_s": None if p is None else p.age_s,
        "name": "process" if p is None else p.static.name or "process",
        "pid": None if p is None else p.pid,
        "server": None if p is None else p.static.server,
        "nccl": tick.nccl,
        "graphics": p is not None and (p.type or "C") != "C",
        "loader_kind": tick.kinds,
        "pin_memory": tick.pin_memory,
    }
