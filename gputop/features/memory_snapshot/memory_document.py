"""A memory snapshot's report: what is wrong, the whole as a document, and as data. Pure: numbers in, words out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from gputop.diagnosis.thresholds import FRAGMENTED_BYTES, FRAGMENTED_PCT
from gputop.diagnosis.types import Level
from gputop.features.memory_snapshot.allocator_snapshot import Category
from gputop.features.memory_snapshot.memory_analysis import DeviceReport, Growth, HeldMemory, MemoryReport, OutOfMemory
from gputop.model.quantity import count, memory_size, rounded
from gputop.output.document import (
    Block,
    Breakdown,
    Document,
    Drawing,
    Figures,
    Heading,
    Items,
    Notes,
    Table,
    Verdict,
    part,
)
from gputop.output.html import Markup, element

# What is wrong, with the numbers that show it and what helps.

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
    """One thing that is wrong on a device. ``id``: ``out_of_memory``, ``growth`` or ``fragmentation``."""

    id: str
    level: Level
    headline: str
    evidence: tuple[str, ...]
    remedy: str


def findings(report: MemoryReport, device: DeviceReport) -> tuple[MemoryFinding, ...]:
    """The worst first."""
    all_findings = [_failure(failure, report) for failure in device.out_of_memory[-1:]]
    all_findings += [_growth(device.growth)] if device.growth else []
    pool = device.end
    if pool.fragmentation_pct >= FRAGMENTED_PCT and pool.free_beside_used_bytes >= FRAGMENTED_BYTES:
        all_findings.append(
            MemoryFinding(
                "fragmentation",
                "yellow",
                f"FRAGMENTED: {memory_size(pool.free_beside_used_bytes)} of {memory_size(pool.reserved_bytes)} "
                "reserved are free and cannot be given back",
                (
                    f"they lie beside blocks in use; the largest free piece is {memory_size(pool.largest_free_bytes)}, "
                    f"and {memory_size(pool.free_segments_bytes)} more are whole segments, which empty_cache() returns",
                ),
                _unfragmented(report),
            )
        )
    return tuple(all_findings)


def _failure(oom: OutOfMemory, report: MemoryReport) -> MemoryFinding:
    where = f" at {oom.place}" if report.stacks else ""
    lines = [
        f"{memory_size(oom.in_use_bytes)} of {memory_size(oom.reserved_bytes)} reserved were in use, "
        f"{memory_size(oom.device_free_bytes)} free on the device, {memory_size(oom.cached_free_bytes)} free inside of "
        "what was reserved"
    ]
    largest = max(oom.alive, key=lambda row: row.bytes, default=None)
    if oom.missing_bytes:
        lines.append(f"all free pieces as one would not have sufficed: {memory_size(oom.missing_bytes)} were missing")
        remedy = SMALLER[_largest(oom)]
    else:
        lines.append("as one piece it would have sufficed: the free memory is in pieces")
        remedy = _unfragmented(report)
    if largest is not None:
        lines.append(
            f"most was held by {largest.place}: {memory_size(largest.bytes)} in {largest.allocations} allocations"
        )
    wanted, free = memory_size(oom.wanted_bytes), memory_size(oom.device_free_bytes)
    head = f"OUT OF MEMORY: {wanted} wanted{where}, {free} free on the device"
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


# The document.

SCHEMA = 1
CATEGORY_WORDS = {"gradients": "gradients, backward", "optimizer": "optimizer state", "activations": "activations"}
CATEGORY_NOTE = "categories are told by where in PyTorch a stack allocates, not recorded"
NO_STACKS = "no stacks: record with torch.cuda.memory._record_memory_history() to see who holds what"
NO_EVENTS = "no events: record with torch.cuda.memory._record_memory_history() to see the peak; this is the end"
CONTRADICTS = "this file contradicts itself: more is in use than was reserved; the sums below are as it has them"
MOST_FRAMES = 5
_COLOURS = {
    "parameters": "comm", "gradients": "launching", "optimizer": "idle", "activations": "compute", "inputs": "copy",
    "communication": "launch_latency", "workspace": "kernel_gap", "other": "unknown",
}  # fmt: skip
_HEIGHT, _WIDE = 180, 800


def memory_document(report: MemoryReport, top: int) -> Document:
    """The whole report, so many places at most."""
    blocks = [block for device in report.devices for block in _device(report, device, top)]
    if not report.stacks:
        blocks.append(Notes((NO_STACKS,)))
    return Document(os.path.basename(report.path), tuple(blocks))


def _device(report: MemoryReport, device: DeviceReport, top: int) -> Iterator[Block]:
    pool = device.end
    yield Heading(f"GPU {device.index} · {count(pool.segments, 'segment')} · {count(device.events, 'event')}")
    for finding in findings(report, device):
        yield Verdict(finding.level, finding.headline, finding.id, finding.evidence, finding.remedy)
    yield Figures(tuple(_figures(device)))
    if device.contradicts_itself:
        yield Notes((CONTRADICTS,))
    yield Drawing(_curve(device)) if device.curve else Notes((NO_EVENTS,))
    whole = sum(device.categories_bytes.values()) or 1
    parts = tuple(
        (_COLOURS[name], f"{CATEGORY_WORDS.get(name, name)}, {memory_size(size)}", 100.0 * size / whole)
        for name, size in device.categories_bytes.items()
    )
    yield from part(
        f"By category, {device.tables_are}", Breakdown(parts), *([Items((CATEGORY_NOTE,))] if report.stacks else [])
    )
    yield from _places(f"Who held it, {device.tables_are}", device.alive, top)
    yield from _places("Allocated during the recording, and still alive", device.survived, top)


def _figures(device: DeviceReport) -> Iterator[tuple[str, str, str]]:
    pool = device.end
    if device.peak_bytes is not None:
        before = (
            f"; {memory_size(device.preexisting_bytes)} from before the recording" if device.preexisting_bytes else ""
        )
        at = f"after {device.peak_event} of {count(device.events, 'event')}"
        yield (
            "peak in use",
            memory_size(device.peak_bytes),
            f"{at}; at most {memory_size(device.peak_reserved_bytes or 0)} reserved{before}",
        )
    yield "allocated at the end", memory_size(pool.allocated_bytes), f"of {memory_size(pool.reserved_bytes)} reserved"
    yield (
        "free beside blocks in use",
        memory_size(pool.free_beside_used_bytes),
        f"{pool.fragmentation_pct:.0f} % fragmentation",
    )
    yield "free in empty segments", memory_size(pool.free_segments_bytes), "what empty_cache() returns"
    yield "largest free piece", memory_size(pool.largest_free_bytes), ""
    yield "rounding", memory_size(pool.rounding_bytes), ""
    if pool.awaiting_free_bytes:
        yield "freed, in use by a stream", memory_size(pool.awaiting_free_bytes), ""


def _places(title: str, rows: Sequence[HeldMemory], top: int) -> tuple[Block, ...]:
    """Who holds most; below each place the frames that called it, the innermost first."""
    cells = tuple((row.place, row.category, memory_size(row.bytes), f"{row.allocations}") for row in rows[:top])
    called = tuple(
        " < ".join([frame for frame in row.frames if frame != row.place][:MOST_FRAMES]) for row in rows[:top]
    )
    rest = rows[top:]
    others = f"and {memory_size(sum(row.bytes for row in rest))} at {count(len(rest), 'more place')}"
    table = Table(("allocated at", "category", "size", "allocations"), cells, "~<>>", called)
    return part(title, table, Items((others,) if rest else ()))


def _curve(device: DeviceReport) -> Markup:
    """In use, filled, below what was reserved, a line; over the events."""
    highest = max((reserved for _, _, reserved in device.curve), default=0) or 1
    last = max(device.events, 1)

    def points(values: Sequence[tuple[int, int]]) -> str:
        return " ".join(f"{_WIDE * at / last:.1f},{_HEIGHT * (1.0 - size / highest):.1f}" for at, size in values)

    in_use = points([(at, size) for at, size, _ in device.curve])
    reserved = points([(at, size) for at, _, size in device.curve])
    end = _WIDE * device.curve[-1][0] / last
    description = f"memory in use and reserved over {count(device.events, 'event')}, at most {memory_size(highest)}"
    return element(
        "figure",
        element(
            "svg",
            element("polygon", points=f"0,{_HEIGHT} {in_use} {end:.1f},{_HEIGHT}", style="fill:var(--c-compute)"),
            element("polyline", points=reserved, style="fill:none;stroke:var(--c-comm);stroke-width:2"),
            viewBox=f"0 0 {_WIDE} {_HEIGHT}", width="100%", height=str(_HEIGHT), preserveAspectRatio="none", role="img",
            aria_label=description,
        ),
        element("figcaption", f"in use (filled), reserved (line), over the events; {memory_size(highest)} high"),
    )  # fmt: skip


# --- as data --------------------------------------------------------------------------------------------------------


def memory_data(report: MemoryReport) -> dict[str, Any]:
    """The JSON object of a report, schema 1. Sizes are bytes, absent is null."""
    return {
        "schema": SCHEMA,
        "kind": "memory_snapshot",
        "file": report.path,
        "expandable_segments": report.expandable,
        "stacks": report.stacks,
        "devices": [_device_data(report, device) for device in report.devices],
    }


def _device_data(report: MemoryReport, device: DeviceReport) -> dict[str, Any]:
    values: dict[str, Any] = rounded(to_builtins(device), 3)
    del values["curve"]
    return values | {"findings": to_builtins(findings(report, device))}
