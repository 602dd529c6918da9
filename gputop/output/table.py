"""One snapshot as a table for people, plain text: what ``gputop once`` prints."""

from __future__ import annotations

from gputop.diagnosis.types import NOT_WORKING
from gputop.diagnosis.window_row import flag_now
from gputop.model.derived import gap_pct
from gputop.model.snapshot import SIMULATED
from gputop.model.text import terminal_safe, wrapped
from gputop.monitor import Frame
from gputop.paint import host, process_table
from gputop.paint.glyphs import ascii_only
from gputop.paint.line import Line, Row
from gputop.paint.numbers import board, buses, counters, fields, memory
from gputop.paint.text import pct
from gputop.paint.view import View
from gputop.paint.words import gpu_label, product, sm_provenance

LONGEST_PROCESS_LIST = 40
NOT_WORKING_NOW = f"{NOT_WORKING} in this sample"
"""The note on a single sample; a verdict takes half a minute of samples."""


def once_rows(frame: Frame, view: View, width: int) -> list[Row]:
    """A title, two lines a GPU, the host and the processes, in rows of ``width`` cells."""
    snapshot = frame.snapshot
    words, style = sm_provenance(snapshot.gpus)
    top = Line().add(terminal_safe(snapshot.machine.hostname)[:40], "strong")
    if snapshot.machine.is_simulated:
        top.add(SIMULATED, "level.info")
    if snapshot.machine.driver:
        top.add(f"   driver {terminal_safe(snapshot.machine.driver)}", "dim")
    rows = [top.add(f"   {words}", style).row(width)]
    for gpu in snapshot.gpus:
        line = (
            Line()
            .add(f"{gpu_label(gpu):>2}  {product(gpu.static.name, gpu.mem_total_bytes)}", "strong")
            .add(" ")
            .to(18)
        )
        if gpu.lost_reason is not None:
            rows.append(line.add(f"LOST: {terminal_safe(gpu.lost_reason)}", "level.red").row(width))
            continue
        if gpu.sm_active_pct is not None:
            sm = pct(gpu.sm_active_pct)
        elif gpu.sm_high_pct is not None:
            sm = f"{view.glyphs.at_most} {gpu.sm_high_pct:.0f} (not measured)"
        else:
            sm = "n/a"
        gap = gap_pct(gpu)
        behind = "" if gap is None else f"  GAP {pct(gap)}"
        line.add(f"UTIL {pct(gpu.util_pct)}  SM {sm}{behind}   ", "value")
        line.add_all(fields([*counters(gpu), (memory(gpu), "text")], width - line.width))
        rows.append(line.row(width))
        second = Line().to(18).add_all(fields(board(gpu, view.glyphs) + buses(gpu, view.glyphs), width - 18))
        rows.append(second.row(width))
        if flag_now(gpu) is not None:
            rows.append(Line().to(18).add(NOT_WORKING_NOW, "level.red").row(width))
        if gpu.sm_active_pct is None and gpu.sm_reason:
            why = wrapped(f"SM not measured: {terminal_safe(gpu.sm_reason)}", max(20, width - 18))
            rows.extend(Line().to(18).add(text, "dim").row(width) for text in why)
    rows.append(host.load(frame, view, width, indent=0))
    shown = process_table.shown_rows(frame, view)
    if shown:
        rows.append(Line().row(width))
        rows.append(process_table.head(view, width))
        rows.extend(process_table.row(row, view, width, selected=False) for row in shown[:LONGEST_PROCESS_LIST])
        if len(shown) > LONGEST_PROCESS_LIST:
            more = f"… {len(shown) - LONGEST_PROCESS_LIST} more rows; --json has them all"
            rows.append(Line().add(more, "dim").row(width))
    rows.extend(Line().add(terminal_safe(notice)[:width], "level.yellow").row(width) for notice in snapshot.notices)
    if view.glyphs.name == "ascii":
        return [tuple((ascii_only(text), name) for text, name in row) for row in rows]
    return rows
