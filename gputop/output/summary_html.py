"""A watched run as a page: the GPU time by state, what was wrong, the steps, the memory."""

from __future__ import annotations

from collections.abc import Sequence

from gputop import __version__
from gputop.diagnosis.types import STATE_WORDS, STATES
from gputop.model.quantity import length, of_hundred
from gputop.output.html.blocks import facts, notes, table, verdict
from gputop.output.html.document import document
from gputop.output.html.markup import Markup, element
from gputop.output.report_text import report_notes, step_lines
from gputop.report.job_report import FindingReport, JobReport

MOST_FINDINGS = 12


def summary_html(report: JobReport, memory: Sequence[str], remarks: Sequence[str], reason: str | None) -> str:
    """The whole page. ``reason`` says why nothing was measured, where nothing was."""
    if not report.gpus:
        return document("gputop", element("h1", reason or "no GPU was watched"), notes([*step_lines(report), *remarks]))
    title = report.command or report.host
    share = report.not_work_share()
    said = "no GPU time was judged" if share is None else f"{100.0 * share:.0f} % of the GPU time was not work"
    hours = report.gpu_hours()
    total = sum(hours.values()) or 1.0
    cards = [
        (STATE_WORDS[s], f"{100.0 * hours[s] / total:.0f} %", length(3600.0 * hours[s])) for s in STATES if hours[s]
    ]
    rows = [
        (
            f"{gpu.index}", gpu.name, *(_number(of_hundred(v)) for v in (gpu.util_pct, gpu.sm_pct, gpu.efficiency_pct)),
            "n/a" if gpu.power_w is None else f"{gpu.power_w:.0f} W",
        )
        for gpu in report.gpus
    ]  # fmt: skip
    body = [
        element("h1", f"{title}: {said}"),
        facts(cards),
        *(_finding(f) for f in report.findings[:MOST_FINDINGS]),
        table(("GPU", "", "util", "SM", "efficiency", "power"), rows, "ntnnnn"),
        *(element("p", line) for line in (*step_lines(report), *memory)),
        notes([*report_notes(report), *remarks]),
    ]
    return document(f"gputop: {title}", *body, footer=f"gputop {__version__}")


def _finding(f: FindingReport) -> Markup:
    evidence = [f.evidence] if f.evidence else []
    return verdict(f.level, f"GPU {f.gpu}: {f.text}", length(f.seconds), evidence, f.remedy, "")


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.0f}"
