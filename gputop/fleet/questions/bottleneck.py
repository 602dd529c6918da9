"""What holds a GPU back."""

from __future__ import annotations

from gputop.diagnosis.types import NOT_WORKING
from gputop.fleet.query import Alert, Planted, Query

_OWN = 'gpu="0",uuid="GPU-0",instance="n1:9401"'
_LANE = "0.985e9 * 2 ^ ({pcie_gen} - 3) * 0.8"
"""Usable bytes a second of one PCIe lane, one direction: 0.985 GB/s in generation 3, doubled by each next one."""
_STARVED = "pcie_transfer|dataloader_.*|main_process|worker_restart|checkpoint_pause|starved_unattributed"
QUERIES = (
    Query(
        "gap", "bottleneck", NOT_WORKING.capitalize(), "ratio",
        "({util.avg_over_time.5m} - {sm.avg_over_time.5m}) "
        "and ({util.avg_over_time.5m} >= 0.8) and ({sm.avg_over_time.5m} < 0.3)",
        "Kernels run all the time, on less than a third of the chip: small kernels, NCCL that spins, or one block that "
        "keeps a whole GPU busy. The value is the gap between utilisation and SM activity.",
        "On the host gputop says which: the verdict small_kernels, communication or low_sm, with evidence and remedy.",
        alert=Alert("GpuBusyNotWorking", "", "15m", "warning",
                    Planted(({"util": 0.97, "sm": 0.1},)), Planted(({"util": 0.97, "sm": 0.85},))),
    ),
    Query(
        "memory_bound", "bottleneck", "Bound by memory bandwidth", "ratio",
        "{dram.avg_over_time.5m} and ({dram.avg_over_time.5m} >= 0.6) and ({util.avg_over_time.5m} >= 0.5)",
        "Three quarters of the bandwidth that kernels reach. SM activity is high meanwhile: warps wait for memory, so "
        "the usual condition of DRAM high and SM low finds nothing.",
        "Inherent in decoding; larger batch, FlashAttention, fused kernels, quantised weights.",
    ),
    Query(
        "pcie_saturation", "bottleneck", "PCIe traffic as a share of the link", "ratio",
        f"({{pcie_rx.avg_over_time.5m}} > {{pcie_tx.avg_over_time.5m}} or {{pcie_tx.avg_over_time.5m}}) / "
        f"({_LANE} * {{pcie_width}})",
        "The busier direction against what the link carries at its present generation and width. A fixed limit in GB/s "
        "is wrong on every other machine.",
        "pin_memory=True and non_blocking copies; keep data on the GPU; check that the link runs at its full width.",
        alert=Alert("GpuPcieSaturated", " > 0.9", "15m", "info",
                    Planted(({"pcie_rx": 50e9, "pcie_tx": 1e9, "pcie_gen": 5.0, "pcie_width": 16.0},)),
                    Planted(({"pcie_rx": 20e9, "pcie_tx": 1e9, "pcie_gen": 5.0, "pcie_width": 16.0},))),
    ),
    Query(
        "pcie_against_dram", "bottleneck", "PCIe traffic with little use of device memory", "bytes/s",
        "{pcie_rx.avg_over_time.5m} and ({pcie_rx.avg_over_time.5m} > 1e9) and ({dram.avg_over_time.5m} < 0.15)",
        "Data comes over PCIe and little is done with it: copies set the pace.",
        "Preprocess on the GPU, send bytes and not floats, prefetch to the device.",
    ),
    Query(
        "communication", "bottleneck", "Waits for other GPUs", "ratio",
        'max by ({by}) ({gputop_gpu_verdict|verdict="communication"}) == 1',
        "The GPU is busy and not working because its kernels wait in NCCL.",
        "Find the rank that the others wait for: straggler_slow, straggler_starved. Overlap communication.",
        "{nvlink_rx.avg_over_time.5m} and ({util.avg_over_time.5m} >= 0.8) and ({sm.avg_over_time.5m} < 0.3) "
        "and ({nvlink_rx.avg_over_time.5m} > 1e9)",
    ),
    Query(
        "starved_by_cause", "bottleneck", "Starved GPUs by cause", "GPUs",
        f'count by (verdict) ({{gputop_gpu_verdict|verdict=~"{_STARVED}"}} == 1)',
        "GPUs that wait for their host, by what the host did meanwhile: loaders short of cores, on disk or network, "
        "the main thread, copies.",
        "Each verdict has its remedy: gputop help verdicts.", None,
    ),
    Query(
        "starved", "bottleneck", "Starved GPUs", "ratio",
        f'max by ({{by}}) ({{gputop_gpu_idle_ratio.avg_over_time.5m}}) and on ({{by}}) '
        f'({{gputop_gpu_verdict|verdict=~"{_STARVED}"}} == 1)',
        "Share of time in which no kernel ran on a GPU that a job holds.",
        "On the host: gputop, or gputop diagnose for a ticket.",
        "(1 - {util.avg_over_time.5m}) and ({util.avg_over_time.5m} < 0.8) and ({util.avg_over_time.5m} >= 0.05) "
        "and ({memory} >= 1073741824)",
        Alert("GpuStarved", " > 0.2", "30m", "info",
              Planted(({"util": 0.4, "memory": 4e10},),
                      ((f"gputop_gpu_idle_ratio{{{_OWN}}}", 0.6),
                       (f'gputop_gpu_verdict{{{_OWN},verdict="dataloader_cpu"}}', 1.0))),
              Planted(({"util": 0.95, "memory": 4e10},),
                      ((f"gputop_gpu_idle_ratio{{{_OWN}}}", 0.05),
                       (f'gputop_gpu_verdict{{{_OWN},verdict="healthy"}}', 1.0)))),
    ),
    Query(
        "loaders_waiting", "bottleneck", "Loaders short of cores", "ratio",
        "max by ({by}) ({gputop_loader_queued_ratio.avg_over_time.5m}) > 0.1",
        "Share of time the dataloader workers were runnable and had no core.",
        "Fewer workers a GPU, more cores a job; decode on the GPU.", None,
    ),
    Query(
        "loaders_on_disk", "bottleneck", "Loaders that wait for the disk", "ratio",
        "max by ({by}) ({gputop_loader_disk_ratio.avg_over_time.5m}) > 0.1",
        "Share of the dataloader workers that waited for the disk.",
        "Larger files, local NVMe, a cache; more workers help only where the disk has room.", None,
    ),
)  # fmt: skip
