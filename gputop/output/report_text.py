"""A job report as text for a terminal, as Markdown, or as JSON."""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import datetime, timezone
from typing import Any

from msgspec import Struct, to_builtins

from gputop.diagnosis.catalogue import lost_roles, titles
from gputop.diagnosis.summary import LEVEL_OF_ROLE, owner_words, whose_words
from gputop.diagnosis.thresholds import TOLD_SLOWER
from gputop.diagnosis.types import STATE_WORDS, Level
from gputop.model.cards import LIST_PRICE, card_words
from gputop.model.quantity import (
    HOUR_S,
    NOT_MEASURED,
    count,
    energy_words,
    gpu_hours,
    gpu_time,
    gpu_time_of,
    length,
    mfu_words,
    number,
    numbers,
    of_hundred,
    per_second,
    seconds,
    share,
    step_time,
    which_gpus,
)
from gputop.model.serving import LABELS, TIMES, bounds, rate
from gputop.model.snapshot import Event
from gputop.model.steps import SOURCE_WORDS, period_value
from gputop.output.document import (
    WIDTH,
    Block,
    Document,
    Entries,
    Figures,
    Items,
    LevelText,
    Notes,
    Paragraph,
    Table,
    Verdict,
    indented_json,
    markdown,
    part,
    plain,
)
from gputop.report.accounts import GpuReport, ServerReport
from gputop.report.job_report import FindingReport, JobReport, alike
from gputop.report.run_account import StepReport
from gputop.report.run_choice import place_words

SCHEMA = 1
LEAST_MONEY = 0.005
"""An amount that would be shown as 0.00 is left out."""
MOST_FINDINGS = 12
_MOST_RUNS = 4
_MOST_GAPS = 3
NO_TIME = "No time passed between the frames, so there is no GPU time to account for."


class PageParts(Struct, frozen=True):
    """What a page has beside the report: a longer head, the time and the charts of each GPU, and the processes."""

    lead: tuple[str, ...] = ()
    times: tuple[Block, ...] = ()
    charts: tuple[Block, ...] = ()
    processes: tuple[Block, ...] = ()
    told: frozenset[tuple[int, str]] = frozenset()
    """Findings, by GPU and id, that the charts tell."""


def report_document(report: JobReport, most_findings: int | None = None, page: PageParts | None = None) -> Document:
    """The report, with so many findings at most. What to change comes early on a page, and at the end of a text, where
    a terminal stops.
    """
    title, lead = headline(report), (f"gputop: {_head(report)}",)
    if not report.gpus:
        return Document(title, (Items(report.notes or ("no GPU was used",)),), lead)
    lost = Items(tuple(filter(None, (money_line(report),))))
    gpus, useful = gpu_table(report, whose=page is None), Items(tuple(useful_lines(report)))
    told = frozenset() if page is None else page.told
    findings = part("Other findings" if told else "Findings", *finding_blocks(report, most_findings, told))
    cards = Items(tuple(card_words(row, report.price) for row in report.smaller_cards()))
    changes = (*_what_to_change(report), *part("Another card", cards))
    notes = Notes(tuple(report_notes(report)))
    if page is None:
        return Document(title, (*_state_table(report), lost, gpus, useful, *findings, *changes, notes), lead)
    first = (*_missing(report), Figures(tuple(_figures(report))), lost, *page.times, *changes)
    inside = (*part("GPUs", gpus, useful), *page.charts, *findings, *page.processes)
    return Document(title, (*first, *inside, notes), page.lead or lead)


def _missing(report: JobReport) -> list[Block]:
    """What is missing from the recording, and so from every figure."""
    if not report.missing:
        return []
    is_damaged = any(gap.is_damage for gap in report.missing)
    problem = "Parts of this recording are damaged" if is_damaged else "This recording has gaps"
    return [Verdict("yellow", f"{problem}; what is missing is in no chart and no figure{gap_words(report)}")]


