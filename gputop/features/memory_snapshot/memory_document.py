"""A memory snapshot's report as a document, and as data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

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
    held = device.reserved
    yield Heading(f"GPU {device.index} · {count(held.segments, 'segment')} · {count(device.events, 'event')}")
    for found in findings(report, device):
        yield Verdict(found.level, found.headline, found.kind, found.evidence, found.remedy)
    yield Figures(tuple(_figures(device)))
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
    held = device.reserved
    if device.peak is not None:
        before = f"; {memory_size(device.preexisting)} from before the recording" if device.preexisting else ""
        at = f"after {device.peak_event} of {count(device.events, 'event')}"
        yield (
            "peak in use",
            memory_size(device.peak),
            f"{at}; at most {memory_size(device.peak_reserved or 0)} reserved{before}",
        )
    yield "allocated at the end", memory_size(held.allocated), f"of {memory_size(held.reserved)} reserved"
    yield "free beside blocks in use", memory_size(held.free_in_used), f"{held.fragmented_pct:.0f} % fragmentation"
    yield "free in empty segments", memory_size(held.free_whole), "what empty_cache() returns"
    yield "largest free piece", memory_size(held.largest_free), ""
    yield "rounding", memory_size(held.rounding), ""
    if held.awaiting:
        yield "freed, in use by a stream", memory_size(held.awaiting), ""


def _places(title: str, rows: Sequence[HeldMemory], top: int) -> tuple[Block, ...]:
    """Who holds most; below each place the frames that called it, the innermost first."""
    cells = tuple((row.place, row.category, memory_size(row.bytes), f"{row.allocations}") for row in rows[:top])
    called = tuple(
        " < ".join([frame for frame in row.frames if frame != row.place][:MOST_FRAMES]) for row in rows[:top]
    )
    rest = rows[top:]
    more = f"and {memory_size(sum(row.bytes for row in rest))} at {count(len(rest), 'more place')}"
    table = Table(("allocated at", "category", "size", "allocations"), cells, "~<>>", called)
    return part(title, table, Items((more,) if rest else ()))


def _curve(device: DeviceReport) -> Markup:
    """In use, filled, below what was reserved, a line; over the events."""
    highest = max((reserved for _, _, reserved in device.curve), default=0) or 1
    last = max(device.events, 1)

    def points(values: Sequence[tuple[int, int]]) -> str:
        return " ".join(f"{_WIDE * at / last:.1f},{_HEIGHT * (1.0 - size / highest):.1f}" for at, size in values)

    in_use = points([(at, size) for at, size, _ in device.curve])
    reserved = points([(at, size) for at, _, size in device.curve])
    end = _WIDE * device.curve[-1][0] / last
    said = f"memory in use and reserved over {count(device.events, 'event')}, at most {memory_size(highest)}"
    return element(
        "figure",
        element(
            "svg",
            element("polygon", points=f"0,{_HEIGHT} {in_use} {end:.1f},{_HEIGHT}", style="fill:var(--c-compute)"),
            element("polyline", points=reserved, style="fill:none;stroke:var(--c-comm);stroke-width:2"),
            viewBox=f"0 0 {_WIDE} {_HEIGHT}", width="100%", height=str(_HEIGHT), preserveAspectRatio="none", role="img",
            aria_label=said,
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
    held = device.reserved
    return {
        "index": device.index,
        "events": device.events,
        "peak_bytes": device.peak,
        "peak_event": device.peak_event,
        "peak_reserved_bytes": device.peak_reserved,
        "preexisting_bytes": device.preexisting,
        "end": {
            "reserved_bytes": held.reserved, "allocated_bytes": held.allocated, "rounding_bytes": held.rounding,
            "awaiting_free_bytes": held.awaiting, "free_beside_used_bytes": held.free_in_used,
            "free_segments_bytes": held.free_whole, "largest_free_bytes": held.largest_free,
            "fragmentation_pct": round(held.fragmented_pct, 3), "segments": held.segments,
        },
        "tables_are": when(device),
        "categories_bytes": dict(device.categories),
        "alive": [_held(row) for row in device.alive[:top]],
        "survived": [_held(row) for row in device.survived[:top]],
        "steps": device.steps,
        "steps_from": device.step_name or None,
        "growth": [
            {
                "place": one.place, "category": one.category, "bytes_a_step": round(one.bytes_a_step),
                "first_bytes": one.first, "last_bytes": one.last, "steps": one.steps, "frames": list(one.frames),
            }
            for one in device.growth[:top]
        ],
        "out_of_memory": [
            {
                "wanted_bytes": one.wanted, "device_free_bytes": one.device_free, "reserved_bytes": one.reserved,
                "in_use_bytes": one.in_use, "cached_free_bytes": one.cached_free, "missing_bytes": one.missing,
                "fragmented": one.missing == 0, "place": one.place, "alive": [_held(row) for row in one.alive[:top]],
            }
            for one in device.failures
        ],
        "findings": [
            {
                "id": found.kind, "level": found.level, "headline": found.headline, "evidence": list(found.evidence),
                "remedy": found.remedy,
            }
            for found in findings(report, device)
        ],
    }  # fmt: skip


def _held(row: HeldMemory) -> dict[str, Any]:
    return {
        "place": row.place, "category": row.category, "bytes": row.bytes, "allocations": row.allocations,
        "frames": list(row.frames),
    }  # fmt: skip
