"""A trace's report for a terminal: the verdict, where a step goes, why the GPU was idle, what to do, the tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import zip_longest

from gputop.features.traces.categories import CATEGORY_WORDS
from gputop.features.traces.kernels import MOST_RANKS_OF_A_NODE, KernelRow, link_of
from gputop.features.traces.recorded_meanwhile import Meanwhile
from gputop.features.traces.timeline import CAUSES
from gputop.features.traces.trace_ranks import StragglingRank, TraceReport
from gputop.features.traces.trace_report import (
    SHARES,
    Measures,
    RankReport,
    StepShare,
    TraceGpuReport,
    phases,
    severity,
)
from gputop.features.traces.trace_verdict import is_launch_bound
from gputop.model.quantity import NOT_MEASURED, count, file_size, number, wrapped
from gputop.output.document import Table, table_lines, text_lines
from gputop.paint.glyphs import Glyphs, ascii_only
from gputop.paint.line import shorten

WIDTH = 120
BAR = 52
SHARE_WORDS = dict(zip(SHARES, ("compute", "comm", "copy", "idle"), strict=True))
CAUSE_WORDS = {
    "data": "data loading", "module_load": "module loading", "allocator": "allocator", "host_work": "other host work",
    "after_sync": "after a sync", "launching": "launching", "launch_latency": "launch latency",
    "dependency": "waits on the device", "kernel_gap": "kernel gaps", "unknown": "unknown",
}  # fmt: skip
SM_WORDS = {
    "bound": "bound from launch grids, not measured",
    "nsys": "measured by Nsight Systems",
    "kineto": "measured by the profiler",
}
LEAST_SHOWN = 0.05
_LABEL = 20


def trace_text(
    report: TraceReport, glyphs: Glyphs, *, top: int, ranks: Sequence[int] | None, meanwhile: Sequence[Meanwhile] = ()
) -> str:
    """The whole report. Of several ranks one line each, then the worst in full, or those of ``ranks``."""
    lines: list[str] = []
    shown = list(report.ranks)
    if len(shown) > 1:
        lines += _rank_table(report, glyphs)
        shown = [rank for rank in shown if rank.rank in ranks] if ranks is not None else [worst(report)]
    for rank in shown:
        lines += [""] if lines else []
        lines += _rank(rank, glyphs, top)
    for found in meanwhile:
        lines += ["", *_meanwhile(found)]
    lines += [f"note: {note}" for note in report.notes]
    text = text_lines(lines)
    return ascii_only(text) if glyphs.name == "ascii" else text


def worst(report: TraceReport) -> RankReport:
    """The rank to look at first: the straggler, else the worst verdict, else the most idle."""
    if report.straggler is not None:
        for rank in report.ranks:
            if rank.rank == report.straggler.rank:
                return rank
    return max(report.ranks, key=lambda rank: max(_badness(gpu) for gpu in rank.gpus))


def _badness(gpu: TraceGpuReport) -> tuple[int, float]:
    return severity(gpu.said.level), gpu.measures.share_pct["idle"]


def _rank_table(report: TraceReport, glyphs: Glyphs) -> list[str]:
    head = f"{'rank':>6}  {'ms/step':>9}  {'compute':>7} {'comm':>5} {'copy':>5} {'idle':>5} {'data':>5}   verdict"
    lines = [f"{len(report.ranks)} ranks, by {report.ranks[0].rank_from}", "", head]
    for rank in report.ranks:
        for gpu in rank.gpus:
            m = gpu.measures
            which = f"{rank.rank}" if len(rank.gpus) == 1 else f"{rank.rank}:{m.index}"
            shares = [m.share_pct[share] for share in SHARES]
            line = f"{which:>6}  {m.step_median_ms:>9.1f}  {shares[0]:>7.1f} {shares[1]:>5.1f} {shares[2]:>5.1f} "
            line += f"{shares[3]:>5.1f} {m.idle_cause_pct['data']:>5.1f}   {glyphs.level(gpu.said.level)} "
            lines.append(shorten(line + gpu.said.headline, WIDTH))
    if report.straggler is not None:
        lines += ["", *_wrapped(f"{glyphs.red} ", straggler_words(report.straggler))]
    return lines


def straggler_words(found: StragglingRank) -> str:
    """Which rank makes the others wait, and on what it spends more time."""
    kind = "is slower" if found.kind == "slow" else "is late, starved"
    more = f"it spends {found.more_ms:.1f} ms more a step on {found.more}" if found.more_ms > 0 else "cause not seen"
    return (
        f"rank {found.rank} {kind}: the others wait {found.late_pct:.0f} % of the time for it "
        f"(last in {found.last_in_pct:.0f} % of the collectives); {more}"
    )


def _rank(rank: RankReport, glyphs: Glyphs, top: int) -> list[str]:
    lines: list[str] = []
    for gpu in rank.gpus:
        lines += [""] if lines else []
        lines.append(_title(rank, gpu.measures))
        lines += _gpu(gpu, glyphs, top)
    return [*lines, *(f"note: {note}" for note in rank.notes)]


def _title(rank: RankReport, m: Measures) -> str:
    what = [m.name or "GPU"] if m.index == 0 and len(rank.gpus) == 1 else [f"GPU {m.index} {m.name or ''}".strip()]
    if m.named_steps:
        low, high = m.step_range_ms
        steps = count(m.steps, "step")
        what += [steps, f"{ms(m.step_median_ms)} ms a step" + (f" ({ms(low)}–{ms(high)})" if m.steps > 1 else "")]
    else:
        what.append(f"{ms(m.window_ms)} ms")
    what.append(f"read {file_size(rank.size_bytes)} in {rank.read_s:.1f} s")
    return f"{os.path.basename(rank.path)}   {' · '.join(what)}"


def ms(value: float) -> str:
    """Milliseconds with three significant digits."""
    return f"{value:.0f}" if value >= 999.5 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def _gpu(gpu: TraceGpuReport, glyphs: Glyphs, top: int) -> list[str]:
    m, said = gpu.measures, gpu.said
    right = f"{said.verdict} · confidence {said.confidence}"
    head = f"{glyphs.red if said.flag else glyphs.level(said.level)} {said.headline}"
    room = WIDTH - len(right) - 2
    lines = [f"{head:<{room}}  {right}"] if len(head) <= room else [head, f"  {right}"]
    lines += [
        _labelled("where a step goes", _shares(m, glyphs)),
        *_wrapped(f"  {'why it is idle':<{_LABEL}}", _causes(m)),
    ]
    if m.under:
        names = " · ".join(f"{shorten(row.name, 40)} {row.pct:.1f}" for row in m.under if row.pct >= LEAST_SHOWN)
        lines += [_labelled("underneath", shorten(names, WIDTH - _LABEL - 2))] if names else []
    lines += [f"  {line}" for line in _activity(gpu)]
    for at, text in enumerate(said.evidence):
        lines += _wrapped(f"  {'because' if at == 0 else '':<{_LABEL}}", text)
    if said.remedy:
        best = gpu.best_case_step_ms
        gain = ""
        if best is not None and gpu.gain_pct:
            gain = f"at best {ms(best)} ms {'a step ' if m.named_steps else ''}(−{gpu.gain_pct:.0f} %)"
        room = WIDTH - len(gain) - 4
        remedy = f"{glyphs.remedy} {said.remedy}"
        lines += [f"{remedy:<{room}}    {gain}"] if len(remedy) <= room else [*_wrapped("", remedy), f"  {gain}"]
    for note in said.notes:
        lines += _wrapped("  also: ", note)
    return [line for line in lines if line.strip()] + _tables(m, glyphs, top)


def _labelled(label: str, text: str) -> str:
    return f"  {label:<{_LABEL}}{text}"


def _wrapped(label: str, text: str) -> list[str]:
    return wrapped(text, WIDTH, label, " " * max(2, len(label)))


def _shares(m: Measures, glyphs: Glyphs) -> str:
    parts = []
    for share in SHARES:
        value = m.share_pct[share]
        if value >= LEAST_SHOWN:
            parts.append(f"{SHARE_WORDS[share]} {bar(value, glyphs)} {value:.1f}")
    return "   ".join(parts) + " %"


def bar(value: float, glyphs: Glyphs) -> str:
    """A share in percent as a bar; 100 are 52 cells."""
    eighths = round(value / 100.0 * BAR * (len(glyphs.left) - 1))
    whole, part = divmod(eighths, len(glyphs.left) - 1)
    return glyphs.left[-1] * whole + (glyphs.left[part] if part else "")


def _causes(m: Measures) -> str:
    rows = sorted(((m.idle_cause_pct[cause], cause) for cause in CAUSES), reverse=True)
    shown = [f"{CAUSE_WORDS[cause]} {value:.1f}" for value, cause in rows if value >= LEAST_SHOWN]
    return "   ".join(shown) or "it never is"


def _activity(gpu: TraceGpuReport) -> list[str]:
    m = gpu.measures
    parts = [f"UTIL {m.util_pct:.1f}"]
    if m.sm_active_pct is not None:
        parts.append(f"SM {m.sm_active_pct:.1f} ({SM_WORDS[m.sm_source]})")
    elif m.sm_high_pct is not None:
        parts.append(f"SM ≤ {m.sm_high_pct:.1f} ({SM_WORDS['bound']})")
    else:
        parts.append(f"SM n/a ({no_sm_words(m)})")
    if m.queue is not None:
        bound = " (launch-bound)" if is_launch_bound(m) else ""
        parts.append(f"queue empty at {m.queue.empty_pct:.0f} % of kernels{bound}")
    if m.occupancy_pct is not None:
        parts.append(f"occupancy {m.occupancy_pct:.0f}")
    if m.overlap_pct is not None and m.comm_pct >= LEAST_SHOWN:
        parts.append(f"communication {m.comm_pct:.1f}, {m.overlap_pct:.0f} % of it hidden")
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + 5 <= WIDTH:
            lines[-1] += f"   {part}"
        else:
            lines.append(part)
    return lines


def no_sm_words(m: Measures) -> str:
    """Why there is no bound on SM activity."""
    missing = "how many multiprocessors the GPU has" if m.sm_count is None else "the kernels' grids"
    return f"the file does not say {missing}, and holds no counters"


# --- tables ---------------------------------------------------------------------------------------------------------

_STEP_HEAD = f"{'step':<7}{'ms':>9}{'compute':>9}{'comm':>6}{'copy':>6}{'idle':>6}{'data':>6}"
_STEP_WIDTH = 67
_NAME = 66
_KERNEL_HEAD = f"{'top kernels':<{_NAME}}{'category':<15}{'share':>6}{'calls':>8}{'mean µs':>9}{'occ':>5}{'SM ≤':>6}"
_MOST_SYNCS, _MOST_COMM = 5, 6


def _tables(m: Measures, glyphs: Glyphs, top: int) -> list[str]:
    categories = [
        f"{'by category':<22}{'share':>8}{'calls':>9}",
        *(f"{CATEGORY_WORDS[row.category]:<22}{row.share_pct:>8.1f}{row.calls:>9}" for row in m.categories),
    ]
    lines = [""]
    if m.steps_table:
        steps = [_STEP_HEAD, *(_step(row) for row in _few(m.steps_table, max(8, len(m.categories))))]
        pairs = zip_longest(steps, categories, fillvalue="")
        lines += [f"  {left:<{_STEP_WIDTH}} {right}" for left, right in pairs]
        lines += [f"  {line}" for line in phase_lines(m)]
    else:
        lines += [f"  {line}" for line in categories]
    lines += ["", *(f"  {line}" for line in (_KERNEL_HEAD, *(_kernel(row) for row in m.kernels[:top])))]
    for table in (sync_table(m, _MOST_SYNCS), collective_table(m, _MOST_COMM)):
        lines += ["", *table_lines(table, WIDTH)] if table.rows else []
    return [*lines, *(line for text in link_lines(m) for line in _wrapped("  ", text))]


def sync_table(m: Measures, most: int) -> Table:
    """Calls that wait for the GPU and leave it idle, the most costly first."""
    costly = [row for row in m.syncs if row.idle_after_ms >= 0.001 * m.window_ms][:most]
    rows = [(row.op, f"{row.calls}", f"{row.host_ms:.1f}", f"{row.idle_after_ms:.1f}") for row in costly]
    return Table(("waits for the GPU", "calls", "host ms", "idle after, ms"), tuple(rows), "<>>>")


def collective_table(m: Measures, most: int) -> Table:
    """Collectives by operation and size, with the bandwidth that each had."""
    rows = [
        (row.operation, f"{row.ranks}" if row.ranks > 0 else "", file_size(row.bytes), f"{row.calls}",
         f"{row.median_us:.1f}", _gb(row.bus_median), _gb(row.bus_best))
        for row in m.collectives[:most]
    ]  # fmt: skip
    return Table(("collectives", "ranks", "size", "calls", "median µs", "bus GB/s", "best"), tuple(rows), "<" + ">" * 6)


def phase_lines(m: Measures) -> list[str]:
    """A server's iterations by what they do, where their names say it: how many, and the median."""
    return [f"{phase}: {count(many, 'iteration')}, median {ms(middle)} ms" for phase, many, middle in phases(m)]


