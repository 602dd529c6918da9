"""A job report as a document for every form."""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import datetime, timezone

from msgspec import Struct

from gputop.diagnosis.thresholds import LEAST_GAIN, TOLD_SLOWER
from gputop.diagnosis.types import STATE_WORDS
from gputop.diagnosis.verdict.gpu_owners import owner_words, whose_words
from gputop.model.durations import energy_words, gpu_time, length, per_second, step_time
from gputop.model.quantity import (
    NOT_MEASURED,
    clamp_pct,
    count,
    gib,
    known,
    mfu_words,
    number,
    numbers,
    share,
    which_gpus,
)
from gputop.model.server_words import bounds, rate
from gputop.model.serving import LABELS, TIMES
from gputop.model.smaller_cards import card_words
from gputop.model.snapshot import Event
from gputop.model.step_pace import SOURCE_WORDS
from gputop.output.document import (
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
    part,
)
from gputop.report.findings import FindingReport, alike
from gputop.report.gpu_account import GpuReport
from gputop.report.job_report import Fix, JobReport
from gputop.report.process_account import ProcessReport
from gputop.report.run_account import StepReport
from gputop.report.run_choice import place_words
from gputop.report.server_account import ServerReport
from gputop.report.time_account import TimeRow

SCHEMA = 1
LEAST_MONEY = 0.005
"""An amount that would be shown as 0.00 is left out."""
MOST_FINDINGS = 12
MOST_PROCESSES_OF_TEXT, MOST_PROCESSES_OF_PAGE = 12, 60
_MOST_RUNS = 4
_MOST_GAPS = 3
NO_TIME = "No time passed between the frames, so there is no GPU time to account for."


class PageParts(Struct, frozen=True):
    """Parts of the report that only a page has.

    ``told`` are the findings, by GPU and id, that the charts show.
    """

    lead: tuple[str, ...] = ()
    times: tuple[Block, ...] = ()
    charts: tuple[Block, ...] = ()
    charted: frozenset[tuple[int, str]] = frozenset()
    """Findings, by GPU and id, that the charts tell."""


def report_document(
    report: JobReport, most_findings: int | None = None, page: PageParts | None = None
) -> Document:
    """The report with at most ``most_findings`` findings.

    Changes come early on a page, and at the end of a text, where a terminal stops.
    """
    title, lead = headline(report), (f"gputop: {_head(report)}",)
    if not report.gpus:
        return Document(title, (Items(report.notes or ("no GPU was used",)),), lead)
    time = time_figures(report) if report.time.all_s > 0.0 else Paragraph(NO_TIME)
    lost = Items(tuple(filter(None, (money_line(report), longest_line(report)))))
    gpus = gpu_table(report, whose=page is None)
    useful = Items((*growth_lines(report), *useful_lines(report)))
    told = frozenset() if page is None else page.charted
    findings = part(
        "Other findings" if told else "Findings", *finding_blocks(report, most_findings, told)
    )
    cards = Items(tuple(card_words(row) for row in report.smaller_cards()))
    changes = (*_what_to_change(report), *part("Another card", cards))
    notes = Notes(tuple(report_notes(report)))
    most_processes = MOST_PROCESSES_OF_TEXT if page is None else MOST_PROCESSES_OF_PAGE
    processes = _processes(report, most_processes)
    if page is None:
        blocks = (time, lost, gpus, useful, *processes, *findings, *changes, notes)
        return Document(title, blocks, lead)
    first = (*_missing(report), time, lost, *page.times, *changes)
    inside = (*part("GPUs", gpus, useful), *page.charts, *findings)
    return Document(title, (*first, *inside, *processes, notes), page.lead or lead)


def _missing(report: JobReport) -> list[Block]:
    """A warning about gaps, which no figure contains."""
    if not report.missing:
        return []
    is_damaged = any(gap.is_damage for gap in report.missing)
    problem = "Parts of this recording are damaged" if is_damaged else "This recording has gaps"
    return [
        Verdict(
            "yellow", f"{problem}; what is missing is in no chart and no figure{gap_words(report)}"
        )
    ]


def time_figures(report: JobReport) -> Figures:
    """Parts of the GPU time, adding up to the recording."""
    time = report.time
    rows: list[tuple[str, str | LevelText, str]] = [
        (row.words, LevelText(row.level, gpu_time(row.gpu_s, time.all_s)), _shares(row))
        for row in time.rows()
    ]
    whole = f"{length(report.duration_s)} on {count(len(report.counted), 'GPU')}"
    if any(gpu.card_share < 1.0 for gpu in report.counted):
        whole += ", MIG instances by their share of the card"
    return Figures((*rows, ("all", gpu_time(time.all_s), whole))) if rows else Figures(())