def _figures(report: JobReport) -> list[tuple[str, str | LevelText, str]]:
    """What GPUs did with their time: worked, lost by verdict, and what was not judged; together all of it."""
    lost, unjudged = report.lost_hours(), report.gpu_hours()["unmeasured"]
    parts: list[tuple[str, Level, float]] = [("worked", "green", report.judged_hours - sum(lost.values()))]
    parts += [(titles()[name], LEVEL_OF_ROLE[lost_roles()[name]], hours) for name, hours in lost.items()]
    parts.append((STATE_WORDS["unmeasured"], "grey", unjudged))
    total = report.judged_hours + unjudged
    figures: list[tuple[str, str | LevelText, str]] = [
        (words, LevelText(level, gpu_hours(HOUR_S * hours)), f"GPU-h, {share(hours / total)}")
        for words, level, hours in parts
        if hours > 0.0
    ]
    if (money_lost := report.lost_money()) is not None:
        day = "" if report.day_factor is None else f"{money(money_lost * report.day_factor, report)} a day at this rate"
        figures.append(("lost, in money", money(money_lost, report), day))
    return figures


def headline(report: JobReport) -> str:
    """How much of the GPUs' time was lost, and how much more could not be judged."""
    judged, unjudged = report.judged_hours, report.gpu_hours()["unmeasured"]
    # A watched run on a machine that could not be measured has no host.
    where = report.where if report.host else report.command or "gputop"
    if judged <= 0.0:
        return f"{where}: {report.too_short or 'no GPU time was judged'}"
    lost = gpu_time_of(HOUR_S * sum(report.lost_hours().values()), HOUR_S * judged)
    return f"{where}: {lost} lost" + (
        f", {gpu_hours(HOUR_S * unjudged)} {STATE_WORDS['unmeasured']}" if unjudged else ""
    )


def _what_to_change(report: JobReport) -> tuple[Block, ...]:
    """The fixes by their gain; where none is worth much, what helps against the finding that stood longest."""
    fixes = report.fixes()
    if not fixes:
        return part("First to change", Paragraph(report.top_remedy) if report.top_remedy else None)
    head = ("", "what is wrong", "whose", "wins at most", "money", "a day", "what helps")
    rows = tuple(
        (which_gpus(fix.gpus), fix.text, fix.whose, f"{gpu_time(fix.gain_s)}, {100 * fix.share:.0f} %",
         money(fix.money, report), money(fix.day, report), fix.remedy)
        for fix in fixes
    )  # fmt: skip
    return part("What to change, by what it would win at most", Entries(head, rows))


def money(value: float | None, report: JobReport) -> str:
    """An amount: in dollars at the prices of the list, in the reader's own currency at theirs."""
    return "" if value is None else f"{'$' if report.price == LIST_PRICE else ''}{value:.2f}"


def report_text(report: JobReport, width: int = WIDTH, *, is_ascii: bool = False) -> str:
    """The report for a terminal, lines no longer than ``width``."""
    return plain(report_document(report, MOST_FINDINGS), width, is_ascii=is_ascii)


def report_markdown(report: JobReport) -> str:
    """The report as Markdown."""
    return markdown(report_document(report))


def report_data(report: JobReport) -> dict[str, Any]:
    """The report as a JSON object, schema 1. Absent is null."""
    hours = report.gpu_hours()
    return {
        "schema": SCHEMA,
        "host": report.host,
        "simulated": report.is_simulated,
        "command": report.command,
        "exit_code": report.exit_code,
        "begin": report.begin,
        "end": report.end,
        "duration_s": report.duration_s,
        "frames": report.frames,
        "gaps": report.gaps,
        "gpu_hours": hours,
        "busy_not_working_gpu_hours": report.busy_not_working_hours(),
        "lost_gpu_hours": report.lost_hours(),
        "not_work_share": report.not_work_share(),
        "lost_share": report.lost_share(),
        "price_per_gpu_hour": None if report.price == LIST_PRICE else report.price,
        "price_from": report.price_words or None,
        "cost": report.cost(),
        "too_short": report.too_short or None,
        "fixes": to_builtins(report.fixes()),
        "smaller_cards": to_builtins(report.smaller_cards()),
        "gpus": to_builtins(report.gpus),
        "findings": to_builtins(report.findings),
        "finding_groups": [_group_data(group) for group in alike(report.findings)],
        "step_periods": [period_value(period) for period in report.periods],
        "servers": to_builtins(report.servers),
        "steps": to_builtins(report.steps),
        "top_remedy": report.top_remedy,
        "missing": [{"t": gap.t, "text": gap.text} for gap in report.missing],
        "marks": [{"t": mark.t, "text": mark.text} for mark in report.marks],
        "notes": list(report.notes),
    }


