"""The page of one host: charts of the last hour, evidence, GPUs."""

from __future__ import annotations

from gputop.diagnosis.catalogue import titles
from gputop.features.fleet.fleet_frame import FleetFrame, Gpu, GpuGroup, mean
from gputop.features.fleet.fleet_view import FleetView
from gputop.features.fleet.gpu_state import ABSENT, LEVELS, WORDS
from gputop.model.quantity import memory, number, step_time, terminal_safe
from gputop.paint.charts import gap_chart
from gputop.paint.glyphs import level_glyph
from gputop.paint.line import Line, Row, Span, folded, shorten
from gputop.paint.words import gap_style

LABEL, NUMBERS, WITH_WORDS = 6, 6, 11
"""Cells beside a chart: the GPU and the axis at its left; numbers at its right, and with what they are."""
LEAST_FOR_WORDS, LEAST_FOR_AXIS = 38, 3
"""Width of a chart with what is beside it from which numbers have words, and its height from which it has an axis."""
LEAST_CHART = 16
MOST_CHART_ROWS = 12
KEPT = ("rule", "title", "heading")
"""Styles that never show a value."""


def greyed(row: Row) -> Row:
    """A row without colours, for old values."""
    parts = [(text, *style.partition("|")) for text, style in row]
    return tuple((text, f"{colour if colour in KEPT else 'dim'}{bar}{ground}") for text, colour, bar, ground in parts)


def rule(title: str, right: str, width: int) -> Row:
    """A rule with a name at its left and words at its right."""
    line = Line().add("─ ", "rule").add(shorten(title, width - 6), "title").add(" ")
    if right and line.width + len(right) + 6 <= width:
        line.rule(width - len(right) - 3).add(f" {right} ", "dim")
    return line.rule(width).row(width)


def title_of(group: GpuGroup) -> str:
    """The host with its job and user."""
    job = group.jobs[0] if len(group.jobs) == 1 else f"{len(group.jobs)} jobs" if group.jobs else "no job"
    user = f" ({group.users[0]})" if len(group.users) == 1 else ""
    return terminal_safe(f"{group.title}   {job}{user}")


def evidence(group: GpuGroup, width: int) -> list[Row]:
    """Rows of the verdict with values, and the remedy."""
    reads = [gpu.read for gpu in group.gpus]
    parts = [
        f"{word} {number(value)} %"
        for word, value in (
            ("util", group.util_pct),
            ("SM", group.sm_active_pct),
            ("DRAM", mean((read.dram_active_pct, 1) for read in reads)),
            ("tensor", mean((read.tensor_active_pct, 1) for read in reads)),
        )
        if value is not None
    ]
    if group.power_w is not None:
        parts.append(f"{group.power_w:.0f} W")
    used_bytes = [read.mem_used_bytes for read in reads if read.mem_used_bytes is not None]
    if used_bytes:
        parts.append(f"{memory(sum(used_bytes))} held")
    text = terminal_safe(group.verdict.text)
    if parts and group.down:
        text += f"; its last values: {', '.join(parts)}"
    elif parts:
        by = "gputop on the node" if any(gpu.state_by == "gputop" for gpu in group.gpus) else "means over 5 min"
        text += f": {', '.join(parts)} ({by})"
    rows = []
    for glyph, words, style in (
        ("↳", text, "evidence"),
        ("→", group.remedy, "remedy"),
    ):
        for i, line in enumerate(folded(words, width - 5)[:2] if words else ()):
            lead = glyph if i == 0 else " " * len(glyph)
            rows.append(Line().add(f" {lead} {line}", style).row(width))
    return rows


