"""Findings of a memory snapshot, with evidence and remedy."""

from __future__ import annotations

from msgspec import Struct

from gputop.diagnosis.thresholds import FRAGMENTED_BYTES, FRAGMENTED_PCT
from gputop.diagnosis.types import Level
from gputop.features.memory_snapshot.memory_analysis import (
    DeviceReport,
    Growth,
    MemoryPeak,
    MemoryReport,
    OutOfMemory,
)
from gputop.features.memory_snapshot.stacks import Category
from gputop.model.quantity import count, memory_size

EXPANDABLE = (
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, set before the program's first allocation"
)
FEWER_SIZES = (
    "fewer different sizes: pad batches to a few lengths, allocate what lives long first; "
    "empty_cache() between phases"
)
FEWER_GRAPHS = (
    "fewer captured sizes, one pool for all graphs (torch.cuda.graph_pool_handle), capture the "
    "largest size first"
)
ONE_STREAM = (
    "allocate on one stream, or reuse a side stream's tensors there: its cache serves no other "
    "stream"
)
LET_GO = (
    "do not keep what a step made: loss.item() or .detach() for what is collected, lists cleared, "
    "hooks removed"
)
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
    """One problem on a device. ``id``: ``out_of_memory``, ``growth`` or ``fragmentation``."""

    id: str
    level: Level
    headline: str
    evidence: tuple[str, ...]
    remedy: str


def findings(report: MemoryReport, device: DeviceReport) -> tuple[MemoryFinding, ...]:
    """Findings of one device, the worst first."""
    all_findings = [_failure(failure, report) for failure in device.out_of_memory[-1:]]
    all_findings += [_growth(device.growth)] if device.growth else []
    peak = device.peak
    if (
        peak is not None
        and peak.fragmentation_pct >= FRAGMENTED_PCT
        and peak.free.stuck_bytes >= FRAGMENTED_BYTES
    ):
        all_findings.append(_fragmentation(peak, report))
    return tuple(all_findings)


def _fragmentation(peak: MemoryPeak, report: MemoryReport) -> MemoryFinding:
    free = peak.free
    head = (
        f"FRAGMENTED: at the peak {memory_size(free.stuck_bytes)} of {memory_size(peak.reserved_bytes)} reserved were "
        "free and could not be given back"
    )
    line = (
        f"they lay beside blocks in use; the largest free piece was {memory_size(free.largest_bytes)}, and "
        f"{memory_size(free.whole_bytes)} more were whole segments, which empty_cache() returns"
    )
    return MemoryFinding("fragmentation", "yellow", head, (line,), _unfragmented(report))


def _failure(oom: OutOfMemory, report: MemoryReport) -> MemoryFinding:
    free = oom.free
    device_free = (
        "an unknown amount" if oom.device_free_bytes is None else memory_size(oom.device_free_bytes)
    )
    lines = [
        f"{memory_size(oom.in_use_bytes)} of {memory_size(oom.reserved_bytes)} reserved were in use, "
        f"{device_free} free on the device, {memory_size(free.stuck_bytes + free.whole_bytes)} free inside of what was "
        "reserved"
    ]
    private = f"{memory_size(free.private_bytes)} lie free in private pools (CUDA graphs)"
    other = f"{memory_size(free.other_streams_bytes)} lie free in the cache of other streams"
    if oom.cause == "fragmentation":
        lines.append("as one piece it would have sufficed: the free memory is in pieces")
        remedy = _unfragmented(report)
    elif oom.cause == "private_pool":
        lines.append(f"{private}: not usable for other allocations, not returned by empty_cache()")
        remedy = FEWER_GRAPHS
    elif oom.cause == "other_stream":
        lines.append(f"{other}: not usable for this one")
        remedy = ONE_STREAM
    else:
        lines += [
            words
            for size, words in ((free.private_bytes, private), (free.other_streams_bytes, other))
            if size
        ]
        lines.append(
            f"all free pieces as one would not have sufficed: {memory_size(oom.missing_bytes)} were missing"
        )
        remedy = SMALLER[_largest(oom)]
    largest = max(oom.alive, key=lambda row: row.bytes, default=None)
    if largest is not None:
        held = f"{memory_size(largest.bytes)} in {count(largest.allocations, 'allocation')}"
        lines.append(f"most was held by {largest.place}: {held}")
    where = f" at {oom.place}" if report.stacks else ""
    head = (
        f"OUT OF MEMORY: {memory_size(oom.wanted_bytes)} wanted{where}, {device_free} free on the "
        "device"
    )
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
        f"{row.place}: {memory_size(row.first_bytes)} → {memory_size(row.last_bytes)} over {row.steps} steps"
        for row in grown[:3]
    )
    head = f"GROWS: {memory_size(a_step)} more are held with each step"
    return MemoryFinding("growth", "red", head, lines, LET_GO)