def _group_data(group: Sequence[FindingReport]) -> dict[str, Any]:
    """Findings that say the same of several GPUs, as one: which GPUs, and how long over all of them."""
    first = group[0]
    values = {key: getattr(first, key) for key in ("kind", "id", "level", "text", "evidence", "remedy")}
    return values | {
        "gpus": sorted(finding.gpu for finding in group),
        "seconds": sum(finding.seconds for finding in group),
    }


def report_json(report: JobReport) -> str:
    return indented_json(report_data(report))


def report_as(report: JobReport, path: str) -> str:
    """The report in the form that a file's name asks for: .md, .json, else text. Raises ValueError for others."""
    suffix = path.rsplit(".", 1)[-1].lower() if "." in path else ""
    if suffix == "json":
        return report_json(report)
    if suffix in ("md", "txt"):
        return report_markdown(report) if suffix == "md" else report_text(report)
    raise ValueError(f"{path}: a report ends with .md, .json or .txt")


def _head(report: JobReport) -> str:
    command = f"{report.command}: " if report.command else ""
    code = "" if report.exit_code is None else f", exit code {report.exit_code}"
    gpus = f", {count(len(report.counted), 'GPU')}" if report.gpus else ""
    host = f" on {report.where}" if report.host else ""
    return f"{command}{length(report.duration_s)}{host}{gpus}{code}"


_GPU_HEAD = ("GPU", "NAME", "UTIL", "SM", "EFF", "MEM PEAK", "POWER", "ENERGY", "RHYTHM")


def _state_table(report: JobReport) -> list[Block]:
    """GPU time by state, and what was lost of it by verdict; nothing where no time passed."""
    states = [(STATE_WORDS[state], hours) for state, hours in report.gpu_hours().items() if hours > 0.0]
    total = sum(hours for _, hours in states)
    times = [(words, gpu_hours(HOUR_S * hours), share(hours / total)) for words, hours in states]
    if not times:
        return [Paragraph(NO_TIME)]
    cost = report.lost_cost() or {}
    lost = [
        (titles()[name], gpu_hours(HOUR_S * hours), share(hours / report.judged_hours), money(cost.get(name), report))
        for name, hours in report.lost_hours().items()
    ]
    tables: list[Block] = [Table(("GPU TIME", "GPU-H", "SHARE"), tuple(times), "<>>")]
    return [*tables, Table(("LOST TO", "GPU-H", "SHARE", "COST"), tuple(lost), "<>>>")] if lost else tables


def gpu_table(report: JobReport, *, whose: bool) -> Table:
    """What each GPU did on average, and below it whose it is."""
    below = tuple("" if gpu.owner is None or not whose else owner_words(gpu.owner) for gpu in report.gpus)
    return Table(_GPU_HEAD, tuple(map(_gpu_row, report.gpus)), "<<" + ">" * 7, below)


def _gpu_row(gpu: GpuReport) -> tuple[str, ...]:
    peak = NOT_MEASURED if gpu.memory_peak_bytes is None else f"{gpu.memory_peak_bytes / 2**30:.1f} GiB"
    sign = "~" if gpu.energy_from == "power" else ""
    energy = NOT_MEASURED if gpu.energy_kwh is None else f"{sign}{energy_words(gpu.energy_kwh)}"
    return (
        gpu.label,
        gpu.name,
        number(gpu.util_pct),
        number(gpu.sm_pct),
        number(of_hundred(gpu.efficiency_pct)),
        peak,
        NOT_MEASURED if gpu.power_w is None else f"{gpu.power_w:.0f} W",
        energy,
        "" if gpu.rhythm_s is None else seconds(gpu.rhythm_s),
    )


