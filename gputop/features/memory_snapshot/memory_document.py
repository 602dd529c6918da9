"""A memory snapshot's report as a document, and as data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import to_builtins

from gputop.features.memory_snapshot.findings import findings
from gputop.features.memory_snapshot.memory_analysis import DeviceReport, HeldMemory, MemoryReport
from gputop.model.quantity import count, memory_size
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
    pool = device.reserved
    yield Heading(f"GPU {device.index} · {count(pool.segments, 'segment')} · {count(device.events, 'event')}")
    for finding in findings(report, device):
        yield Verdict(finding.level, finding.headline, finding.kind, finding.evidence, finding.remedy)
    yield Figures(tuple(_figures(device)))
    if device.contradicts_itself:
        yield Notes((CONTRADICTS,))
    yield Drawing(_curve(device)) if device.curve else Notes((NO_EVENTS,))
    whole = sum(device.categories.values()) or 1
    parts = tuple(
        (_COLOURS[name], f"{CATEGORY_WORDS.get(name, name)}, {memory_size(size)}", 100.0 * size / whole)
        for name, size in device.categories.items()
    )
    yield from part(
        f"By category, {when(device)}", Breakdown(parts), *([Items((CATEGORY_NOTE,))] if report.stacks else [])
    )
    yield from _places(f"Who held it, {when(device)}", device.alive, top)
    yield from _places("Allocated during the recording, and still alive", device.survived, top)


def when(device: DeviceReport) -> str:
    """Of which moment the tables are."""
    return "at the end" if device.peak is None else "at the peak"


def _figures(device: DeviceReport) -> Iterator[tuple[str, str, str]]:
    pool = device.reserved
    if device.peak is not None:
        before = f"; {memory_size(device.preexisting)} from before the recording" if device.preexisting else ""
        at = f"after {device.peak_event} of {count(device.events, 'event')}"
        yield (
            "peak in use",
            memory_size(device.peak),
            f"{at}; at most {memory_size(device.peak_reserved or 0)} reserved{before}",
        )
    yield "allocated at the end", memory_size(pool.allocated), f"of {memory_size(pool.reserved)} reserved"
    yield "free beside blocks in use", memory_size(pool.free_in_used), f"{pool.fragmented_pct:.0f} % fragmentation"
    yield "free in empty segments", memory_size(pool.free_whole), "what empty_cache() returns"
    yield "largest free piece", memory_size(pool.largest_free), ""
    yield "rounding", memory_size(pool.rounding), ""
    if pool.awaiting:
        yield "freed, in use by a stream", memory_size(pool.awaiting), ""


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


def memory_data(report: MemoryReport, *, top: int | None = None) -> dict[str, Any]:
    """The JSON object of a report, schema 1. Sizes are bytes, absent is null; ``top`` cuts the tables."""
    return {
        "schema": SCHEMA,
        "kind": "memory_snapshot",
        "file": report.path,
        "expandable_segments": report.expandable,
        "stacks": report.stacks,
        "devices": [_device_data(report, device, top) for device in report.devices],
    }


def _device_data(report: MemoryReport, device: DeviceReport, top: int | None) -> dict[str, Any]:
    pool = device.reserved
    return {
        "index": device.index,
        "events": device.events,
        "peak_bytes": device.peak,
        "peak_event": device.peak_event,
        "peak_reserved_bytes": device.peak_reserved,
        "preexisting_bytes": device.preexisting,
        "end": {
            "reserved_bytes": pool.reserved, "allocated_bytes": pool.allocated, "rounding_bytes": pool.rounding,
            "awaiting_free_bytes": pool.awaiting, "free_beside_used_bytes": pool.free_in_used,
            "free_segments_bytes": pool.free_whole, "largest_free_bytes": pool.largest_free,
            "fragmentation_pct": round(pool.fragmented_pct, 3), "segments": pool.segments,
        },
        "tables_are": when(device),
        "categories_bytes": dict(device.categories),
        "alive": [_held(row) for row in device.alive[:top]],
        "survived": [_held(row) for row in device.survived[:top]],
        "steps": device.steps,
        "steps_from": device.step_name or None,
        "growth": [
            {
                "place": growth.place, "category": growth.category, "bytes_a_step": round(growth.bytes_a_step),
                "first_bytes": growth.first, "last_bytes": growth.last, "steps": growth.steps,
                "frames": list(growth.frames),
            }
            for growth in device.growth[:top]
        ],
        "out_of_memory": [
            {
                "wanted_bytes": failure.wanted, "device_free_bytes": failure.device_free,
                "reserved_bytes": failure.reserved,
                "in_use_bytes": failure.in_use, "cached_free_bytes": failure.cached_free,
                "missing_bytes": failure.missing,
                "fragmented": failure.missing == 0, "place": failure.place,
                "alive": [_held(row) for row in failure.alive[:top]],
            }
            for failure in device.failures
        ],
        "findings": [
            {
                "id": finding.kind, "level": finding.level, "headline": finding.headline,
                "evidence": list(finding.evidence), "remedy": finding.remedy,
            }
            for finding in findings(report, device)
        ],
    }  # fmt: skip


def _held(row: HeldMemory) -> dict[str, Any]:
    values: dict[str, Any] = to_builtins(row)
    return values | {"frames": list(row.frames)}
