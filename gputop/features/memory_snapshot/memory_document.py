"""A memory snapshot's report as a document and as data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import to_builtins

from gputop.features.memory_snapshot.memory_analysis import DeviceReport, HeldMemory, MemoryReport
from gputop.features.memory_snapshot.memory_findings import findings
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

SCHEMA = 1
CATEGORY_WORDS = {
    "gradients": "gradients, backward",
    "optimizer": "optimizer state",
    "activations": "activations",
}
CATEGORY_NOTE = (
    "categories follow from the files and functions in a stack; PyTorch does not record them"
)
NO_STACKS = (
    "no stacks: record with torch.cuda.memory._record_memory_history() to see who holds what"
)
NO_EVENTS = (
    "no events: record with torch.cuda.memory._record_memory_history() to see the peak; this is the end, where "
    "fragmentation cannot be judged"
)
CONTRADICTS = (
    "this file contradicts itself: more is in use than was reserved; the sums below are as it has "
    "them"
)
PRIVATE = "CUDA graphs; not usable for other allocations, not returned by empty_cache()"
MOST_FRAMES = 5
_COLOURS = {
    "parameters": "comm", "gradients": "launching", "optimizer": "idle", "activations": "compute", "inputs": "copy",
    "communication": "launch_latency", "workspace": "kernel_gap", "other": "unknown",
}  # fmt: skip
_HEIGHT, _WIDE = 180, 800


def memory_document(report: MemoryReport, top: int) -> Document:
    """The whole report, with at most ``top`` places in each table."""
    blocks = [block for device in report.devices for block in _device(report, device, top)]
    if not report.stacks:
        blocks.append(Notes((NO_STACKS,)))
    if report.impossible:
        blocks.append(
            Notes(
                (f"{count(report.impossible, 'impossible number')} in the file: taken as unknown",)
            )
        )
    return Document(os.path.basename(report.path), tuple(blocks))


def _device(report: MemoryReport, device: DeviceReport, top: int) -> Iterator[Block]:
    pool = device.end
    yield Heading(
        f"GPU {device.index} · {count(pool.segments, 'segment')} · {count(device.events, 'event')}"
    )
    for finding in findings(report, device):
        yield Verdict(finding.level, finding.headline, finding.id, finding.evidence, finding.remedy)
    yield Figures(tuple(_figures(device)))
    if device.contradicts_itself:
        yield Notes((CONTRADICTS,))
    yield Drawing(_curve(device)) if device.curve else Notes((NO_EVENTS,))
    whole = sum(device.categories_bytes.values()) or 1
    parts = tuple(
        (
            _COLOURS[name],
            f"{CATEGORY_WORDS.get(name, name)}, {memory_size(size)}",
            100.0 * size / whole,
        )
        for name, size in device.categories_bytes.items()
    )
    yield from part(
        f"By category, {tables_are(device)}",
        Breakdown(parts),
        *([Items((CATEGORY_NOTE,))] if report.stacks else []),
    )
    yield from _places(f"Who held it, {tables_are(device)}", device.alive, top)
    yield from _places("Allocated during the recording, and still alive", device.survived, top)


def _figures(device: DeviceReport) -> Iterator[tuple[str, str, str]]:
    """Rows of (name, value, remark)."""
    end, peak = device.end, device.peak
    if peak is not None:
        at = f"after {peak.event} of {count(device.events, 'event')}"
        remark = f"{at}; at most {memory_size(peak.most_reserved_bytes)} reserved"
        if device.preexisting_bytes:
            remark += f"; {memory_size(device.preexisting_bytes)} from before the recording"
        yield "peak in use", memory_size(peak.bytes), remark
        stuck = (
            f"{peak.fragmentation_pct:.0f} % of {memory_size(peak.reserved_bytes)} reserved then: "
            "fragmentation"
        )
        yield "free beside blocks in use then", memory_size(peak.free.stuck_bytes), stuck
    yield (
        "allocated at the end",
        memory_size(end.allocated_bytes),
        f"of {memory_size(end.reserved_bytes)} reserved",
    )
    rows = (
        ("free beside blocks in use", end.free.stuck_bytes, "the cache between two peaks"),
        ("free in empty segments", end.free.whole_bytes, "what empty_cache() returns"),
        ("free in private pools", end.free.private_bytes, PRIVATE),
        ("rounding", end.rounding_bytes, ""),
        ("freed, in use by a stream", end.awaiting_free_bytes, ""),
    )
    yield from ((name, memory_size(size), remark) for name, size, remark in rows if size)


def tables_are(device: DeviceReport) -> str:
    """The moment of the tables by category and by place."""
    return "at the end" if device.peak is None else "at the peak"


def _places(title: str, rows: Sequence[HeldMemory], top: int) -> tuple[Block, ...]:
    """The largest places; below each one its callers, innermost first."""
    cells = tuple(
        (row.place, row.category, memory_size(row.bytes), f"{row.allocations}")
        for row in rows[:top]
    )
    called = tuple(
        " < ".join([frame for frame in row.frames if frame != row.place][:MOST_FRAMES])
        for row in rows[:top]
    )
    rest = rows[top:]
    others = (
        f"and {memory_size(sum(row.bytes for row in rest))} at {count(len(rest), 'more place')}"
    )
    table = Table(("allocated at", "category", "size", "allocations"), cells, "~<>>", called)
    return part(title, table, Items((others,) if rest else ()))


def _curve(device: DeviceReport) -> Markup:
    """Memory in use (filled) and reserved (line) over the events."""
    highest = max((reserved for _, _, reserved in device.curve), default=0) or 1
    last = max(device.events, 1)

    def points(values: Sequence[tuple[int, int]]) -> str:
        return " ".join(
            f"{_WIDE * at / last:.1f},{_HEIGHT * (1.0 - size / highest):.1f}" for at, size in values
        )

    in_use = points([(at, size) for at, size, _ in device.curve])
    reserved = points([(at, size) for at, _, size in device.curve])
    end = _WIDE * device.curve[-1][0] / last
    description = (
        f"memory in use and reserved over {count(device.events, 'event')}, at most "
        f"{memory_size(highest)}"
    )
    return element(
        "figure",
        element(
            "svg",
            element(
                "polygon",
                points=f"0,{_HEIGHT} {in_use} {end:.1f},{_HEIGHT}",
                style="fill:var(--c-compute)",
            ),
            element(
                "polyline", points=reserved, style="fill:none;stroke:var(--c-comm);stroke-width:2"
            ),
            viewBox=f"0 0 {_WIDE} {_HEIGHT}",
            width="100%",
            height=str(_HEIGHT),
            preserveAspectRatio="none",
            role="img",
            aria_label=description,
        ),
        element(
            "figcaption",
            f"in use (filled), reserved (line), over the events; {memory_size(highest)} high",
        ),
    )


def memory_data(report: MemoryReport) -> dict[str, Any]:
    """The JSON object of a report: bytes, absent is null."""
    return {
        "schema": SCHEMA,
        "kind": "memory_snapshot",
        "file": report.path,
        "expandable_segments": report.expandable,
        "stacks": report.stacks,
        "impossible_numbers": report.impossible,
        "devices": [_device_data(report, device) for device in report.devices],
    }


def _device_data(report: MemoryReport, device: DeviceReport) -> dict[str, Any]:
    values: dict[str, Any] = rounded(to_builtins(device), 3)
    del values["curve"]
    if device.peak is not None:
        values["peak"]["fragmentation_pct"] = rounded(device.peak.fragmentation_pct, 3)
    return values | {
        "tables_are": tables_are(device),
        "findings": to_builtins(findings(report, device)),
    }