def _gb(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value / 1e9:.1f}"


def link_lines(m: Measures) -> list[str]:
    """The best bandwidth beside the link's, where the board's name tells it and the ranks may share a node."""
    link = link_of(m.name)
    near = [row for row in m.collectives if row.bus_best is not None and row.ranks <= MOST_RANKS_OF_A_NODE]
    best = max(near, key=lambda row: row.bus_best or 0.0, default=None)
    if link is None or best is None or best.bus_best is None:
        return []
    name, speed = link
    return [
        f"best {best.bus_best / 1e9:.1f} GB/s ({best.operation}, {file_size(best.bytes)}) of {speed / 1e9:.0f} that "
        f"{name} carries in one direction, if the ranks share a node; waits for late ranks are in the times"
    ]


def _few(rows: Sequence[StepShare], most: int) -> list[StepShare | None]:
    """All steps, or the first ones and then those that stand out; None is what was left out."""
    if len(rows) <= most:
        return list(rows)
    odd = [row for row in rows[2:] if row.flag == "slow"][: most - 3]
    shown: list[StepShare | None] = list(rows[: most - 1 - len(odd)])
    return [*shown, None, *(row for row in odd if row not in shown)]


def _step(row: StepShare | None) -> str:
    if row is None:
        return "…"
    flag = "".join(f"  {word}" for word in (row.flag, row.phase) if word)
    return (
        f"{shorten(row.name, 6):<7}{row.ms:>9.1f}{row.compute:>9.1f}{row.comm:>6.1f}{row.copy:>6.1f}{row.idle:>6.1f}"
        f"{row.data:>6.1f}{flag}"
    )


