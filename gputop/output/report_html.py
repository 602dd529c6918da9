"""A recording's report as a page: the GPU time by state, each GPU's chart with its verdicts, the findings."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import zip_longest

from gputop import __version__
from gputop.diagnosis.types import NOT_WORK, NOT_WORKING, STATE_WORDS, STATES, State
from gputop.model.cards import LIST_PRICE, card_words
from gputop.model.quantity import (
    GIB,
    HOUR_S,
    count,
    gpu_time,
    gpu_time_of,
    gpu_time_unit,
    length,
    number,
    numbers,
    of_hundred,
)
from gputop.model.sm import SM_SOURCES
from gputop.output.comparison import Difference, change, compare, different_gpus, first_line, sentence
from gputop.output.document import Items, Notes, html_parts
from gputop.output.html import (
    AMBER,
    GREEN,
    GREY,
    RED,
    Markup,
    chart,
    clock,
    document,
    element,
    join,
    lane,
    notes,
    prose,
    table,
    tiles,
)
from gputop.output.report_text import (
    finding_blocks,
    gap_words,
    gpu_table,
    money_line,
    nothing_found,
    report_notes,
    useful_lines,
)
from gputop.report.gpu_account import GpuReport
from gputop.report.job_report import FindingReport, JobReport, alike
from gputop.report.lanes import Pictured

STATE_COLOURS: dict[State, str] = {
    "working": GREEN, "busy_not_working": RED, "starved": "#e0883a", "idle_allocated": "#9a8f6a", "idle": GREY,
    "unmeasured": "var(--track)",
}  # fmt: skip
LEVEL_OF: dict[State, str] = {
    "working": "green", "busy_not_working": "red", "starved": "yellow", "idle_allocated": "grey", "idle": "grey",
    "unmeasured": "grey",
}  # fmt: skip
TILE_LEVELS: dict[State, str] = {"working": "green", "busy_not_working": "red", "starved": "yellow"}
REPORT_HTML_MOST_FINDINGS = 60
MOST_JOBS = 8
FEW_HOURS = 10.0
"""Below it hours have two decimals."""


def report_html(found: Pictured) -> str:
    """The whole page: self-contained, without a script, light and dark, and it prints."""
    report = found.report
    title = headline(report)
    body = [
        element("h1", title),
        element("p", what_it_is(found), class_="dim"),
        *_whose(found),
        *_missing(report),
        tiles(_tiles(report)),
        *([element("p", money_line(report), class_="dim")] if money_line(report) else []),
        element("h2", "Where the time went"),
        table(
            ("", "", "work", "not work", STATE_WORDS["unmeasured"]), [_time_row(gpu) for gpu in report.counted], "kwnnn"
        ),
        *_fixes(report),
        *(element("p", line) for line in useful_lines(report)),
        element("h2", "GPUs"),
        key(found.column_s),
        *(gpu_section(found, gpu) for gpu in report.counted),
        *_findings(report),
        *_processes(found),
        notes(report_notes(report)),
    ]
    footer = (
        f"Not work = busy but not working + starved + idle. Time that was not measured or judged counts as neither. "
        f"{count(report.frames, 'frame')}, {count(report.gaps, 'gap')} in the recording. One column of a chart stands "
        f"for {length(found.column_s)}. gputop {__version__}"
    )
    return document(f"gputop: {title}", *body, footer=footer)


def headline(report: JobReport) -> str:
    """How much of the GPUs' time was not work."""
    hours = report.gpu_hours()
    judged = sum(value for state, value in hours.items() if state != "unmeasured")
    lost = sum(hours[state] for state in NOT_WORK)
    if judged <= 0.0:
        return f"{report.where}: {report.too_short or 'no GPU time was judged'}"
    return f"{report.where}: {gpu_time_of(HOUR_S * lost, HOUR_S * judged)} were not work"


def what_it_is(found: Pictured) -> str:
    """GPUs, driver, where SM is from, and when."""
    report = found.report
    kinds = dict.fromkeys(gpu.name for gpu in report.gpus)
    parts = [f"{sum(gpu.name == kind for gpu in report.gpus)} × {kind}" for kind in kinds]
    parts += [f"driver {found.driver}"] if found.driver else []
    sources = " + ".join(SM_SOURCES[source].label for source in found.sm_sources if source in SM_SOURCES)
    parts.append(f"SM measured by {sources}" if sources else "SM not measured")
    begin, end = (datetime.fromtimestamp(t, timezone.utc) for t in (report.begin, report.end))
    parts.append(f"{begin:%Y-%m-%d %H:%M} to {end:%H:%M} UTC ({length(report.duration_s)})")
    return " · ".join(parts)


