"""A memory snapshot's report for a terminal, as data, and the words that both share with the page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from gputop.features.memory_snapshot.findings import findings
from gputop.features.memory_snapshot.memory_analysis import DeviceReport, HeldMemory, MemoryReport
from gputop.model.quantity import count, memory_size, wrapped
from gputop.output.document import text_lines
from gputop.paint.glyphs import Glyphs, ascii_only
from gputop.paint.line import shorten

SCHEMA = 1
WIDTH, _BAR, _PLACE = 120, 40, 72
CATEGORY_WORDS = {"gradients": "gradients, backward", "optimizer": "optimizer state", "activations": "activations"}
CATEGORY_NOTE = "categories are told by where in PyTorch a stack allocates, not recorded"
NO_STACKS = "no stacks: record with torch.cuda.memory._record_memory_history() to see who holds what"
NO_EVENTS = "no events: record with torch.cuda.memory._record_memory_history() to see the peak; this is the end"
_MOST_FRAMES = 3


def memory_text(report: MemoryReport, glyphs: Glyphs, *, top: int) -> str:
    """The whole report."""
    lines: list[str] = []
    for device in report.devices:
        lines += ["", *_device(report, device, glyphs, top)] if lines else _device(report, device, glyphs, top)
    if not report.stacks:
        lines.append(f"note: {NO_STACKS}")
    text = text_lines(lines)
    return ascii_only(text) if glyphs.name == "ascii" else text


def _device(report: MemoryReport, device: DeviceReport, glyphs: Glyphs, top: int) -> list[str]:
    what = f"GPU {device.index} · {count(device.reserved.segments, 'segment')} · {count(device.events, 'event')}"
    lines = [f"{os.path.basename(report.path)}   {what}"]
    for found in findings(report, device):
        lines += wrapped(found.headline, WIDTH, f"{glyphs.level(found.level)} ", "  ")
        for at, line in enumerate(found.evidence):
            lines += wrapped(line, WIDTH, f"  {'because' if at == 0 else '':<9}", " " * 11)
        lines += wrapped(found.remedy, WIDTH, f"{glyphs.remedy} ", "  ")
    lines += [*(f"  {line}" for line in reserved_lines(device)), ""]
    whole = sum(device.categories.values()) or 1
    lines.append(f"  {when(device) + ', by category':<40}{'GiB':>9}{'%':>7}")
    for category, held in device.categories.items():
        cells = glyphs.left[-1] * round(_BAR * held / whole)
        words = CATEGORY_WORDS.get(category, category)
        lines.append(f"  {words:<40}{held / 2**30:>9.2f}{100.0 * held / whole:>7.1f}  {cells}")
    lines += _table(when(device).replace("at the", "alive at the"), device.alive, top)
    if device.survived:
        lines += _table("allocated during the recording, and still alive", device.survived, min(top, 5))
    lines += [f"  {CATEGORY_NOTE}"] if report.stacks else []
    return lines


def when(device: DeviceReport) -> str:
    """Of which moment the tables are."""
    return "at the end" if device.peak is None else "at the peak"


def reserved_lines(device: DeviceReport) -> list[str]:
    """The peak, and the allocator's state at the end, in two sentences."""
    held = device.reserved
    if device.peak is None:
        first = NO_EVENTS
    else:
        share = f"after {device.peak_event} of {count(device.events, 'event')}"
        first = f"peak   {memory_size(device.peak)} in use, {share}; at most "
        first += f"{memory_size(device.peak_reserved or 0)} reserved"
        if device.preexisting:
            first += f"; {memory_size(device.preexisting)} from before the recording"
    last = f"end    {memory_size(held.allocated)} allocated of {memory_size(held.reserved)} reserved: "
    last += f"{memory_size(held.free_in_used)} free beside blocks in use ({held.fragmented_pct:.0f} % fragmentation), "
    last += f"{memory_size(held.free_whole)} in empty segments, {memory_size(held.rounding)} rounding"
    last += f", {memory_size(held.awaiting)} freed and in use by a stream" if held.awaiting else ""
    return [line for text in (first, last) for line in wrapped(text, WIDTH - 2, "", " " * 7)]


def called_from(row: HeldMemory, most: int) -> list[str]:
    """The other frames of a place's largest allocation, the innermost first."""
    return [frame for frame in row.frames if frame != row.place][:most]


def _table(title: str, rows: Sequence[HeldMemory], top: int) -> list[str]:
    lines = ["", f"  {title:<{_PLACE}}{'category':<17}{'size':>11}{'allocations':>13}"]
    for row in rows[:top]:
        lines.append(
            f"  {shorten(row.place, _PLACE - 2):<{_PLACE}}{row.category:<17}{memory_size(row.bytes):>11}"
            f"{row.allocations:>13}"
        )
        called = called_from(row, _MOST_FRAMES)
        if called:
            lines.append(f"    {shorten(' < '.join(called), WIDTH - 4)}")
    if len(rows) > top:
        rest = rows[top:]
        lines.append(f"  and {memory_size(sum(row.bytes for row in rest))} at {count(len(rest), 'more place')}")
    return lines


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
