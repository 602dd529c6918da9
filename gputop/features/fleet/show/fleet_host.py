"""The page of one host: charts of the last hour, evidence, GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.diagnosis.verdict.catalogue import titles
from gputop.features.fleet.judge.fleet_frame import GpuGroup, mean
from gputop.features.fleet.judge.gpu_state import ABSENT, WORDS, Gpu
from gputop.features.fleet.show.fleet_data import GPU_COLUMNS, GpuColumn
from gputop.features.fleet.show.fleet_view import FleetView, chosen_gpu
from gputop.features.fleet.show.group_rows import sm_style
from gputop.model.clean_text import terminal_safe
from gputop.model.durations import step_time
from gputop.model.quantity import memory, number
from gputop.paint.cells import folded, shorten
from gputop.paint.charts import gap_chart
from gputop.paint.glyphs import level_glyph
from gputop.paint.gpu_fields import gap_style
from gputop.paint.line import Line, Row, Span

LABEL, NUMBERS, WITH_WORDS = 6, 6, 11
"""Cells beside a chart: the GPU and the axis at its left; numbers at its right, and with what they are."""
LEAST_FOR_WORDS, LEAST_FOR_AXIS = 38, 3
"""Width of a chart with what is beside it from which numbers have words, and its height from which it has an axis."""
LEAST_CHART = 16
MOST_CHART_ROWS = 12
_COLUMNS = sorted(
    (column for column in GPU_COLUMNS if column.head), key=lambda column: column.place
)
MOST_TEXT_ROWS = 2
"""Rows of a verdict, and of a remedy."""
MOST_FAULTS = 5
"""Faults of a host that are named."""
KEPT = ("rule", "title", "heading")
"""Styles that never show a value."""


def greyed(row: Row) -> Row:
    """A row without colours, for old values."""
    parts = [(text, *style.partition("|")) for text, style in row]
    return tuple(
        (text, f"{colour if colour in KEPT else 'dim'}{bar}{ground}")
        for text, colour, bar, ground in parts
    )


def rule(title: str, right: str, width: int) -> Row:
    """A rule with a name at its left and words at its right."""
    line = Line().add("─ ", "rule").add(shorten(title, width - 6), "title").add(" ")
    if right and line.width + len(right) + 6 <= width:
        line.rule(width - len(right) - 3).add(f" {right} ", "dim")
    return line.rule(width).row(width)


def title_of(group: GpuGroup) -> str:
    """The host with its job and user."""
    job = "no job"
    if len(group.jobs) == 1:
        job = group.jobs[0]
    elif group.jobs:
        job = f"{len(group.jobs)} jobs"
    user = f" ({group.users[0]})" if len(group.users) == 1 else ""
    return terminal_safe(f"{group.title}   {job}{user}")


def host_title(view: FleetView, group: GpuGroup) -> str:
    """The host or its chosen GPU, with job and user."""
    chosen = chosen_gpu(view, group)
    if chosen is group or view.gpu is None:
        return title_of(group)
    return terminal_safe(f"GPU {view.gpu.number} of ") + title_of(chosen)


def _values(group: GpuGroup) -> list[str]:
    """Means and sums of a group's GPUs, in words."""
    reads = [gpu.read for gpu in group.gpus]
    means = {
        "util": group.util_pct,
        "SM": group.sm_active_pct,
        "DRAM": mean((read.dram_active_pct, 1) for read in reads),
        "tensor": mean((read.tensor_active_pct, 1) for read in reads),
    }
    words = [f"{word} {number(value)} %" for word, value in means.items() if value is not None]
    if group.power_w is not None:
        words.append(_power(group.power_w))
    used_bytes = [read.mem_used_bytes for read in reads if read.mem_used_bytes is not None]
    if used_bytes:
        words.append(f"{memory(sum(used_bytes))} held")
    return words