def _whose(found: Pictured) -> list[Markup]:
    """Whose jobs held the GPUs: each job once, with its user; without a scheduler only the users."""
    jobs = dict.fromkeys((p.job, p.user) for p in found.processes if p.job or p.user)
    words = [f"{job} ({user})" if job and user else job or f"user {user}" for job, user in jobs]
    more = f" and {len(words) - MOST_JOBS} more" if len(words) > MOST_JOBS else ""
    return [element("p", f"jobs: {', '.join(map(str, words[:MOST_JOBS]))}{more}", class_="dim")] if words else []


def _missing(report: JobReport) -> list[Markup]:
    """What is missing from the recording, and so from every figure."""
    if not report.missing:
        return []
    is_damaged = any(gap.is_damage for gap in report.missing)
    said = "Parts of this recording are damaged" if is_damaged else "This recording has gaps"
    words = f"{said}; what is missing is in no chart and no figure{gap_words(report)}"
    return [element("p", words, class_="level yellow")]


def _tiles(report: JobReport) -> list[tuple[str, str, str, str]]:
    """The GPU time by state, and what was lost in money."""
    hours = report.gpu_hours()
    total = sum(hours.values())
    found = [
        (TILE_LEVELS.get(state, ""), _hours(hours[state], total), STATE_WORDS[state], "")
        for state in STATES
        if hours[state] > 0.0
    ]
    lost = report.lost_money()
    if lost is not None:
        day = "" if report.day_factor is None else f"; {_money(lost * report.day_factor, report)} a day at this rate"
        found.append(("", _money(lost, report), f"not work, in money{day}", ""))
    return found


def _fixes(report: JobReport) -> list[Markup]:
    """What to change, the greatest gain first, and the cards that would have held the jobs."""
    judged = HOUR_S * sum(hours for state, hours in report.gpu_hours().items() if state != "unmeasured")
    fixes = report.fixes()
    cards = [card_words(row, report.price) for row in report.smaller_cards()]
    parts: list[Markup] = []
    if fixes:
        priced = any(fix.money is not None for fix in fixes)
        rows = [
            (
                numbers(fix.gpus), fix.text, gpu_time(fix.gain_s, judged), f"{100 * fix.share:.0f} %",
                *((_money(fix.money, report), _money(fix.day, report)) if priced else ()), prose(fix.remedy),
            )
            for fix in fixes
        ]  # fmt: skip
        money = ("money", "a day") if priced else ()
        head = ("GPU", "what is wrong", "wins at most", "of all", *money, "what helps")
        parts += [
            element("h2", "What to change, the most first"),
            table(head, rows, "ktnn" + "n" * len(money) + "t", stacks=True),
        ]
    if cards:
        parts += [element("h2", "Another card"), *(element("p", line) for line in cards)]
    return parts


def _money(value: float | None, report: JobReport) -> str:
    """An amount: in dollars at the prices of the list, in the reader's own currency at theirs."""
    return "" if value is None else f"{'$' if report.price == LIST_PRICE else ''}{value:.2f}"


def key(column_s: float) -> Markup:
    """The legend of the charts' colours."""
    rows = (
        (GREEN, "SM activity"),
        (AMBER, "a kernel runs, this part of the chip does not"),
        (RED, f"the same while {NOT_WORKING}"),
        (GREY, "SM not measured"),
    )
    entries = [element("li", element("i", style=f"background:{colour}"), words) for colour, words in rows]
    column = element("li", f"one column: {length(column_s)}; the lane below: verdict")
    return element("ul", *entries, column, class_="legend")


