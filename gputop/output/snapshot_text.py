"""One snapshot as a table for people, as ``gputop once`` prints it."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.diagnosis.verdict.summary import IN_SAMPLE, LEVEL_OF_ROLE, in_sample
from gputop.model.clean_text import terminal_safe, wrapped
from gputop.model.derived import gap_pct
from gputop.model.durations import clock_time
from gputop.model.quantity import number
from gputop.model.server_words import server_lines
from gputop.model.snapshot import SIMULATED, GpuSample, Snapshot
from gputop.monitor import Frame
from gputop.paint import host_rows, process_table
from gputop.paint.facts import board, buses, counters
from gputop.paint.glyphs import level_glyph
from gputop.paint.gpu_fields import fields, memory
from gputop.paint.line import Line, Row, text_row
from gputop.paint.step_words import step_words
from gputop.paint.view import View
from gputop.paint.words import gpu_label, product, sm_provenance

LONGEST_PROCESS_LIST = 40
_INDENT = 18
FOR_THE_WHY = "a verdict takes some seconds of samples, and says why: gputop diagnose"


def once_rows(frame: Frame, view: View, width: int) -> list[Row]:
    """A snapshot as a table in rows of ``width`` cells."""
    snapshot = frame.snapshot
    words, style = sm_provenance(snapshot.gpus)
    top = Line().add(terminal_safe(snapshot.machine.hostname)[:40], "strong")
    if snapshot.machine.is_simulated:
        top.add(SIMULATED, "level.info")
    if snapshot.machine.driver:
        top.add(f"   driver {terminal_safe(snapshot.machine.driver)}", "dim")
    lines = [top.add(f"   {words}", style)]
    for gpu in snapshot.gpus:
        lines += _gpu_lines(frame, gpu, view, width)
    served = [text for row in snapshot.servers if row.error is None for text in server_lines(row)]
    lines += [
        Line().add(terminal_safe(text), "text")
        for line in served
        for text in wrapped(line, max(20, width - 2))
    ]
    if snapshot.gpus:
        lines.append(Line().add(FOR_THE_WHY, "dim"))
    rows = [line.row(width) for line in lines]
    rows.append(host_rows.load(frame, view, width, indent=0))
    if shown := process_table.shown_rows(frame, view, snapshot.processes):
        rows += [Line().row(width), process_table.head(view, width)]
        rows += [
            process_table.row(row, view, width, selected=False)
            for row in shown[:LONGEST_PROCESS_LIST]
        ]
        if len(shown) > LONGEST_PROCESS_LIST:
            remainder = f"… {len(shown) - LONGEST_PROCESS_LIST} more rows; --json has them all"
            rows.append(text_row(remainder, width, "dim"))
    return rows + _notices(snapshot, width)


def _notices(snapshot: Snapshot, width: int) -> list[Row]:
    return [
        text_row(terminal_safe(notice)[:width], width, "level.yellow")
        for notice in snapshot.notices
    ]


def line_rows(frame: Frame, view: View, width: int, *, clock: bool = False) -> list[Row]:
    """A line a GPU: what it does, memory, power, temperature and users; with ``clock`` after the time of day."""
    snapshot = frame.snapshot
    names = {
        gpu.static.uuid: product(gpu.static.name, gpu.mem_total_bytes) for gpu in snapshot.gpus
    }
    room = max(map(len, names.values()), default=0)
    samples = {
        gpu.static.uuid: in_sample(gpu, snapshot.processes, snapshot.host) for gpu in snapshot.gpus
    }
    longest = max((len(words) for words, _ in samples.values()), default=0)
    rows = []
    for gpu in snapshot.gpus:
        line = Line()
        if clock:
            line.add(f"{clock_time(snapshot.t, view.utc_offset_s)} ", "dim")
        line.add(f"{gpu_label(gpu):>2}  {names[gpu.static.uuid]:<{room}}  ", "strong")
        if not _is_silent(gpu, line):
            words, role = samples[gpu.static.uuid]
            level = LEVEL_OF_ROLE[role]
            line.add(
                f"UTIL {number(gpu.util_pct, 3)}  SM {number(gpu.sm_active_pct, 3)}  {memory(gpu)}  ",
                "value",
            )
            line.add(
                f"{level_glyph(level)} {words:<{min(longest, width - line.width - 30)}}  ",
                f"level.{level}",
            )
            users = sorted(
                {
                    p.static.user
                    for p in snapshot.processes
                    if p.gpu == gpu.static.index and p.static.user
                }
            )
            owner = [(terminal_safe(" ".join(users)), "dim")] if users else []
            line.add_all(fields([*owner, *board(gpu)], width - line.width, gap="  "))
        rows.append(line.row(width))
    return rows if clock else rows + _notices(snapshot, width)


def _is_silent(gpu: GpuSample, line: Line) -> bool:
    """Whether a GPU is lost or asleep; the line then says so."""
    if gpu.lost_reason is not None:
        line.add(f"LOST: {terminal_safe(gpu.lost_reason)}", "level.red")
    elif gpu.asleep:
        line.add(terminal_safe(gpu.sm_reason or "asleep"), "dim")
    return gpu.lost_reason is not None or bool(gpu.asleep)


def _gpu_lines(frame: Frame, gpu: GpuSample, view: View, width: int) -> Iterator[Line]:
    """Lines of one GPU; for a lost or sleeping one the reason."""
    line = Line().add(
        f"{gpu_label(gpu):>2}  {product(gpu.static.name, gpu.mem_total_bytes)}", "strong"
    )
    line.add(" ").to(_INDENT)
    if _is_silent(gpu, line):
        yield line
        return
    sm = number(gpu.sm_active_pct, 3)
    if gpu.sm_active_pct is None:
        bound = gpu.sm_high_pct
        sm = "n/a" if bound is None else f"≤ {bound:.0f} (not measured)"
    gap = gap_pct(gpu)
    behind = "" if gap is None else f"  GAP {number(gap, 3)}"
    line.add(f"UTIL {number(gpu.util_pct, 3)}  SM {sm}{behind}   ", "value")
    yield line.add_all(fields([*counters(gpu), (memory(gpu), "text")], width - line.width))
    if useful := step_words(frame, gpu, width - _INDENT):
        yield Line().to(_INDENT).add(useful, "text")
    measured = board(gpu) + buses(gpu)
    yield Line().to(_INDENT).add_all(fields(measured, width - _INDENT))
    words, role = in_sample(gpu, frame.snapshot.processes, frame.snapshot.host)
    level = LEVEL_OF_ROLE[role]
    yield Line().to(_INDENT).add(f"{level_glyph(level)} {IN_SAMPLE}: {words}", f"level.{level}")
    if gpu.sm_active_pct is None and gpu.sm_reason:
        for text in wrapped(
            f"SM not measured: {terminal_safe(gpu.sm_reason)}", max(20, width - _INDENT)
        ):
            yield Line().to(_INDENT).add(text, "dim")