def _shares(row: TimeRow) -> str:
    judged = "" if row.of_judged is None else f"{share(row.of_judged)} of judged time"
    cost = "" if row.cost is None else f"cost {money(row.cost)}"
    return ", ".join(filter(None, (f"{share(row.of_all)} of all", judged, cost)))


def headline(report: JobReport) -> str:
    """Wasted share of the judged time, and time idle and not judged."""
    time = report.time
    # A watched run on a machine that could not be measured has no host.
    where = report.where if report.host else report.command or "gputop"
    if time.lost_share is None:
        return f"{where}: {report.too_short or 'no GPU time was judged'}"
    wasted, judged, idle, unjudged = (
        gpu_time(gpu_s, time.all_s)
        for gpu_s in (time.lost_s, time.judged_s, time.idle_s, time.unjudged_s)
    )
    head = (
        f"{where}: {wasted.rpartition(' ')[0]} of {judged} wasted "
        f"({share(time.lost_share)} of judged time)"
    )
    if time.idle_s:
        head += f", {idle} idle"
    return f"{head}, {unjudged} {STATE_WORDS['unmeasured']}" if time.unjudged_s else head


def money(value: float | None) -> str:
    """An amount in the user's currency; empty without a price."""
    return "" if value is None else f"{value:.2f}"


def money_line(report: JobReport) -> str:
    """Cost of the wasted time; empty without a price."""
    time = report.time
    if report.price is None or time.all_s <= 0.0:
        return ""
    wasted, whole, apart = map(time.cost, (time.lost_s, time.all_s, time.unjudged_s))
    day = (
        ""
        if report.day_factor is None
        else f", {money((wasted or 0.0) * report.day_factor)} a day at this rate"
    )
    unjudged = f"; not judged: {money(apart)}" if (apart or 0.0) >= LEAST_MONEY else ""
    return (
        f"Cost of wasted time: {money(wasted)} of {money(whole)}{day}{unjudged}; at {report.price:g} a "
        "GPU-hour"
    )


def longest_line(report: JobReport) -> str:
    """The longest steady waste with its time; empty without waste."""
    finding = report.longest_waste
    if finding is None:
        return ""
    begin = datetime.fromtimestamp(finding.longest_t, timezone.utc)
    end = datetime.fromtimestamp(report.end, timezone.utc)
    form = "%H:%M:%S" if begin.date() == end.date() else "%Y-%m-%d %H:%M:%S"
    return (
        f"Longest steady waste: GPU {finding.gpu}, {finding.text}, {length(finding.longest_s)} "
        f"from {begin:{form}} UTC"
    )


_PROCESS_HEAD = ("GPU", "PID", "USER", "MEM PEAK", "TIME", "COMMAND")


def _processes(report: JobReport, most: int) -> tuple[Block, ...]:
    """GPU processes, those with the most memory first."""
    rows = tuple(_process_row(process) for process in report.processes[:most])
    if not rows:
        return ()
    unlisted = len(report.processes) - len(rows) + report.more_processes
    more = Items((f"and {unlisted} more",) if unlisted else ())
    return part("Processes", Table(_PROCESS_HEAD, rows, ">><>>~"), more)


def _process_row(process: ProcessReport) -> tuple[str, ...]:
    peak = process.memory_peak_bytes
    return (
        NOT_MEASURED if process.gpu is None else str(process.gpu),
        str(process.pid),
        process.user or NOT_MEASURED,
        NOT_MEASURED if peak is None else f"{gib(peak)} GiB",
        length(process.seconds),
        process.command or NOT_MEASURED,
    )


def _what_to_change(report: JobReport) -> tuple[Block, ...]:
    """The fixes by their gain."""
    head = ("", "what is wrong", "whose", "wins at most", "money", "a day", "what helps")
    rows = tuple(
        (
            which_gpus(fix.gpus),
            fix.text,
            fix.whose,
            _gain(fix, report.time.all_s),
            money(fix.money),
            money(fix.day),
            fix.remedy,
        )
        for fix in report.fixes()
    )
    return part("What to change, by what it would win at most", Entries(head, rows))


def _gain(fix: Fix, whole_s: float) -> str:
    """Gain of a fix: ``423 GPU-s, 62 % of judged time, up to 2.6 × faster``."""
    bounds = (
        gpu_time(fix.gain_s, whole_s),
        f"{share(fix.share)} of judged time",
        fix.worth.words(),
    )
    return ", ".join(filter(None, bounds))