def gpu_section(found: Pictured, gpu: GpuReport) -> Markup:
    """One GPU: its verdict with its number, the chart, the lane, evidence and remedy."""
    state = max(STATES, key=lambda name: gpu.seconds.get(name, 0.0))
    finding = _main_finding(found.report.findings, gpu)
    title = finding.text if finding is not None else STATE_WORDS[state]
    level = finding.level if finding is not None else LEVEL_OF[state]
    red = title.startswith(NOT_WORKING)
    head = element(
        "header",
        element("b", f"GPU {gpu.label}"),
        element("span", title, class_=None if red else f"level {level}"),
        element("span", _figure(gpu, state)),
        class_="alarm" if red else None,
    )
    columns = found.lanes.get(gpu.uuid, ())
    util, sm = of_hundred(gpu.util_pct), of_hundred(gpu.sm_pct)
    gap = None if util is None or sm is None else max(0.0, util - sm)
    figures = f"UTIL {number(util)} · SM {number(sm)} · GAP {number(gap)}"
    said = []
    if finding is not None:
        said.append(element("p", f"↳ {finding.evidence} · {length(finding.seconds)} of {length(gpu.measured_s)}"))
        if finding.remedy:
            said.append(element("p", "→ ", prose(finding.remedy), style="color:var(--green)"))
    figure_rows = (("UTIL", util, ""), ("SM", sm, "" if red else "green"), ("GAP", gap, "red" if red else ""))
    listed = [
        part
        for name, value, colour in figure_rows
        for part in (
            element("dt", name),
            element("dd", number(value), style=f"color:var(--{colour})" if colour and value is not None else None),
        )
    ]
    drawn = element(
        "div",
        chart(columns, f"GPU {gpu.index}: {figures}"),
        lane(columns),
        clock(found.report.begin, found.report.end),
        style="min-width:0",
    )
    inside = element("div", element("dl", *listed), drawn, class_="chart")
    below = element("div", *said, class_="said") if said else ""
    return element("section", head, inside, below, class_="gpu")


def _main_finding(findings: Sequence[FindingReport], gpu: GpuReport) -> FindingReport | None:
    """The verdict that stood for most of the GPU's time, where one did."""
    own = [f for f in findings if f.gpu == gpu.index and f.kind == "verdict" and 2 * f.seconds > gpu.measured_s]
    return max(own, key=lambda f: f.seconds, default=None)


def _figure(gpu: GpuReport, state: State) -> str:
    """The number of the verdict, as on the screen."""
    if state in ("starved", "idle", "idle_allocated"):
        return "" if gpu.util_pct is None else f"idle {100 - gpu.util_pct:.0f} %"
    return "efficiency n/a" if gpu.efficiency_pct is None else f"efficiency {of_hundred(gpu.efficiency_pct):.0f} %"


def _time_row(gpu: GpuReport) -> tuple[object, ...]:
    total = sum(gpu.seconds.values()) or 1.0
    parts = [
        element("span", style=f"width:{100 * gpu.seconds.get(s, 0.0) / total:.2f}%;background:{STATE_COLOURS[s]}",
                title=f"{STATE_WORDS[s]} {_hours(gpu.seconds.get(s, 0.0) / HOUR_S, total / HOUR_S)}")
        for s in STATES
    ]  # fmt: skip
    work, lost = gpu.seconds.get("working", 0.0), sum(gpu.seconds.get(s, 0.0) for s in NOT_WORK)
    bar = element("div", *parts, class_="bar thin")
    hours = (_hours(seconds / HOUR_S, total / HOUR_S) for seconds in (work, lost, gpu.seconds.get("unmeasured", 0.0)))
    return (f"GPU {gpu.label}", bar, *hours)


def _findings(report: JobReport) -> list[Markup]:
    if not report.findings:
        return [element("h2", "Findings"), element("p", nothing_found(report))]
    rows = []
    groups = alike(report.findings)
    for group in groups[:REPORT_HTML_MOST_FINDINGS]:
        f, spells = group[0], sum(one.spells for one in group)
        times = f"{spells} ×, " if spells > 1 else ""
        since = datetime.fromtimestamp(min(one.first_t for one in group), timezone.utc).strftime("%H:%M")
        name = element("span", f.text, class_=f"level {f.level}")
        gpus, seconds = numbers(one.gpu for one in group), sum(one.seconds for one in group)
        rows.append((since, gpus, name, f.evidence, prose(f.remedy), f"{times}{length(seconds)}"))
    more = len(groups) - REPORT_HTML_MOST_FINDINGS
    tail = [element("p", f"and {more} more: gputop report names them all", class_="dim")] if more > 0 else []
    head = ("since", "GPU", "verdict", "evidence", "what helps", "for")
    return [element("h2", "Findings"), table(head, rows, "nntttn", stacks=True), *tail]


def _processes(found: Pictured) -> list[Markup]:
    if not found.processes:
        return []
    rows = [
        (
            "n/a" if p.gpu is None else f"{p.gpu}",
            f"{p.pid}",
            p.user or "n/a",
            "n/a" if p.memory_bytes is None else f"{p.memory_bytes / GIB:.1f} GiB",
            length(p.seconds),
            element("code", p.command[:400]),
        )
        for p in found.processes
    ]
    head = ("GPU", "PID", "user", "most memory", "seen for", "command")
    more = [element("p", f"and {found.more_processes} more", class_="dim")] if found.more_processes else []
    return [element("h2", "Processes"), join((table(head, rows, "nntnnt"),)), *more]