def _power(power_w: float) -> str:
    return f"{power_w / 1000.0:.1f} kW" if power_w >= 1000.0 else f"{power_w:.0f} W"


def verdict_line(group: GpuGroup) -> str:
    """The verdict with the values that it follows from."""
    verdict = terminal_safe(group.verdict.text)
    values = ", ".join(_values(group))
    if not values:
        return verdict
    if group.down is not None:
        return f"{verdict}; its last values: {values}"
    judged_there = any(gpu.state_by == "gputop" for gpu in group.gpus)
    source = "gputop on the node" if judged_there else "means over 5 min"
    return f"{verdict}: {values} ({source})"


def evidence(group: GpuGroup, width: int) -> list[Row]:
    """Rows of the verdict with values, and the remedy."""
    rows: list[Row] = []
    # The first fault is part of the verdict.
    for text in group.faults[1:MOST_FAULTS]:
        fault = shorten(terminal_safe(text), width - 5)
        rows.append(Line().add(f" ! {fault}", "level.yellow").row(width))
    rows += _folded_rows("↳", verdict_line(group), "evidence", width)
    rows += _folded_rows("→", group.remedy, "remedy", width)
    return rows


def _folded_rows(glyph: str, text: str, style: str, width: int) -> list[Row]:
    """A text after a glyph, in two rows at most; none for an empty one."""
    rows: list[Row] = []
    if not text:
        return rows
    for line in folded(text, width - 5)[:MOST_TEXT_ROWS]:
        begin = " " if rows else glyph
        rows.append(Line().add(f" {begin} {line}", style).row(width))
    return rows


