"""A report as a page with charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone

from gputop.diagnosis.types import NOT_WORKING, STATE_WORDS, STATES, Role, State
from gputop.diagnosis.verdict.catalogue import lost_roles, titles
from gputop.diagnosis.verdict.gpu_owners import owner_words
from gputop.diagnosis.verdict.summary import (
    LEADING,
    LEVEL_OF_ROLE,
    ROLE_OF_STATE,
    Number,
    number_words,
)
from gputop.model.durations import gpu_time, length
from gputop.model.quantity import clamp_pct, count, number
from gputop.model.sm import SM_SOURCES
from gputop.output.document import Bar, Cell, Drawing, Table, part
from gputop.output.html import Markup, element, prose
from gputop.output.html_charts import AMBER, GREEN, GREY, RED, chart, clock, lane
from gputop.output.html_document import html
from gputop.output.report_document import PageParts, report_document
from gputop.report.findings import FindingReport
from gputop.report.gpu_account import GpuReport
from gputop.report.lanes import Pictured

REPORT_HTML_MOST_FINDINGS = 60


def report_html(pictured: Pictured) -> str:
    """The report as a self-contained page without scripts."""
    report = pictured.report
    rows = tuple(_time_row(gpu, report.time.all_s) for gpu in report.counted)
    times = Table(
        ("GPU", "", "WORKED", "WASTED", "IDLE", STATE_WORDS["unmeasured"].upper(), "WHOSE"),
        rows,
        "<=>>>><",
    )
    main = {gpu.index: _main_finding(report.findings, gpu) for gpu in report.counted}
    charts = (
        Drawing(key(pictured.column_s)),
        *(Drawing(gpu_section(pictured, gpu)) for gpu in report.counted),
    )
    roles = ((f"var(--c-{role})", words) for role, words in ROLE_WORDS.items())
    parts = PageParts(
        (provenance_line(pictured),),
        part("Where the time went", Drawing(_legend(roles)), times),
        charts,
        frozenset((finding.gpu, finding.id) for finding in main.values() if finding is not None),
    )
    footer = (
        "Wasted: of time in which a GPU was starved, or idle and held by somebody, the part without a "
        "kernel; of time in which it was busy and did not work, or half worked, the part of the chip that no kernel "
        "used. Idle: nobody held the GPU. What was not judged counts as none of these. "
        f"{count(report.frames, 'frame')}, {count(report.gaps, 'gap')} in the recording. One column of a chart stands "
        f"for {length(pictured.column_s)}."
    )
    return html(report_document(report, REPORT_HTML_MOST_FINDINGS, parts), footer)


def provenance_line(pictured: Pictured) -> str:
    """GPUs, driver, source of SM activity, and times."""
    report = pictured.report
    parts = [
        f"{count} × {kind}" for kind, count in Counter(gpu.name for gpu in report.gpus).items()
    ]
    parts += [f"driver {pictured.driver}"] if pictured.driver else []
    sources = " + ".join(
        SM_SOURCES[source].label for source in pictured.sm_sources if source in SM_SOURCES
    )
    parts.append(f"SM measured by {sources}" if sources else "SM not measured")
    begin, end = (datetime.fromtimestamp(t, timezone.utc) for t in (report.begin, report.end))
    parts.append(f"{begin:%Y-%m-%d %H:%M} to {end:%H:%M} UTC ({length(report.duration_s)})")
    return " · ".join(parts)


def key(column_s: float) -> Markup:
    """The legend of the charts."""
    rows = (
        (GREEN, "SM activity"),
        (AMBER, "a kernel runs, this part of the chip does not"),
        (RED, f"the same while {NOT_WORKING}"),
        (GREY, "SM not measured"),
    )
    return _legend(rows, element("li", f"one column: {length(column_s)}; the lane below: verdict"))


def _legend(rows: Iterable[tuple[str, str]], *more: Markup) -> Markup:
    """Colours with their meanings."""
    entries = (
        element("li", element("i", style=f"background:{colour}"), words) for colour, words in rows
    )
    return element("ul", *entries, *more, class_="legend")


ROLE_WORDS: Mapping[Role, str] = {
    "work": "worked", "waiting": "wasted waiting: starved, half working, holding memory",
    "not_working": "wasted: busy, not working", "information": "idle", "unknown": STATE_WORDS["unmeasured"],
}  # fmt: skip


def gpu_section(pictured: Pictured, gpu: GpuReport) -> Markup:
    """One GPU: verdict, number, chart, lane, evidence and remedy."""
    state = max(STATES, key=lambda name: gpu.seconds.get(name, 0.0))
    finding = _main_finding(pictured.report.findings, gpu)
    title, level, figure, owner = (
        STATE_WORDS[state],
        LEVEL_OF_ROLE[ROLE_OF_STATE[state]],
        None,
        gpu.owner,
    )
    words = []
    if finding is not None:
        title = f"{finding.text}, {title}" if finding.kind == "badge" else finding.text
        level, figure, owner = finding.level, finding.number, finding.owner or gpu.owner
        words.append(element("p", f"↳ {finding.evidence} · {finding.when}"))
        if finding.remedy and finding.remedy not in pictured.report.remedies:
            words.append(element("p", "→ ", prose(finding.remedy), style="color:var(--green)"))
    red = level == "red"
    head = element(
        "header",
        element("b", f"GPU {gpu.label}"),
        element("span", title, class_=None if red else f"level {level}"),
        element("span", "" if owner is None else owner_words(owner)),
        element("span", number_words(figure or _number(gpu, state))),
        class_="alarm" if red else None,
    )
    inside = element("div", *_chart_with_figures(pictured, gpu, red=red), class_="chart")
    below = element("div", *words, class_="said") if words else ""
    return element("section", head, inside, below, class_="gpu")


def _chart_with_figures(pictured: Pictured, gpu: GpuReport, *, red: bool) -> tuple[Markup, Markup]:
    """UTIL, SM and GAP, and the chart with lane and clock."""
    util, sm = clamp_pct(gpu.util_pct), clamp_pct(gpu.sm_pct)
    gap = None if util is None or sm is None else max(0.0, util - sm)
    figures = (
        ("UTIL", util, ""),
        ("SM", sm, "" if red else "green"),
        ("GAP", gap, "red" if red else ""),
    )
    listed = []
    for name, value, colour in figures:
        style = f"color:var(--{colour})" if colour and value is not None else None
        listed += [element("dt", name), element("dd", number(value), style=style)]
    columns = pictured.lanes.get(gpu.uuid, ())
    label = (
        f"GPU {gpu.index}: {' · '.join(f'{name} {number(value)}' for name, value, _ in figures)}"
    )
    times = clock(pictured.report.begin, pictured.report.end)
    return element("dl", *listed), element(
        "div", chart(columns, label), lane(columns), times, style="min-width:0"
    )


def _main_finding(findings: Sequence[FindingReport], gpu: GpuReport) -> FindingReport | None:
    """The finding that held for most of the GPU's time.

    A badge that comes before verdicts goes first.
    """
    stood = [f for f in findings if f.gpu == gpu.index and 2 * f.seconds > gpu.measured_s]
    candidates = [f for f in stood if f.kind == "verdict" or f.id in LEADING]
    return max(candidates, key=lambda f: (f.kind == "badge", f.seconds), default=None)


def _number(gpu: GpuReport, state: State) -> Number:
    """The number of a GPU without a main finding, by its means."""
    if state in ("starved", "idle", "idle_allocated"):
        return Number("idle", None if gpu.util_pct is None else 100.0 - gpu.util_pct)
    return Number("efficiency", clamp_pct(gpu.efficiency_pct))


def _time_row(gpu: GpuReport, whole_s: float) -> tuple[Cell, ...]:
    """One GPU's time in the unit of the whole.

    A MIG instance counts by its share of the card.
    """
    total = sum(gpu.seconds.values())
    unjudged, idle = gpu.seconds.get("unmeasured", 0.0), gpu.seconds.get("idle", 0.0)
    wasted = sum(gpu.lost.values())
    worked = max(0.0, total - unjudged - idle - wasted)
    parts: list[tuple[str, str, float]] = [("work", "worked", worked)]
    parts += [
        (lost_roles()[name], f"wasted: {titles()[name]}", seconds)
        for name, seconds in gpu.lost.items()
    ]
    parts.append(("information", STATE_WORDS["idle"], idle))
    parts.append(("unknown", STATE_WORDS["unmeasured"], unjudged))
    bar = Bar(
        tuple((role, words, 100.0 * seconds / (total or 1.0)) for role, words, seconds in parts)
    )
    owner = "" if gpu.owner is None else owner_words(gpu.owner)
    times = (
        gpu_time(gpu.card_share * seconds, whole_s) for seconds in (worked, wasted, idle, unjudged)
    )
    return (gpu.label, bar, *times, owner)
