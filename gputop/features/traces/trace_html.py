"""A trace's report as a page: the step as stacked bars, the gaps with what the CPU did meanwhile, the kernels."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gputop import __version__
from gputop.features.traces.categories import CATEGORY_WORDS
from gputop.features.traces.recorded_meanwhile import Meanwhile
from gputop.features.traces.timeline import CAUSES
from gputop.features.traces.trace_ranks import TraceReport
from gputop.features.traces.trace_report import SHARES, Measures, StepShare, TraceGpuReport
from gputop.features.traces.trace_text import (
    CAUSE_WORDS,
    LEAST_SHOWN,
    SHARE_WORDS,
    SM_WORDS,
    collective_table,
    link_lines,
    meanwhile_table,
    ms,
    no_sm_words,
    phase_lines,
    straggler_words,
    sync_table,
)
from gputop.features.traces.trace_verdict import is_launch_bound
from gputop.output.document import Notes, html_parts, part
from gputop.output.html import (
    Markup,
    Part,
    document,
    element,
    facts,
    join,
    legend,
    notes,
    stacked_bar,
    strip,
    table,
    verdict,
)

MOST_STEPS = 40
MOST_COLLECTIVES = 30
MOST_SYNCS = 10


def trace_html(report: TraceReport, *, top: int, meanwhile: Sequence[Meanwhile] = ()) -> str:
    """The whole page. All ranks are in it, each in full."""
    names = [os.path.basename(rank.path) for rank in report.ranks]
    title = names[0] if len(names) == 1 else f"{len(names)} ranks: {names[0]} …"
    body: list[Markup] = [element("h1", title)]
    if len(report.ranks) > 1:
        body += _overview(report)
    for rank in report.ranks:
        if len(report.ranks) > 1:
            body.append(element("h2", f"Rank {rank.rank}: {os.path.basename(rank.path)}"))
        for gpu in rank.gpus:
            body.append(_gpu(gpu, top))
        body.append(notes(rank.notes))
    for found in meanwhile:
        missing = Notes((f"recording: {found.reason}",))
        body += html_parts(
            [missing] if found.reason is not None else part("Recorded at the same time", meanwhile_table(found))
        )
    body.append(notes(report.notes))
    return document(f"gputop trace: {title}", *body, footer=f"gputop {__version__} · shares are of the time shown")


def _parts(m: Measures) -> list[Part]:
    return [(share.removesuffix("_exposed"), SHARE_WORDS[share], m.share_pct[share]) for share in SHARES]


def _overview(report: TraceReport) -> list[Markup]:
    rows = [
        (
            str(rank.rank),
            stacked_bar(_parts(gpu.measures), thin=True),
            ms(gpu.measures.step_median_ms),
            f"{gpu.measures.share_pct['idle']:.1f}",
            element("span", gpu.said.headline, class_=f"level {gpu.said.level}"),
        )
        for rank in report.ranks
        for gpu in rank.gpus
    ]
    found = [] if report.straggler is None else [verdict("red", straggler_words(report.straggler), "", (), "", "")]
    return [*found, table(("rank", "where a step goes", "ms", "idle %", "verdict"), rows, "twnnt")]


def _gpu(gpu: TraceGpuReport, top: int) -> Markup:
    m, said = gpu.measures, gpu.said
    what = f"{m.name or 'GPU'} · GPU {m.index}"
    what += f" · {m.steps} steps" if m.named_steps else ""
    best = gpu.best_case_step_ms
    gain = ""
    if best is not None and gpu.gain_pct:
        unit = " a step" if m.named_steps else ""
        gain = f"Without it: at best {ms(best)} ms{unit} instead of {ms(m.step_median_ms)} (−{gpu.gain_pct:.0f} %)"
    shares = _parts(m)
    causes: list[Part] = [(cause, CAUSE_WORDS[cause], m.idle_cause_pct[cause]) for cause in CAUSES]
    sections = [
        element("p", what, class_="dim"),
        verdict(
            said.level,
            said.headline,
            f"{said.verdict} · confidence {said.confidence}",
            said.evidence,
            said.remedy,
            gain,
        ),
        notes(said.notes),
        facts(_figures(gpu)),
        element("h2", "Where a step goes" if m.named_steps else "Where the time goes"),
        stacked_bar(shares),
        legend(shares),
        *_idle(m, causes),
        *_steps(m.steps_table),
        notes(phase_lines(m)),
        *_categories(m),
        *_kernels(m, top),
        *html_parts(part("Collectives", collective_table(m, MOST_COLLECTIVES), Notes(tuple(link_lines(m))))),
        *html_parts(part("Where the host waits for the GPU", sync_table(m, MOST_SYNCS))),
    ]
    return join(sections)


def _figures(gpu: TraceGpuReport) -> list[tuple[str, str, str]]:
    m = gpu.measures
    low, high = m.step_range_ms
    span = f"{ms(low)}–{ms(high)}"
    rows = [("step, median", f"{ms(m.step_median_ms)} ms", span)] if m.named_steps else []
    rows += [("window", f"{ms(m.window_ms)} ms", ""), ("UTIL", f"{m.util_pct:.1f} %", "a kernel runs")]
    if m.sm_active_pct is not None:
        rows.append(("SM", f"{m.sm_active_pct:.1f} %", SM_WORDS[m.sm_source]))
    elif m.sm_high_pct is not None:
        rows.append(("SM", f"≤ {m.sm_high_pct:.1f} %", SM_WORDS["bound"]))
    else:
        rows.append(("SM", "n/a", no_sm_words(m)))
    if m.queue is not None:
        bound = "launch-bound" if is_launch_bound(m) else ""
        rows.append(("queue empty", f"{m.queue.empty_pct:.0f} %", f"of kernels: {bound}"))
    if m.occupancy_pct is not None:
        rows.append(("occupancy", f"{m.occupancy_pct:.0f} %", "estimated by the profiler"))
    if m.overlap_pct is not None:
        rows.append(("communication hidden", f"{m.overlap_pct:.0f} %", f"of {m.comm_pct:.1f} % of the time"))
    return rows


def _idle(m: Measures, causes: list[Part]) -> list[Markup]:
    if m.share_pct["idle"] < LEAST_SHOWN:
        return []
    parts = [
        element("h2", "Why the GPU is idle"),
        stacked_bar(causes),
        legend(causes),
    ]
    rows = [(element("code", row.name), f"{row.pct:.1f}") for row in m.under if row.pct >= LEAST_SHOWN]
    if rows:
        parts += [element("h3", "What the host was in at that time"), table(("", "% of the time"), rows, "tn")]
    if m.gaps:
        line = [
            (100.0 * gap.at_ms / m.window_ms, 100.0 * gap.ms / m.window_ms, f"{ms(gap.ms)} ms at {ms(gap.at_ms)} ms")
            for gap in m.gaps
        ]
        rows_of_gaps = [
            (
                ms(gap.at_ms),
                ms(gap.ms),
                ", ".join(f"{row.name} {row.pct:.0f} %" for row in gap.under if row.pct >= 1.0) or "GPU side",
            )
            for gap in m.gaps
        ]
        parts += [
            element("h3", "The longest idle times"),
            strip(line),
            table(("at ms", "ms", "the host was in"), rows_of_gaps, "nnt"),
        ]
    return parts


def _steps(steps: Sequence[StepShare]) -> list[Markup]:
    if not steps:
        return []
    longest = max(row.ms for row in steps)
    rows = []
    for row in steps[:MOST_STEPS]:
        scale = row.ms / longest
        shares: list[Part] = [
            ("compute", "compute", row.compute * scale),
            ("comm", "comm", row.comm * scale),
            ("copy", "copy", row.copy * scale),
            ("idle", "idle", row.idle * scale),
        ]
        cells = (f"{row.compute:.1f}", f"{row.comm:.1f}", f"{row.copy:.1f}", f"{row.idle:.1f}", f"{row.data:.1f}")
        rows.append(
            (
                row.name,
                stacked_bar(shares, thin=True),
                ms(row.ms),
                *cells,
                " ".join(word for word in (row.flag, row.phase) if word),
            )
        )
    more = [f"and {len(steps) - MOST_STEPS} more steps"] if len(steps) > MOST_STEPS else []
    head = ("step", "", "ms", "compute", "comm", "copy", "idle", "data", "")
    return [element("h2", "Steps"), table(head, rows, "twnnnnnnt"), notes(more)]


def _categories(m: Measures) -> list[Markup]:
    rows = [
        (
            CATEGORY_WORDS[row.category],
            stacked_bar(
                [("comm" if row.category == "communication" else "compute", row.category, row.share_pct)], thin=True
            ),
            f"{row.share_pct:.1f}",
            row.calls,
        )
        for row in m.categories
    ]
    return [element("h2", "Kernels by category"), table(("", "", "share %", "calls"), rows, "twnn")] if rows else []


def _kernels(m: Measures, top: int) -> list[Markup]:
    rows = [
        (
            element("code", row.name),
            row.category,
            stacked_bar([("comm" if row.comm else "compute", row.name, row.share_pct)], thin=True),
            f"{row.share_pct:.1f}",
            row.calls,
            f"{row.mean_us:.1f}",
            "n/a" if row.occupancy_pct is None else f"{row.occupancy_pct:.0f}",
            "n/a" if row.sm_high_pct is None else f"{row.sm_high_pct:.0f}",
        )
        for row in m.kernels[:top]
    ]
    head = ("kernel", "category", "", "share %", "calls", "mean µs", "occupancy %", "SM ≤ %")
    return [element("h2", "Kernels by time"), table(head, rows, "ttwnnnnn")] if rows else []
