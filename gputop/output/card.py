"""Content of a run's card: shares, causes, worth and remarks.

A card is shown to people who were not there. It has no command line, and no name beside the host's, the GPUs' and those
that evidence needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

from msgspec import Struct

from gputop.diagnosis.types import STATE_WORDS, Role
from gputop.diagnosis.verdict.catalogue import lost_roles, titles
from gputop.diagnosis.verdict.worth import NOTHING, Worth
from gputop.model.clean_text import terminal_safe
from gputop.model.durations import gpu_time, length
from gputop.model.quantity import count, kinds, share, which_gpus
from gputop.output.report_document import money
from gputop.report.findings import FindingReport
from gputop.report.job_report import JobReport
from gputop.report.time_account import UNJUDGED, UNRECORDED, UNUSED, WORKED, TimeRow

MOST_CAUSES = 3
LEAST_SHARE = 0.01
"""Smallest share of the judged time that is told as a cause [judged]."""
SHORT_S = 60.0
"""Start-up and the first window fill most of a run shorter than a minute."""
_ROLES: dict[str, Role] = {
    WORKED: "work",
    UNUSED: "information",
    UNJUDGED: "unknown",
    UNRECORDED: "unknown",
}


class CardPart(Struct, frozen=True):
    """A part of all GPU time, for the bar."""

    role: Role
    share: float


class CardCause(Struct, frozen=True):
    """A cause of wasted time with its share of the judged time."""

    role: Role
    share: str
    title: str
    evidence: str
    remedy: str


class Card(Struct, frozen=True, kw_only=True):
    """Texts and shares of a card, in the order of its rows.

    ``figure`` is the share that worked; it is empty where nothing was judged.
    """

    place: str
    span: str
    figure: str
    headline: str
    amounts: str
    cost: str
    parts: tuple[CardPart, ...]
    causes: tuple[CardCause, ...]
    others: str
    worth: str
    remarks: tuple[str, ...]


def card_of(report: JobReport) -> Card:
    """The card of a report."""
    time = report.time
    wasted = _large_causes(time.rows())
    shown = wasted[:MOST_CAUSES]
    is_judged = time.lost_share is not None
    return Card(
        place=_place(report),
        span=_span(report),
        figure=_worked_share(report) if is_judged else "",
        headline="of the GPU time worked" if is_judged else "No GPU time could be judged",
        amounts=_amounts(report),
        cost=_cost(report),
        parts=_parts(report),
        causes=tuple(_cause(report, row) for row in shown),
        others=_others(wasted[MOST_CAUSES:]),
        worth=_worth(report, shown[0]) if shown else "",
        remarks=tuple(_remarks(report)),
    )


def _large_causes(rows: Iterable[TimeRow]) -> list[TimeRow]:
    """Wasted parts that are told, the largest first."""
    return [row for row in rows if _is_wasted(row) and (row.of_judged or 0.0) >= LEAST_SHARE]


def _is_wasted(row: TimeRow) -> bool:
    return row.key not in _ROLES


def _place(report: JobReport) -> str:
    """Host, with the number of others, and GPUs."""
    host = report.host
    if report.other_hosts:
        host = f"{host} and {len(report.other_hosts)} more"
    if report.is_simulated:
        host = f"{host} (simulated)"
    cards = kinds(gpu.name.removeprefix("NVIDIA ") for gpu in report.counted)
    return terminal_safe(" · ".join(filter(None, (host, cards))))


def _span(report: JobReport) -> str:
    """Begin, end and length: ``2026-05-04 23:50 to 00:12 UTC · 22 min 0 s``."""
    if not report.frames:
        return ""
    begin = datetime.fromtimestamp(report.begin, timezone.utc)
    end = datetime.fromtimestamp(report.end, timezone.utc)
    form = "%H:%M" if begin.date() == end.date() else "%Y-%m-%d %H:%M"
    return f"{begin:%Y-%m-%d %H:%M} to {end:{form}} UTC · {length(report.duration_s)}"


def _worked_s(report: JobReport) -> float:
    time = report.time
    return max(0.0, time.judged_s - time.lost_s - time.idle_s)


def _worked_share(report: JobReport) -> str:
    return share(_worked_s(report) / report.time.judged_s)


def _amounts(report: JobReport) -> str:
    """GPU time by what became of it."""
    time = report.time
    if time.all_s <= 0.0:
        return ""
    if time.judged_s <= 0.0:
        return f"{gpu_time(time.all_s)} recorded"
    whole = gpu_time(time.judged_s, time.all_s)
    parts = [
        f"{_amount(_worked_s(report), time.all_s)} of {whole} worked",
        f"{_amount(time.lost_s, time.all_s)} wasted",
    ]
    if time.idle_s:
        parts.append(f"{_amount(time.idle_s, time.all_s)} idle")
    if time.unjudged_s:
        parts.append(f"{_amount(time.unjudged_s, time.all_s)} {STATE_WORDS['unmeasured']}")
    return " · ".join(parts)


def _cost(report: JobReport) -> str:
    """Money that the wasted time cost; empty without a price."""
    time = report.time
    wasted, whole = time.cost(time.lost_s), time.cost(time.all_s)
    if wasted is None or time.judged_s <= 0.0:
        return ""
    parts = [f"{money(wasted)} of {money(whole)} wasted"]
    if report.day_factor is not None:
        parts.append(f"{money(wasted * report.day_factor)} a day at this rate")
    parts.append(f"at {time.price:g} a GPU-hour")
    return " · ".join(parts)


def _amount(gpu_s: float, whole_s: float) -> str:
    """GPU time without its unit."""
    return gpu_time(gpu_s, whole_s).rpartition(" ")[0]


def _parts(report: JobReport) -> tuple[CardPart, ...]:
    roles = {**lost_roles(), **_ROLES}
    return tuple(CardPart(roles[row.key], row.of_all) for row in report.time.rows())


def _cause(report: JobReport, row: TimeRow) -> CardCause:
    """A wasted part in the words of its largest finding."""
    findings = _findings(report, row.key)
    title = titles()[row.key]
    evidence = remedy = ""
    if findings:
        largest = max(findings, key=lambda finding: finding.gain_s)
        title = f"{which_gpus(finding.gpu for finding in findings)}: {largest.text}"
        evidence, remedy = largest.evidence, largest.remedy.replace("`", "")
    return CardCause(
        lost_roles()[row.key],
        share(row.of_judged),
        terminal_safe(title),
        terminal_safe(evidence),
        terminal_safe(remedy),
    )


def _findings(report: JobReport, verdict: str) -> list[FindingReport]:
    """Findings of a verdict, whichever kind of busy-not-working it has."""
    return [
        finding
        for finding in report.findings
        if finding.kind == "verdict" and finding.id.split(" ")[0] == verdict
    ]


def _others(rows: list[TimeRow]) -> str:
    """Causes without a row of their own."""
    if not rows:
        return ""
    together = share(sum(row.of_judged or 0.0 for row in rows))
    return f"and {count(len(rows), 'smaller cause')}: {together}"


def _worth(report: JobReport, first: TimeRow) -> str:
    """Gain from curing the largest cause, at most."""
    time = report.time
    parts = [gpu_time(first.gpu_s, time.all_s), f"{share(first.of_judged)} of the judged time"]
    bound = _bound(report, first.key).words()
    if bound:
        parts.append(bound)
    if first.cost is not None:
        parts.append(f"worth {money(first.cost)}")
        if report.day_factor is not None:
            parts.append(f"{money(first.cost * report.day_factor)} a day")
    return f"Curing the first wins at most {', '.join(parts)}"


def _bound(report: JobReport, verdict: str) -> Worth:
    """Bound of the GPU that wins most: GPUs of a job wait for each other."""
    worths = [finding.worth for finding in _findings(report, verdict)]
    return max(worths, key=lambda worth: worth.speedup_at_most or 0.0, default=NOTHING)


def _remarks(report: JobReport) -> list[str]:
    """Reasons to read the figures with care, and the absence of waste."""
    time = report.time
    if not report.gpus:
        return ["No GPU was used, or none could be measured."]
    remarks = []
    if time.judged_s > 0.0 and not _large_causes(time.rows()):
        is_nothing = time.lost_s <= 0.0
        remarks.append("Nothing was wasted." if is_nothing else "Less than 1 % was wasted.")
    unmeasured = [gpu.index for gpu in report.counted if gpu.sm_pct is None]
    if unmeasured:
        remarks.append(
            f"SM activity was not measured on {which_gpus(unmeasured)}: a GPU that only looks busy "
            "cannot be told from one that works."
        )
    if report.duration_s < SHORT_S:
        remarks.append("Shorter than a minute: most of it is start-up, so the shares say little.")
    if time.unrecorded_s > 0.0:
        remarks.append(f"{gpu_time(time.unrecorded_s)} in gaps of the recording is in no share.")
    return remarks