def _head(report: JobReport) -> str:
    """The command, and the recording's length, host and GPUs."""
    code = "" if report.exit_code is None else f", exit code {report.exit_code}"
    ran = f"ran {length(report.run_s)}{code}" if report.run_s is not None else code.lstrip(", ")
    command = f"{report.command}: {f'{ran}; ' if report.gpus else ran}" if report.command else ""
    if not report.gpus:
        return command or length(report.duration_s)
    return (
        f"{command}{length(report.duration_s)} on {report.where}, "
        f"{count(len(report.counted), 'GPU')}"
    )


_GPU_HEAD = ("GPU", "NAME", "UTIL", "SM", "EFF", "MEM PEAK", "POWER", "ENERGY")


def gpu_table(report: JobReport, *, whose: bool) -> Table:
    """Means of each GPU, with its owner below."""
    below = tuple(
        "" if gpu.owner is None or not whose else owner_words(gpu.owner) for gpu in report.gpus
    )
    largest_kwh = max(known(gpu.energy_kwh for gpu in report.gpus), default=0.0)
    rows = tuple(_gpu_row(gpu, largest_kwh) for gpu in report.gpus)
    return Table(_GPU_HEAD, rows, "<<" + ">" * 6, below)


def _gpu_row(gpu: GpuReport, largest_kwh: float) -> tuple[str, ...]:
    peak = NOT_MEASURED if gpu.memory_peak_bytes is None else f"{gib(gpu.memory_peak_bytes)} GiB"
    sign = "~" if gpu.energy_from == "power" else ""
    energy = (
        NOT_MEASURED
        if gpu.energy_kwh is None
        else f"{sign}{energy_words(gpu.energy_kwh, largest_kwh)}"
    )
    return (
        gpu.label,
        gpu.name,
        number(gpu.util_pct),
        number(gpu.sm_pct),
        number(clamp_pct(gpu.efficiency_pct)),
        peak,
        NOT_MEASURED if gpu.power_w is None else f"{gpu.power_w:.0f} W",
        energy,
    )


def growth_lines(report: JobReport) -> list[str]:
    """A line for each GPU whose memory grew until the end."""
    lines = []
    for gpu in report.gpus:
        growth = gpu.memory_growth
        if growth is None:
            continue
        line = f"GPU {gpu.label}: the memory of {growth.name} (pid {growth.pid}) grows by {growth.rate_words}"
        lines.append(line)
    return lines


def group_words(group: Sequence[FindingReport]) -> tuple[str, str]:
    """GPUs and duration of findings that are alike."""
    if len(group) == 1:
        return f"GPU {group[0].gpu}", group[0].when
    wasted = sum(finding.gain_s for finding in group)
    return (
        f"GPUs {numbers(finding.gpu for finding in group)}",
        gpu_time(seconds_s := sum(finding.seconds for finding in group))
        + (f", {gpu_time(wasted, seconds_s)} wasted" if wasted else ""),
    )


def nothing_found(report: JobReport) -> str:
    """The text in place of findings."""
    if report.too_short:
        return f"{report.too_short}."
    if (report.time.lost_share or 0.0) >= LEAST_GAIN:
        return (
            f"nothing to change was found for the {share(report.time.lost_share)} of judged time "
            "that was wasted."
        )
    return "nothing wrong was seen." if report.time.judged_s > 0.0 else "nothing was judged."


def finding_blocks(
    report: JobReport, limit: int | None, elsewhere: Container[tuple[int, str]] = ()
) -> list[Block]:
    """Findings, with remedies that no fix repeats.

    At most ``limit`` of them. Findings in ``elsewhere``, by GPU and id, are left out.
    """
    groups = alike(
        finding for finding in report.findings if (finding.gpu, finding.id) not in elsewhere
    )
    rows: list[Block] = []
    told = report.remedies
    for group in groups[:limit]:
        (where, when), first = group_words(group), group[0]
        evidence = tuple(filter(None, (first.evidence,)))
        whose = whose_words(finding.owner for finding in group)
        headline = f"{where}: {first.text}" + (f" · {whose}" if whose else "")
        remedy = "" if first.remedy in told else first.remedy
        rows.append(Verdict(first.level, headline, when, evidence, remedy))
    unlisted = len(groups) - len(rows)
    rows += [Paragraph(f"and {unlisted} more")] if unlisted else []
    return rows if rows or report.findings else [Items((nothing_found(report),))]


def step_lines(report: JobReport) -> list[str]:
    """Announced steps, a line for each run and for slow ranks."""
    where = (
        "" if len(report.steps) == 1 else f"; {place_words(run)}"
        for run in report.steps[:_MOST_RUNS]
    )
    lines = [
        line
        for run in report.steps[:_MOST_RUNS]
        for line in (_step_line(run) + next(where), *_slow_lines(run))
    ]
    more = len(report.steps) - _MOST_RUNS
    return [*lines, f"and {count(more, 'more run')}"] if more > 0 else lines