def charts(gpus: Sequence[Gpu], view: FleetView, width: int, room: int) -> list[Row]:
    """Gap charts of the last hour for as many GPUs as fit."""
    if not gpus or room < 2:
        return []
    most = min(len(gpus), max(1, width // (LABEL + NUMBERS + LEAST_CHART + 1)))
    per_line = next(n for n in (4, 2, 1) if n <= most)
    size, lines = width // per_line, -(-len(gpus) // per_line)
    tall = max(2, min(MOST_CHART_ROWS, room // lines - (1 if room // lines > 3 else 0)))
    rows: list[Row] = []
    for at in range(0, len(gpus), per_line):
        if len(rows) + tall > room:
            rows.append(Line().add(f"  … {len(gpus) - at} more GPUs", "dim").row(width))
            break
        blocks = [_chart(gpu, view, size, tall) for gpu in gpus[at : at + per_line]]
        for spans in zip(*blocks, strict=True):
            line = Line()
            for x, part in enumerate(spans):
                line.to(x * size).add_all(part)
            rows.append(line.row(width))
        rows += [Line().row(width)] * ((tall + 1) * lines <= room)
    return rows[:room]


def _chart(gpu: Gpu, view: FleetView, size: int, tall: int) -> list[list[Span]]:
    """One GPU: its number, its chart, util, SM and gap."""
    read, alarm, is_absent = gpu.read, gpu.state == "busy_not_working", gpu.state in ABSENT
    with_words = size >= LEAST_FOR_WORDS
    is_chosen = view.gpu == (read.host, read.gpu)
    room = size - LABEL - (WITH_WORDS if with_words else NUMBERS) - 1
    # The last hour over so many columns; blank until it was read.
    util, sm = (
        [line[i * len(line) // room] for i in range(room)] if line else [None] * room
        for line in (view.history or {}).get(read.gpu, ((), ()))
    )
    measured = read.sm_active_pct is not None or any(value is not None for value in sm)
    drawn = gap_chart(util, sm, tall, view.glyphs, alarm=alarm, measured=measured)
    name = terminal_safe(read.gpu)
    labels = {0: "100", tall - 1: "0"} if tall >= LEAST_FOR_AXIS else {}
    labels[tall // 2] = (f"GPU{name}" if len(name) == 1 else name)[: LABEL - 2]
    if is_chosen:
        labels[tall // 2] = f"▸{name}"[: LABEL - 2]
    numbers = (
        ("util", read.util_pct, "strong"),
        ("SM", read.sm_active_pct, sm_style(read.sm_active_pct, gpu.state, alarm=alarm)),
        ("gap", gpu.gap_pct, gap_style(gpu.gap_pct, alarm=alarm)),
    )
    rows: list[list[Span]] = []
    for y in range(tall):
        style = "dim"
        if y == tall // 2 and is_chosen:
            style = "title"
        elif y == tall // 2 and not is_absent:
            style = "value"
        line = (
            Line()
            .add(labels.get(y, "").rjust(LABEL - 2), style)
            .add("  ")
            .add_all(drawn[y])
            .to(LABEL + room)
        )
        for word, value, colour in numbers[y : y + 1]:
            line.add(number(value, 4), "dim" if is_absent else colour).add(
                f" {word}" * with_words, "dim"
            )
        rows.append(list(line.spans))
    return rows


def host_page(group: GpuGroup, view: FleetView, width: int, height: int) -> list[Row]:
    """The whole screen below the header for one host."""
    chosen = chosen_gpu(view, group)
    rows = [rule(host_title(view, group), "", width), *evidence(chosen, width)]
    steps = any(gpu.read.step_s is not None for gpu in group.gpus)
    columns = [column for column in _COLUMNS if steps or column.key != "step_s"]
    heads = "".join(f"{column.head:>{column.width}}" for column in columns)
    gpu_rows = [_gpu_row(gpu, columns, width) for gpu in group.gpus]
    head = Line().add(f"  {'GPU':<7}{heads}   STATE", "heading").row(width)
    table = [head, *(map(greyed, gpu_rows) if group.down else gpu_rows)]
    room = height - len(rows) - 1
    shown = table[: max(2, room)]
    charted = charts(group.gpus, view, width, room - len(shown))
    if charted:
        state = "   being read" if view.history is None else ""
        rows.append(
            rule(f"last hour{state}", "gap chart: SM active below, busy without SM above", width)
        )
        rows += charted
    return [*rows, *shown[: max(0, height - len(rows))]]


def _gpu_row(gpu: Gpu, columns: Sequence[GpuColumn], width: int) -> Row:
    read, old, alarm = gpu.read, gpu.state in ABSENT, gpu.level == "red"
    sm = sm_style(read.sm_active_pct, gpu.state, alarm=alarm)
    styles = {
        "util_pct": "strong",
        "sm_active_pct": sm,
        "gap_pct": "value.alarm" if alarm else "dim",
    }
    line = Line().add(f"  {terminal_safe(read.gpu):<7}", "value")
    for column in columns:
        value, style = column.value(gpu), styles.get(column.key, "text")
        if column.key == "step_s":
            text = f"{'n/a' if value is None else step_time(value):>{column.width}}"
        else:
            text = number(
                value / 2**30 if value and column.key == "mem_used_bytes" else value, column.width
            )
        line.add(text, "dim" if old and style != "value.alarm" else style)
    words = WORDS[gpu.state]
    # Of a GPU that is not there, or that a job holds unused, the node's last verdict says something else.
    title = (
        titles().get(read.own_verdict or "")
        if gpu.state in ("working", "busy_not_working", "starved")
        else None
    )
    if title and title != words:
        words = f"{words}: {title}" if gpu.state == "busy_not_working" else title
    words = f"{'×' if old else level_glyph(gpu.level)} {words}"
    line.add("   ").add(shorten(words, max(1, width - line.width - 1)), f"level.{gpu.level}")
    if width >= 100:
        owner = " ".join(part for part in (read.job, read.user, read.process) if part)
        line.add(
            f"   {terminal_safe(owner)}" + f"   {terminal_safe(read.uuid)}" * (width >= 130), "dim"
        )
    return line.row(width)