def group_words(group: Sequence[FindingReport]) -> tuple[str, str]:
    """On which GPUs findings that are alike stood, and since when and for how long."""
    if len(group) == 1:
        return f"GPU {group[0].gpu}", group[0].when
    lost = sum(finding.gain_s for finding in group)
    return (
        f"GPUs {numbers(finding.gpu for finding in group)}",
        f"{gpu_time(sum(finding.seconds for finding in group))}" + (f", {gpu_hours(lost)} lost" if lost else ""),
    )


def money_line(report: JobReport) -> str:
    """What was lost in money, and in a day at this rate; empty without a price."""
    cost, lost = report.cost(), report.lost_money()
    if cost is None or lost is None:
        return ""
    day = "" if report.day_factor is None else f", {lost * report.day_factor:.2f} a day at this rate"
    apart = f"; not judged: {cost['unmeasured']:.2f}" if cost["unmeasured"] >= LEAST_MONEY else ""
    return f"Lost: {lost:.2f} of {sum(cost.values()):.2f}{day}{apart}; {report.price_words}"


def nothing_found(report: JobReport) -> str:
    """What is said where there is no finding: that nothing was wrong, unless nothing was judged."""
    if report.too_short:
        return f"{report.too_short}."
    return "nothing wrong was seen." if report.judged_hours > 0.0 else "nothing was judged."


def finding_blocks(report: JobReport, limit: int | None, elsewhere: Container[tuple[int, str]] = ()) -> list[Block]:
    """The findings, so many at most, or that there is none; with the remedies that are not among what to change.

    Findings told ``elsewhere``, by GPU and id, are left out.
    """
    groups = alike(finding for finding in report.findings if (finding.gpu, finding.id) not in elsewhere)
    rows: list[Block] = []
    told = report.remedies
    for group in groups[:limit]:
        (where, when), first = group_words(group), group[0]
        evidence = tuple(filter(None, (first.evidence,)))
        whose = whose_words(finding.owner for finding in group)
        headline = f"{where}: {first.text}" + (f" · {whose}" if whose else "")
        remedy = "" if first.remedy in told else first.remedy
        rows.append(Verdict(LEVEL_OF_ROLE[first.role], headline, when, evidence, remedy))
    unlisted = len(groups) - len(rows)
    rows += [Paragraph(f"and {unlisted} more")] if unlisted else []
    return rows if rows or report.findings else [Items((nothing_found(report),))]


def step_lines(report: JobReport) -> list[str]:
    """The steps that the job announced, one line per run; below it which rank is slow."""
    where = ("" if len(report.steps) == 1 else f"; {place_words(run)}" for run in report.steps[:_MOST_RUNS])
    lines = [line for run in report.steps[:_MOST_RUNS] for line in (_step_line(run) + next(where), *_slow_lines(run))]
    more = len(report.steps) - _MOST_RUNS
    return [*lines, f"and {count(more, 'more run')}"] if more > 0 else lines


def _step_line(run: StepReport) -> str:
    parts = [
        f"{run.steps} of {step_time(run.mean_s)}",
        f"{per_second(run.steps_per_s)} steps/s",
        "" if run.samples_per_s is None else f"{per_second(run.samples_per_s)} samples/s",
        "" if run.tokens_per_s is None else f"{per_second(run.tokens_per_s)} tokens/s",
        "" if run.mfu_pct is None else mfu_words(run.mfu_pct),
        "" if run.ranks == 1 else f"{run.ranks} ranks",
    ]
    warm = f"; {count(run.warm_up_steps, 'step')} of warm-up left out" if run.warm_up_steps else ""
    return f"Steps{f' ({run.label})' if run.label else ''}: {', '.join(filter(None, parts))}{warm}"