def _step_line(run: StepReport) -> str:
    parts = [
        f"{run.steps}, {step_time(run.mean_s)} each",
        f"{per_second(run.steps_per_s)} steps/s",
        "" if run.samples_per_s is None else f"{per_second(run.samples_per_s)} samples/s",
        "" if run.tokens_per_s is None else f"{per_second(run.tokens_per_s)} tokens/s",
        "" if run.mfu_pct is None else mfu_words(run.mfu_pct),
        "" if run.ranks == 1 else f"{run.ranks} ranks",
    ]
    warm = f"; {count(run.warm_up_steps, 'step')} of warm-up left out" if run.warm_up_steps else ""
    return f"Steps{f' ({run.label})' if run.label else ''}: {', '.join(filter(None, parts))}{warm}"


def _slow_lines(run: StepReport) -> list[str]:
    """The slowest rank, and the rank that the others wait for.

    Ranks of a synchronous job have equal step times; their waits tell them apart.
    """
    lines = []
    if run.slowest_rank is not None and run.slowest_mean_s > TOLD_SLOWER * run.mean_s:
        lines.append(f"  rank {run.slowest_rank} the slowest with {step_time(run.slowest_mean_s)}")
    if run.slow_own_s is None or run.wait_s is None or run.slow_rank == run.waiting_rank:
        return lines
    if run.slow_own_s > TOLD_SLOWER * (run.mean_s - run.wait_s):
        waits = (
            f"rank {run.waiting_rank} waits {step_time(run.wait_s)} of its {step_time(run.mean_s)} "
            "for others"
        )
        lines.append(
            f"  rank {run.slow_rank} is slow, with {step_time(run.slow_own_s)} of its own a step: {waits}"
        )
    return lines


def useful_lines(report: JobReport) -> list[str]:
    """Completed work: steps of jobs, requests of servers.

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
    """Figures of a server in one line."""
    kind = f"{LABELS[report.kind]} " if report.kind is not None else ""
    lead = f"Server {kind}{report.place}"
    if report.seconds <= 0.0:
        return f"{lead}: {report.error}"
    parts = [rate(report.requests_per_s, "requests/s"), rate(report.tokens_per_s, "tokens/s")]
    if report.queue is not None and report.queue_max is not None:
        parts.append(f"queue {report.queue:.1f}, at most {report.queue_max:.0f}")
    if report.kv_cache_pct is not None and report.kv_cache_max_pct is not None:
        parts.append(
            f"KV cache {report.kv_cache_pct:.0f} %, at most {report.kv_cache_max_pct:.0f} %"
        )
    if report.prefix_hit_pct is not None:
        parts.append(f"prefix hits {report.prefix_hit_pct:.0f} %")
    parts.append(rate(report.preemptions_per_s, "preemptions/s"))
    for key, words in TIMES.items():
        usual, late = getattr(report, f"{key}_p50_s"), getattr(report, f"{key}_p99_s")
        if usual is not None or late is not None:
            parts.append(f"{words} p50 mostly {bounds(usual)}, p99 at worst {bounds(late)}")
    silent = (
        f"; silent for {length(report.silent_s)}: {report.error}" if report.silent_s > 0.0 else ""
    )
    return f"{lead}: {', '.join(filter(None, parts)) or NOT_MEASURED}{silent}"


def gap_words(report: JobReport) -> str:
    """Times and reasons of the first gaps; empty without reasons."""
    gaps = [f"{_clock(gap)} {gap.text}" for gap in report.missing[:_MOST_GAPS]]
    more = ["…"] if len(report.missing) > _MOST_GAPS else []
    return f": {'; '.join([*gaps, *more])}" if gaps else ""


def _clock(event: Event) -> str:
    return f"{datetime.fromtimestamp(event.t, timezone.utc):%H:%M:%S} UTC"


def report_notes(report: JobReport) -> list[str]:
    """Remarks on the numbers, gaps and marks, one a line."""
    notes = list(report.notes)
    if any(gpu.energy_from == "power" for gpu in report.gpus):
        notes.append("~ energy is the integral of power: no energy counter was recorded")
    if any(gpu.sm_pct is None for gpu in report.counted):
        notes.append("SM n/a: not measured on that GPU, so busy-not-working cannot be seen there")
    if report.gaps:
        notes.append(f"{count(report.gaps, 'gap')} in the recording{gap_words(report)}")
    return [*notes, *(f"mark at {_clock(mark)}: {mark.text}" for mark in report.marks)]