def _kernel(row: KernelRow) -> str:
    occupancy = "" if row.occupancy_pct is None else f"{row.occupancy_pct:.0f}"
    high = "" if row.sm_high_pct is None else f"{row.sm_high_pct:.0f}"
    name = f"{middle_cut(row.name, _NAME - 2):<{_NAME}}{row.category:<15}"
    return f"{name}{row.share_pct:>6.1f}{row.calls:>8}{row.mean_us:>9.1f}{occupancy:>5}{high:>6}"


def middle_cut(name: str, width: int) -> str:
    """A name without its middle where it is too long: begin and end tell kernels apart."""
    if len(name) <= width:
        return name
    begin = (width - 1) * 2 // 3
    return f"{name[:begin]}…{name[-(width - 1 - begin) :]}"


def _meanwhile(found: Meanwhile) -> list[str]:
    if found.reason is not None:
        return [f"recording: {found.reason}"]
    lead = f"recorded meanwhile ({found.seconds:.0f} s, {found.samples} samples; GPUs numbered as in the recording)"
    return [lead, *table_lines(meanwhile_table(found))]


def meanwhile_table(found: Meanwhile) -> Table:
    """What a recording says of the GPUs at the time of the trace."""
    rows = [
        (f"{gpu.index}", number(gpu.util_pct), number(gpu.sm_active_pct), f"{gpu.verdict}: {gpu.title}")
        for gpu in found.gpus
    ]
    return Table(("GPU", "UTIL", "SM", "verdict"), tuple(rows), ">>><")
