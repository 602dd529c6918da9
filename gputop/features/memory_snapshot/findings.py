"""What of a snapshot is wrong, with the numbers that show it and what helps. Pure: numbers in, words out."""

from __future__ import annotations

from msgspec import Struct

from gputop.diagnosis.thresholds import FRAGMENTED_BYTES, FRAGMENTED_PCT
from gputop.diagnosis.types import Level
from gputop.features.memory_snapshot.memory_analysis import DeviceReport, Growth, MemoryReport, OutOfMemory
from gputop.features.memory_snapshot.stacks import Category
from gputop.model.quantity import memory_size

EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, set before the program's first allocation"
FEWER_SIZES = (
    "fewer different sizes: pad batches to a few lengths, allocate what lives long first; empty_cache() between phases"
)
LET_GO = "do not keep what a step made: loss.item() or .detach() for what is collected, lists cleared, hooks removed"
SMALLER: dict[Category, str] = {
    "activations": "a smaller micro-batch with accumulated gradients, activation checkpointing, bf16",
    "optimizer": "sharded optimizer state (FSDP, ZeRO), an 8-bit or factored optimizer",
    "gradients": "zero_grad(set_to_none=True), sharded gradients (FSDP, ZeRO-2), a smaller micro-batch",
    "parameters": "sharded parameters (FSDP, ZeRO-3), lower precision, adapters in place of full training",
    "inputs": "smaller batches, inputs as uint8, copied to the device one step ahead and no more",
    "communication": "smaller buckets (bucket_cap_mb), fewer prefetched layers (FSDP limit_all_gathers)",
    "workspace": "CUBLAS_WORKSPACE_CONFIG with a smaller workspace, fewer streams",
    "other": "see below what holds most",
}  # fmt: skip


class MemoryFinding(Struct, frozen=True):
    """One thing that is wrong on a device. ``kind``: ``out_of_memory``, ``growth`` or ``fragmentation``."""

    kind: str
    level: Level
    headline: str
    evidence: tuple[str, ...]
    remedy: str


def findings(report: MemoryReport, device: DeviceReport) -> tuple[MemoryFinding, ...]:
    """The worst first."""
    all_findings = [_failure(failure, report) for failure in device.failures[-1:]]
    all_findings += [_growth(device.growth)] if device.growth else []
    pool = device.reserved
    if pool.fragmented_pct >= FRAGMENTED_PCT and pool.free_in_used >= FRAGMENTED_BYTES:
        all_findings.append(
            MemoryFinding(
                "fragmentation",
                "yellow",
                f"FRAGMENTED: {memory_size(pool.free_in_used)} of {memory_size(pool.reserved)} reserved are free and "
                "cannot be given back",
                (
                    f"they lie beside blocks in use; the largest free piece is {memory_size(pool.largest_free)}, and "
                    f"{memory_size(pool.free_whole)} more are whole segments, which empty_cache() returns",
                ),
                _unfragmented(report),
            )
        )
    return tuple(all_findings)


def _failure(oom: OutOfMemory, report: MemoryReport) -> MemoryFinding:
    where = f" at {oom.place}" if report.stacks else ""
    lines = [
        f"{memory_size(oom.in_use)} of {memory_size(oom.reserved)} reserved were in use, "
        f"{memory_size(oom.device_free)} free on the device, {memory_size(oom.cached_free)} free inside of what "
        "was reserved"
    ]
    largest = max(oom.alive, key=lambda row: row.bytes, default=None)
    if oom.missing:
        lines.append(f"all free pieces as one would not have sufficed: {memory_size(oom.missing)} were missing")
        remedy = SMALLER[_largest(oom)]
    else:
        lines.append("as one piece it would have sufficed: the free memory is in pieces")
        remedy = _unfragmented(report)
    if largest is not None:
        lines.append(
            f"most was held by {largest.place}: {memory_size(largest.bytes)} in {largest.allocations} allocations"
        )
    head = f"OUT OF MEMORY: {memory_size(oom.wanted)} wanted{where}, {memory_size(oom.device_free)} free on the device"
    return MemoryFinding("out_of_memory", "red", head, tuple(lines), remedy)


def _largest(oom: OutOfMemory) -> Category:
    sums: dict[Category, int] = {}
    for row in oom.alive:
        sums[row.category] = sums.get(row.category, 0) + row.bytes
    return max(sums, key=sums.__getitem__, default="other")


def _unfragmented(report: MemoryReport) -> str:
    return FEWER_SIZES if report.expandable else EXPANDABLE


def _growth(grown: tuple[Growth, ...]) -> MemoryFinding:
    a_step = sum(row.bytes_a_step for row in grown)
    lines = tuple(
        f"{row.place}: {memory_size(row.first)} → {memory_size(row.last)} over {row.steps} steps" for row in grown[:3]
    )
    head = f"GROWS: {memory_size(a_step)} more are held with each step"
    return MemoryFinding("growth", "red", head, lines, LET_GO)