def _slow_lines(run: StepReport) -> list[str]:
    """The slowest rank, and which rank the others wait for, where they say how long they wait: their steps all take the
    same."""
    lines = []
    if run.slowest_rank is not None and run.slowest_mean_s > TOLD_SLOWER * run.mean_s:
        lines.append(f"  rank {run.slowest_rank} the slowest with {step_time(run.slowest_mean_s)}")
    if run.slow_own_s is None or run.wait_s is None or run.slow_rank == run.waiting_rank:
        return lines
    if run.slow_own_s > TOLD_SLOWER * (run.mean_s - run.wait_s):
        waits = f"rank {run.waiting_rank} waits {step_time(run.wait_s)} of its {step_time(run.mean_s)} for others"
        lines.append(f"  rank {run.slow_rank} is slow, with {step_time(run.slow_own_s)} of its own a step: {waits}")
    return lines


def useful_lines(report: JobReport) -> list[str]:
    """The work that was done: the steps of jobs, what servers served.

    Steps that no job announced are those that the GPUs' rhythm showed last; where jobs announce steps, those count.
    """
    periods = () if report.steps else report.periods[:_MOST_RUNS]
    seen = [
        f"Step on {which_gpus(period.gpus)}: about {period.period_s:.1f} s (from {SOURCE_WORDS[period.source]})"
        + ("" if period.grown_t is None else f", {period.first_s:.1f} s at first")
        for period in periods
    ]
    return [*step_lines(report), *seen, *map(_served_line, report.servers)]


def _served_line(report: ServerReport) -> str:
    """What a server served over a recording, in one line."""
    kind = f"{LABELS[report.kind]} " if report.kind is not None else ""
    lead = f"Server {kind}{report.place}"
    if report.seconds <= 0.0:
        return f"{lead}: {report.error}"
    parts = [rate(report.requests_per_s, "requests/s"), rate(report.tokens_per_s, "tokens/s")]
    if report.queue is not None and report.queue_max is not None:
        parts.append(f"queue {report.queue:.1f}, at most {report.queue_max:.0f}")
    if report.kv_cache_pct is not None and report.kv_cache_max_pct is not None:
        parts.append(f"KV cache {report.kv_cache_pct:.0f} %, at most {report.kv_cache_max_pct:.0f} %")
    if report.prefix_hit_pct is not None:
        parts.append(f"prefix hits {report.prefix_hit_pct:.0f} %")
    parts.append(rate(report.preemptions_per_s, "preemptions/s"))
    for key, words in TIMES.items():
        usual, late = getattr(report, f"{key}_p50_s"), getattr(report, f"{key}_p99_s")
        if usual is not None or late is not None:
            parts.append(f"{words} p50 mostly {bounds(usual)}, p99 at worst {bounds(late)}")
    silent = f"; silent for {length(report.silent_s)}: {report.error}" if report.silent_s > 0.0 else ""
    return f"{lead}: {', '.join(filter(None, parts)) or NOT_MEASURED}{silent}"


def gap_words(report: JobReport) -> str:
    """When the first gaps were, and why; empty where that is not known."""
    gaps = [f"{_clock(gap)} {gap.text}" for gap in report.missing[:_MOST_GAPS]]
    more = ["…"] if len(report.missing) > _MOST_GAPS else []
    return f": {'; '.join([*gaps, *more])}" if gaps else ""


def _clock(event: Event) -> str:
    return f"{datetime.fromtimestamp(event.t, timezone.utc):%H:%M:%S} UTC"


def report_notes(report: JobReport) -> list[str]:
    """What a reader must know beside the numbers, one line each."""
    notes = list(report.notes)
    if any(gpu.energy_from == "power" for gpu in report.gpus):
        notes.append("~ energy is the integral of power: no energy counter was recorded")
    if any(gpu.sm_pct is None for gpu in report.counted):
        notes.append("SM n/a: not measured on that GPU, so busy-not-working cannot be seen there")
    if report.gaps:
        notes.append(f"{count(report.gaps, 'gap')} in the recording{gap_words(report)}")
    return [*notes, *(f"mark at {_clock(mark)}: {mark.text}" for mark in report.marks)]
