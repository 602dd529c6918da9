"""A trace's report as a document and as data.

The parts: verdict, shares of a step, idle causes, remedy, tables. The data is the dictionary behind ``gputop trace
--json``, schema 1, where absent is null.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from gputop.features.traces.host_causes import CAUSES
from gputop.features.traces.long_gaps import long_gap_blocks
from gputop.features.traces.trace_ranks import StragglingRank, TraceReport
from gputop.features.traces.trace_report import (
    CAUSE_WORDS,
    SHARES,
    Measures,
    RankReport,
    TraceGpuReport,
    severity,
)
from gputop.features.traces.trace_tables import (
    category_table,
    kernel_table,
    ms,
    step_table,
    sync_table,
)
from gputop.features.traces.trace_verdict import is_launch_bound
from gputop.model.quantity import NOT_MEASURED, count
from gputop.output.document import (
    Bar,
    Block,
    Breakdown,
    Cell,
    Document,
    Figures,
    Heading,
    Items,
    LevelText,
    Notes,
    Table,
    Verdict,
    part,
)
from gputop.output.html import Part

SHARE_WORDS = dict(zip(SHARES, ("compute", "comm", "copy", "idle"), strict=True))
SM_WORDS = {
    "bound": "bound from launch grids, not measured",
    "nsys": "measured by Nsight Systems",
    "kineto": "measured by the profiler",
}
LEAST_SHOWN = 0.05


TEXT_ROWS, PAGE_ROWS = 8, 40
"""How many steps a form has room for."""


def trace_document(
    report: TraceReport,
    most_rows: int,
    *,
    top: int,
    ranks: Sequence[int | None] | None = None,
) -> Document:
    """The whole report.

    Of several ranks a row each, then the ``ranks`` in full, None: all.
    """
    names = [os.path.basename(rank.path) for rank in report.ranks]
    title = names[0] if len(names) == 1 else f"{len(names)} ranks: {names[0]} …"
    blocks: list[Block] = []
    if len(names) > 1:
        blocks += _overview(report)
        blocks += _collectives(report)
    for rank in report.ranks:
        if ranks is None or rank.rank in ranks:
            blocks += _rank(rank, most_rows, top, is_alone=len(names) == 1)
    lead = (title, f"ranks by {report.ranks[0].rank_from}") if len(names) > 1 else (title,)
    return Document(title, (*blocks, Notes(report.notes)), lead)


def worst(report: TraceReport) -> RankReport:
    """The rank to look at first.

    It is the straggler, else the worst verdict, else the most idle.
    """
    if report.straggler is not None:
        for rank in report.ranks:
            if rank.rank == report.straggler.rank:
                return rank
    return max(
        report.ranks,
        key=lambda rank: max(
            (severity(gpu.verdict.level), gpu.measures.share_pct["idle"]) for gpu in rank.gpus
        ),
    )


def _overview(report: TraceReport) -> Iterator[Block]:
    """A row a rank, and the rank that the others wait for."""
    rows = tuple(_rank_row(rank, gpu) for rank in report.ranks for gpu in rank.gpus)
    head = ("rank", "where a step goes", "ms/step", *SHARE_WORDS.values(), "data", "verdict")
    yield Table(head, rows, ">=>>>>>>~")
    if report.straggler is not None:
        yield Verdict("red", _straggler_words(report.straggler))


LEAST_COMMUNICATION_PCT = 5.0
"""Share of a step in communication from which its bandwidth is a question [judged]."""


def _collectives(report: TraceReport) -> Iterator[Block]:
    """A line that says what measures the links, where ranks communicate for long."""
    shares = [gpu.measures.comm_pct for rank in report.ranks for gpu in rank.gpus]
    if max(shares, default=0.0) >= LEAST_COMMUNICATION_PCT:
        yield Items(
            (
                "a kernel's time here holds the wait for other ranks: bus bandwidth by operation and size is measured "
                f"by nccl-tests (all_reduce_perf -b 8 -e 8G -f 2 -g {len(shares)})",
            )
        )


def _rank_row(rank: RankReport, gpu: TraceGpuReport) -> tuple[Cell, ...]:
    m, verdict = gpu.measures, gpu.verdict
    name = f"{rank.rank}" if len(rank.gpus) == 1 else f"{rank.rank}:{m.index}"
    figures = (
        m.step_median_ms,
        *(m.share_pct[share] for share in SHARES),
        m.idle_cause_pct["data"],
    )
    return (
        name,
        Bar(_shares(m)),
        *(f"{value:.1f}" for value in figures),
        LevelText(verdict.level, verdict.headline),
    )


def _straggler_words(straggler: StragglingRank) -> str:
    """The straggler, and the activity that takes it longer."""
    kind = "is slower" if straggler.kind == "slow" else "is late, starved"
    more = f"it spends {straggler.more_ms:.1f} ms more a step on {straggler.more}"
    cause = more if straggler.more_ms > 0 else "cause not seen"
    return (
        f"rank {straggler.rank} {kind}: the others wait {straggler.late_pct:.0f} % of the time for it "
        f"(last in {straggler.last_in_pct:.0f} % of the collectives); {cause}"
    )


def _rank(rank: RankReport, most_rows: int, top: int, *, is_alone: bool) -> Iterator[Block]:
    if not is_alone:
        yield Heading(f"Rank {rank.rank}: {os.path.basename(rank.path)}")
    for gpu in rank.gpus:
        words = " · ".join(_gpu_words(rank, gpu.measures))
        yield Heading(words) if len(rank.gpus) > 1 else Items((words,))
        yield from _gpu(gpu, most_rows, top)
    yield Notes(rank.notes)


def _gpu_words(rank: RankReport, m: Measures) -> list[str]:
    """``NVIDIA H100``, ``6 steps``, ``20.0 ms a step (19.9–20.1)``."""
    parts = (
        [m.name or "GPU"]
        if m.index == 0 and len(rank.gpus) == 1
        else [f"GPU {m.index} {m.name or ''}".strip()]
    )
    if m.named_steps:
        low, high = m.step_range_ms
        steps = count(m.steps, "step")
        parts += [
            steps,
            f"{ms(m.step_median_ms)} ms a step"
            + (f" ({ms(low)}–{ms(high)})" if m.steps > 1 else ""),
        ]
    else:
        parts.append(f"{ms(m.window_ms)} ms")
    return parts


def _gpu(gpu: TraceGpuReport, most_rows: int, top: int) -> Iterator[Block]:
    is_page = most_rows == PAGE_ROWS
    m, verdict = gpu.measures, gpu.verdict
    best, gain = gpu.best_case_step_ms, ""
    if best is not None and gpu.gain_pct:
        unit = " a step" if m.named_steps else ""
        gain = (
            f"at best {ms(best)} ms{unit} instead of {ms(m.step_median_ms)} (−{gpu.gain_pct:.0f} %)"
        )
        gain += (
            ", other streams beside the busiest one"
            if gpu.gain_pct > (verdict.saves_pct or 0.0) + 1.0
            else ""
        )
    aside = f"{verdict.id} · confidence {verdict.confidence}"
    also = tuple(("also", note) for note in verdict.notes)
    yield Verdict(
        verdict.level, verdict.headline, aside, verdict.evidence, verdict.remedy, gain, also
    )
    yield Figures(tuple(_figures(m)))
    yield from part(
        "Where a step goes" if m.named_steps else "Where the time goes", Breakdown(_shares(m))
    )
    if m.share_pct["idle"] >= LEAST_SHOWN:
        yield from _idle(m)
        yield from long_gap_blocks(m, is_page=is_page)
    yield from part("Steps", step_table(m, most_rows))
    yield from part("Kernels by category", category_table(m))
    yield from part("Kernels by time", kernel_table(m, top))
    yield from part("Where the host waits for the GPU", sync_table(m))


def _shares(m: Measures) -> tuple[Part, ...]:
    hole = m.idle_cause_pct["not_recorded"]
    shares = tuple(
        (share.removesuffix("_exposed"), SHARE_WORDS[share], m.share_pct[share]) for share in SHARES
    )
    return (*shares, ("unknown", "not recorded", hole)) if hole else shares


def _figures(m: Measures) -> Iterator[tuple[str, str, str]]:
    yield "window", f"{ms(m.window_ms)} ms", ""
    yield "UTIL", f"{m.util_pct:.1f} %", "a kernel runs"
    if m.sm_active_pct is not None:
        yield "SM", f"{m.sm_active_pct:.1f} %", SM_WORDS[m.sm_source]
    elif m.sm_high_pct is not None:
        yield "SM", f"≤ {m.sm_high_pct:.1f} %", SM_WORDS["bound"]
    else:
        missing = (
            "how many multiprocessors the GPU has" if m.sm_count is None else "the kernels' grids"
        )
        yield "SM", NOT_MEASURED, f"the file does not say {missing}, and holds no counters"
    if m.occupancy_pct is not None:
        yield "occupancy", f"{m.occupancy_pct:.0f} %", "of the warps, estimated by the profiler"
    if m.queue_empty_pct is not None:
        bound = ": launch-bound" * is_launch_bound(m)
        yield (
            "queue empty",
            f"{m.queue_empty_pct:.0f} %",
            f"of kernels: none other was pending{bound}",
        )
    if m.overlap_pct is not None and m.comm_pct >= LEAST_SHOWN:
        yield "communication hidden", f"{m.overlap_pct:.0f} %", f"of {m.comm_pct:.1f} % of the time"


def _idle(m: Measures) -> Iterator[Block]:
    """The causes of idle time, and what the host was in."""
    causes = [
        (cause, CAUSE_WORDS[cause], m.idle_cause_pct[cause])
        for cause in CAUSES
        if cause != "not_recorded"
    ]
    yield from part(
        "Why the GPU is idle", Breakdown(tuple(sorted(causes, key=lambda row: -row[2])))
    )
    under = tuple((row.name, f"{row.pct:.1f}") for row in m.under if row.pct >= LEAST_SHOWN)
    yield from part("What the host was in at that time", Table(("", "% of the time"), under, "~>"))
