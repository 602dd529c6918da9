"""A memory snapshot's report as a page: memory in use over the events, the categories and the places that hold it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gputop import __version__
from gputop.features.memory_snapshot.findings import findings
from gputop.features.memory_snapshot.memory_analysis import DeviceReport, HeldMemory, MemoryReport
from gputop.features.memory_snapshot.memory_text import (
    CATEGORY_NOTE,
    CATEGORY_WORDS,
    NO_EVENTS,
    NO_STACKS,
    called_from,
    when,
)
from gputop.model.quantity import count, memory_size
from gputop.output.html import Markup, document, element, facts, join, notes, stacked_bar, table, verdict

_COLOURS = {
    "parameters": "comm", "gradients": "launching", "optimizer": "idle", "activations": "compute", "inputs": "copy",
    "communication": "launch_latency", "workspace": "kernel_gap", "other": "unknown",
}  # fmt: skip
MOST_ROWS = 60
_HEIGHT, _WIDE = 180, 800


def memory_html(report: MemoryReport) -> str:
    """The whole page."""
    name = os.path.basename(report.path)
    body: list[Markup] = [element("h1", name)]
    for device in report.devices:
        body += _device(report, device)
    if not report.stacks:
        body.append(notes([NO_STACKS]))
    return document(f"gputop memory: {name}", *body, footer=f"gputop {__version__} · sizes are what was asked for")


def _device(report: MemoryReport, device: DeviceReport) -> list[Markup]:
    held = device.reserved
    figures = [
        (
            "peak in use",
            "n/a" if device.peak is None else memory_size(device.peak),
            f"of {count(device.events, 'event')}",
        ),
        ("allocated at the end", memory_size(held.allocated), f"of {memory_size(held.reserved)} reserved"),
        ("free beside blocks in use", memory_size(held.free_in_used), f"{held.fragmented_pct:.0f} % of the reserved"),
        ("free in empty segments", memory_size(held.free_whole), "what empty_cache() returns"),
        ("largest free piece", memory_size(held.largest_free), ""),
        ("rounding", memory_size(held.rounding), ""),
    ]
    whole = sum(device.categories.values()) or 1
    parts = [
        (_COLOURS[name], CATEGORY_WORDS.get(name, name), 100.0 * size / whole)
        for name, size in device.categories.items()
    ]
    rows = [(words, stacked_bar([(colour, words, share)], thin=True), f"{share:.1f}") for colour, words, share in parts]
    return [
        element("h2", f"GPU {device.index}"),
        *(
            verdict(found.level, found.headline, found.kind, found.evidence, found.remedy, "")
            for found in findings(report, device)
        ),
        facts(figures),
        *([_curve(device)] if device.curve else [notes([NO_EVENTS])]),
        element("h3", f"By category, {when(device)}"),
        stacked_bar(parts),
        table(("", "", "%"), rows, "twn"),
        notes([CATEGORY_NOTE] if report.stacks else []),
        element("h3", f"Who held it, {when(device)}"),
        _table(device.alive),
        *(
            [element("h3", "Allocated during the recording, and still alive"), _table(device.survived)]
            if device.survived
            else []
        ),
    ]


def _table(rows: Sequence[HeldMemory]) -> Markup:
    cells = [
        (
            join((element("code", row.place), *(element("div", frame, class_="dim") for frame in called_from(row, 5)))),
            row.category,
            memory_size(row.bytes),
            row.allocations,
        )
        for row in rows[:MOST_ROWS]
    ]
    return table(("allocated at", "category", "size", "allocations"), cells, "ttnn")


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
