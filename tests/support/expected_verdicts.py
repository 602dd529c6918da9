"""The diagnosis that GPUs of the demo's scenarios must reach, and after how many seconds."""

from __future__ import annotations

import re
from typing import NamedTuple


class Expected(NamedTuple):
    """One GPU: its verdict, what kind of busy without work it is, and all of its badges."""

    gpu: int
    verdict: str
    flag: str | None
    badges: tuple[str, ...]
    after_s: float


_GPUS = {
    "node": "small_kernels:A healthy healthy dataloader_cpu communication:A memory_bandwidth dataloader_io "
        "idle_holding_memory",
    "remedied": "healthy healthy healthy healthy healthy healthy healthy idle",
    "healthy": "healthy",
    "small_kernels": "small_kernels:A",
    "communication": "communication:A+fabric_errors",
    "useful_work": "healthy low_demand",
    "step_time": "healthy",
    "dataloader_cpu": "dataloader_cpu",
    "dataloader_cpu_throttled": "dataloader_cpu+cpu_limit",
    "uneven_workers": "dataloader_cpu",
    "dataloader_io": "dataloader_io",
    "dataloader_network": "dataloader_io",
    "main_process": "main_process",
    "pcie_transfer": "pcie_transfer",
    "worker_restart": "worker_restart",
    "checkpoint_pause": "checkpoint_pause",
    "starved_unattributed": "starved_unattributed",
    "low_demand": "low_demand",
    "memory_bandwidth": "memory_bandwidth",
    "no_tensor_cores": "no_tensor_cores",
    "half_working": "half_working half_working",
    "hollow": "small_kernels:C",
    "stalled": "stalled",
    "low_sm": "low_sm:A",
    "no_sm_counter": "no_bottleneck_seen",
    "idle_holding_memory": "idle_holding_memory",
    "thermal": "healthy+thermal",
    "memory_leak": "healthy+memory_leak",
    "straggler": "2=healthy+straggler 0=half_working+straggler 1=half_working+straggler half_working+straggler",
    "hang": "hang:A hang:A 3=hang:A 2=idle",
    "fabric_link": "healthy+fabric_errors healthy+fabric_errors",
    "lost_gpu": "healthy 2=collecting+lost@75",
    "counter_fault": "no_bottleneck_seen+counter_fault",
    "one_gpu": "dataloader_cpu",
    "mig": "1=healthy 2=healthy",
    "sixteen": "small_kernels:A healthy healthy dataloader_cpu communication:A memory_bandwidth dataloader_io "
        "idle_holding_memory",
    "power_capped": "healthy+power_capped",
    "ecc": "healthy+ecc",
    "pid_namespace": "starved_unattributed",
    "unified_memory": "healthy",
    "asleep": "no_bottleneck_seen collecting",
    "shared_gpu": "healthy+shared_gpu",
}  # fmt: skip
"""By scenario its GPUs in their order, or by number: ``GPU=verdict:flag+badge@seconds``."""


def _read(place: int, words: str) -> Expected:
    found = re.fullmatch(r"(?:(\d+)=)?(\w+)(?::(\w))?(?:\+(\w+))?(?:@(\d+))?", words)
    assert found is not None, words
    gpu, verdict, flag, badge, after_s = found.groups()
    return Expected(
        int(gpu or place), verdict, flag, (badge,) if badge else (), float(after_s or 40.0)
    )


EXPECTED = {
    name: tuple(_read(*each) for each in enumerate(words.split())) for name, words in _GPUS.items()
}
"""By scenario; the first one is what it shows."""