def _hours(hours: float, of: float) -> str:
    """A part of so many hours, in the unit that fits the whole: parts that are compared have one unit."""
    size_s, _ = gpu_time_unit(HOUR_S * of)
    unit = "h" if size_s == HOUR_S else "min" if size_s > 1.0 else "s"
    decimals = 2 if unit == "h" and of < FEW_HOURS else 0 if unit == "s" else 1
    return f"{HOUR_S / size_s * hours:.{decimals}f} {unit}"


# A watched run as a page: the GPU time by state, what was wrong, the steps, the memory.

SUMMARY_HTML_MOST_FINDINGS = 12


def summary_html(report: JobReport, memory: Sequence[str], remarks: Sequence[str], reason: str | None) -> str:
    """The whole page. ``reason`` says why nothing was measured, where nothing was."""
    if not report.gpus:
        return document(
            "gputop", element("h1", reason or "no GPU was watched"), notes([*useful_lines(report), *remarks])
        )
    title = report.command or report.host
    share = report.not_work_share()
    said = "no GPU time was judged" if share is None else f"{100.0 * share:.0f} % of the GPU time was not work"
    hours = report.gpu_hours()
    total = sum(hours.values()) or 1.0
    shares = [
        (
            TILE_LEVELS.get(s, ""),
            f"{100.0 * hours[s] / total:.0f} %",
            f"{STATE_WORDS[s]}, {length(3600.0 * hours[s])}",
            "",
        )
        for s in STATES
        if hours[s]
    ]
    blocks = (
        *finding_blocks(report, SUMMARY_HTML_MOST_FINDINGS),
        gpu_table(report),
        Items((*useful_lines(report), *memory)),
        Notes((*report_notes(report), *remarks)),
    )
    body = [element("h1", f"{title}: {said}"), tiles(shares), *html_parts(blocks)]
    return document(f"gputop: {title}", *body, footer=f"gputop {__version__}")


# Two recordings as a page: one sentence on the result and how certain it is, then both side by side.

LEVELS = {"better": "green", "worse": "red"}


def compare_html(before: Pictured, after: Pictured) -> str:
    """The whole page. GPUs stand beside those of the same place in the other recording."""
    comparison = compare(before.report, after.report)
    said = first_line(comparison)
    good, bad = ("Better", "faster"), ("Worse", "slower")
    level = "green" if said.startswith(good) else "red" if said.startswith(bad) else "grey"
    gpus = different_gpus(comparison)
    known = [d for d in comparison.differences if not (d.before or 0.0) == (d.after or 0.0) == 0.0]
    pairs: list[Markup] = []
    for was, now in zip_longest(before.report.gpus, after.report.gpus):
        halves = (
            element("div", gpu_section(found, gpu) if gpu is not None else "", style="flex:1 1 20rem;min-width:0")
            for found, gpu in ((before, was), (after, now))
        )
        pairs.append(element("div", *halves, style="display:flex;flex-wrap:wrap;gap:1rem"))
    body = [
        element("h1", said),
        *([element("p", gpus, class_="level yellow")] if gpus else []),
        element("p", f"{sentence(change(before, after))}.", class_=f"level {level}"),
        element("p", f"before: {headline(before.report)} · {what_it_is(before)}", class_="dim"),
        element("p", f"after: {headline(after.report)} · {what_it_is(after)}", class_="dim"),
        key(max(before.column_s, after.column_s)),
        element("h2", "Before, and after"),
        *pairs,
        element("h2", "By measure"),
        table(("", "before", "after", "change", ""), [_row(d) for d in known], "tnnnt"),
        *(element("p", f"gone: {text}") for text in comparison.gone),
        *(element("p", f"new: {text}") for text in comparison.new),
    ]
    footer = f"Means over GPUs and time. gputop {__version__}"
    return document(f"gputop compare: {said}", *body, footer=footer)


def _row(d: Difference) -> tuple[object, ...]:
    was, now = (of_hundred(value) if d.unit == "%" else value for value in (d.before, d.after))
    moved = "" if was is None or now is None else f"{now - was:+.1f}"
    word = element("span", d.direction, class_=f"level {LEVELS[d.direction]}") if d.direction in LEVELS else ""
    label = f"{d.label}, {d.unit}" if d.unit else d.label
    return (label, *("n/a" if value is None else f"{value:.1f}" for value in (was, now)), moved, word)