def charts(group: GpuGroup, view: FleetView, width: int, room: int) -> list[Row]:
    """Gap charts of the last hour for as many GPUs as fit."""
    gpus = list(group.gpus)
    if not gpus or room < 2:
        return []
    most = min(len(gpus), max(1, width // (LABEL + NUMBERS + LEAST_CHART + 1)))
    per_line = next(n for n in (4, 2, 1) if n <= most)
    lines = -(-len(gpus) // per_line)
    tall = max(2, min(MOST_CHART_ROWS, room // lines - (1 if room // lines > 3 else 0)))
    gap_rows = 1 if (tall + 1) * lines <= room else 0
    rows: list[Row] = []
    size = width // per_line
    for at in range(0, len(gpus), per_line):
        if len(rows) + tall > room:
            not_shown = len(gpus) - at
            rows.append(Line().add(f"  … {not_shown} more GPUs", "dim").row(width))
            break
        blocks = [_chart(gpu, group, view, size, tall) for gpu in gpus[at : at + per_line]]
        for y in range(tall):
            line = Line()
            for x, block in enumerate(blocks):
                line.to(x * size).add_all(block[y])
            rows.append(line.row(width))
        rows += [Line().row(width)] * gap_rows
    return rows[:room]


BESIDE_CHART = ("util", "SM", "gap")


def _chart(gpu: Gpu, group: GpuGroup, view: FleetView, size: int, tall: int) -> list[list[Span]]:
    """One GPU: its number, its chart, util, SM and gap."""
    read = gpu.read
    worded = size >= LEAST_FOR_WORDS
    room = size - LABEL - (WITH_WORDS if worded else NUMBERS) - 1
    util, sm = _columns(gpu, group, view, room)
    measured = read.sm_active_pct is not None or any(value is not None for value in sm)
    alarm = gpu.state == "busy_not_working"
    drawn = gap_chart(util, sm, tall, view.glyphs, alarm=alarm, measured=measured)
    gap = gpu.gap_pct
    numbers: list[Span] = [
        (number(read.util_pct, 4), "strong"),
        (number(read.sm_active_pct, 4), "strong" if alarm else "value.sm" if measured else "dim"),
        (number(gap, 4), gap_style(gap, alarm=alarm)),
    ]
    down = gpu.state in ABSENT
    if down:
        numbers = [(text, "dim") for text, _ in numbers]
    rows: list[list[Span]] = []
    for y in range(tall):
        label, style = "", "dim"
        if y == tall // 2:
            name = terminal_safe(read.gpu)
            label, style = (f"GPU{name}" if len(name) == 1 else name)[: LABEL - 2], "dim" if down else "value"
        elif tall >= LEAST_FOR_AXIS and y in (0, tall - 1):
            label = "100" if y == 0 else "0"
        line = Line().add(label.rjust(LABEL - 2), style).add("  ").add_all(drawn[y]).to(LABEL + room)
        if y < len(numbers):
            line.add_all([numbers[y]]).add(f" {BESIDE_CHART[y]}" if worded else "", "dim")
        rows.append(list(line.spans))
    return rows


def _columns(gpu: Gpu, group: GpuGroup, view: FleetView, room: int) -> tuple[list[float | None], list[float | None]]:
    """The last hour drawn over so many columns; blank until it was read."""
    series = view.history.get(gpu.read.gpu) if view.history is not None and view.host == group.name else None
    if series is None:
        return [None] * room, [None] * room
    util, sm = series
    at = [min(len(util) - 1, i * len(util) // room) for i in range(room)]
    return [util[i] for i in at], [sm[i] for i in at]


def host_page(frame: FleetFrame, group: GpuGroup, view: FleetView, width: int, height: int) -> list[Row]:
    """The whole screen below the header for one host."""
    command = frame.ssh(group.name)
    refused = "redacted" if frame.read.is_redacted else "no ssh command: a shell could misread this name"
    right = f"c copies: {command}" if command else refused
    rows = [rule(title_of(group), right, width), *evidence(group, width)]
    steps = any(gpu.read.step_s is not None for gpu in group.gpus)
    gpu_rows = [_gpu_row(gpu, width, steps=steps) for gpu in group.gpus]
    table = [_gpu_head(width, steps=steps), *(map(greyed, gpu_rows) if group.down else gpu_rows)]
    room = height - len(rows) - 1
    shown = table if len(table) <= room else table[: max(2, room)]
    charted = charts(group, view, width, room - len(shown))
    if charted:
        state = "" if view.history is not None and view.host == group.name else "   being read"
        rows += [
            rule(f"last hour{state}", "gap chart: SM active below, busy without SM above", width),
            *charted,
        ]
    return [*rows, *shown[: max(0, height - len(rows))]]


def _gpu_head(width: int, *, steps: bool) -> Row:
    text = f"  {'GPU':<7}{'UTIL':>5}{'SM':>5}{'GAP':>5}{'TENSOR':>8}{'DRAM':>6}{'W':>6}{'°C':>5}{'MEM GiB':>9}"
    return Line().add(f"{text}{'STEP' * steps:>{9 * steps}}   STATE", "heading").row(width)


def _gpu_row(gpu: Gpu, width: int, *, steps: bool) -> Row:
    read, old, alarm = gpu.read, gpu.state in ABSENT, gpu.state == "busy_not_working"
    used_gib = None if read.mem_used_bytes is None else read.mem_used_bytes / 2**30
    plain = f"{number(read.tensor_active_pct, 8)}{number(read.dram_active_pct, 6)}{number(read.power_w, 6)}"
    plain += f"{number(read.temp_c, 5)}{number(used_gib, 9)}"
    if steps:
        plain += f"{'n/a' if read.step_s is None else step_time(read.step_s):>9}"
    sm = "dim" if old or read.sm_active_pct is None else "strong" if alarm else "value.sm"
    line = (
        Line().add(f"  {terminal_safe(read.gpu):<7}", "value").add(number(read.util_pct, 5), "dim" if old else "strong")
    )
    line.add(number(read.sm_active_pct, 5), sm).add(number(gpu.gap_pct, 5), "value.alarm" if alarm else "dim")
    line.add(plain, "dim" if old else "text").add("   ")
    words = WORDS[gpu.state]
    # Of a GPU that is not there, or that a job holds unused, the node's last verdict says something else.
    title = titles().get(read.own_verdict or "") if gpu.state in ("working", "busy_not_working", "starved") else None
    if title and title != words:
        words = f"{words}: {title}" if alarm else title
    words = f"{'×' if old else level_glyph(LEVELS[gpu.state])} {words}"
    line.add(shorten(words, max(1, width - line.width - 1)), f"level.{LEVELS[gpu.state]}")
    if width >= 100:
        owner = " ".join(part for part in (read.job, read.user) if part)
        line.add(f"   {terminal_safe(owner)}" + f"   {terminal_safe(read.uuid)}" * (width >= 130), "dim")
    return line.row(width)
