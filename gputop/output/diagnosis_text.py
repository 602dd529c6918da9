"""The diagnosis as a document, and what is selected on the screen as text for a ticket."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

from gputop.diagnosis.catalogue import titles
from gputop.diagnosis.rules.base import COLLECTING
from gputop.diagnosis.types import NOT_WORK, STATE_WORDS, GpuDiagnosis, Level, State, full_title
from gputop.model.cards import Price, price_of
from gputop.model.quantity import gpu_time, gpu_time_of, length
from gputop.model.serving import server_lines
from gputop.model.snapshot import SIMULATED, GpuSample, ProcessSample, Snapshot
from gputop.model.steps import StepPace
from gputop.monitor import Frame
from gputop.output.document import Block, Document, Figures, Heading, Items, Notes, Paragraph, Verdict, text_lines
from gputop.paint.glyphs import COLOUR
from gputop.paint.words import gpu_label, longest_that_fits, product, sm_provenance, step_forms
from gputop.report.verdict_data import facts, processes_on, ticket_data


def diagnosis_document(
    snapshot: Snapshot,
    diagnoses: Sequence[GpuDiagnosis],
    begin: float,
    price: Price | None,
    *,
    steps: Sequence[StepPace] = (),
) -> Document:
    """Machine and time, a verdict a GPU, and the total of the time that was not work.

    ``steps`` are the paces of the jobs that announce theirs. ``price`` is the user's price of a GPU-hour, or the
    list's; None shows no money.
    """
    verdicts = [
        _gpu(gpu, d, longest_that_fits(step_forms(snapshot, steps, gpu), None))
        for gpu, d in zip(snapshot.gpus, diagnoses, strict=True)
    ]
    split = {gpu.static.mig_parent for gpu in snapshot.gpus}
    counted = [d for d in diagnoses if d.uuid not in split]
    waste = _waste(counted, {gpu.static.uuid: price_of(price, gpu.static.name) for gpu in snapshot.gpus})
    served = [line for row in snapshot.servers if row.error is None for line in server_lines(row)]
    lead = (_machine(snapshot), _period(begin, snapshot.t))
    return Document(lead[0], (*verdicts, *waste, Items(tuple(served)), Notes(snapshot.notices)), lead)


def _machine(snapshot: Snapshot) -> str:
    kinds = [product(gpu.static.name, gpu.mem_total_bytes) for gpu in snapshot.gpus]
    counted = ", ".join(f"{kinds.count(kind)} × {kind}" for kind in dict.fromkeys(kinds)) or "no GPU"
    driver = f", driver {snapshot.machine.driver}" if snapshot.machine.driver else ""
    host = snapshot.machine.hostname + SIMULATED * snapshot.machine.is_simulated
    return f"{host}: {counted}{driver}; {sm_provenance(snapshot.gpus)[0]}"


def _period(begin: float, end: float) -> str:
    form = "%Y-%m-%d %H:%M:%S"
    first, last = (time.strftime(form, time.localtime(t)) for t in (begin, end))
    return f"{first} to {last} ({length(end - begin)})"


def _gpu(gpu: GpuSample, d: GpuDiagnosis, steps: str) -> Verdict:
    title = full_title(d.title, d.busy_not_working, alarm=True)
    judged = d.verdict != COLLECTING.id
    facts = [f"confidence {d.confidence}"] if judged else []
    if d.busy_not_working:
        facts.insert(0, f"flag {d.busy_not_working}")
    if judged and d.figure is not None and d.figure[1] is not None:
        word, value = d.figure
        facts.insert(0, f"{word} {value:.0f} %")
    elif judged and d.efficiency_reason:
        # The evidence below may give the same reason: then it is not said twice.
        is_in_evidence = any(d.efficiency_reason in text for text in d.evidence)
        facts.insert(0, "efficiency n/a" if is_in_evidence else f"efficiency n/a: {d.efficiency_reason}")
    # A badge that gives the same reason gives its remedy too.
    badged = {badge.evidence for badge in d.badges}
    evidence = [text for text in d.evidence if text not in badged]
    if evidence and d.n:
        evidence[0] += f" ({d.window_s:.0f} s, n={d.n})"
    spent = [f"{STATE_WORDS[state]} {length(s)}" for state, s in (d.seconds or {}).items() if s >= 0.5]
    labels_and_texts = [
        *((f"{COLOUR.level(badge.level)} {badge.title}", f"{badge.evidence}{_so(badge.remedy)}") for badge in d.badges),
        *(("note", note) for note in d.notes),
        ("steps", steps),
        ("loaders", d.attribution.correlation if d.attribution else ""),
        ("time", ", ".join(spent)),
    ]
    level: Level = "red" if d.busy_not_working or gpu.lost_reason is not None else d.level
    filled = tuple((label, text) for label, text in labels_and_texts if text)
    return Verdict(level, f"GPU {gpu_label(gpu)}: {title}", ", ".join(facts), tuple(evidence), d.remedy, more=filled)


def _so(remedy: str) -> str:
    return f"; {remedy}" if remedy else ""


def _causes(diagnoses: Sequence[GpuDiagnosis], measured: float) -> list[tuple[str, str, str]]:
    """Busy, not working by cause, the most first."""
    causes: dict[str, float] = {}
    for d in diagnoses:
        for verdict, seconds in (d.causes or {}).items():
            causes[verdict] = causes.get(verdict, 0.0) + seconds
    rows = sorted(causes.items(), key=lambda row: -row[1])
    return [(f"– {titles()[verdict]}", gpu_time(s, measured), "") for verdict, s in rows if s >= 0.5]


def _waste(diagnoses: Sequence[GpuDiagnosis], prices: Mapping[str, float | None]) -> tuple[Block, ...]:
    """Idle and busy-not-working in rows of their own; unmeasured time apart; money only at the user's price."""
    totals: dict[State, float] = dict.fromkeys(STATE_WORDS, 0.0)
    for d in diagnoses:
        for state, seconds in (d.seconds or {}).items():
            totals[state] += seconds
    measured = sum(seconds for state, seconds in totals.items() if state != "unmeasured")
    if measured < 1:
        return (Paragraph("No GPU time could be judged yet."),)
    lost = sum(totals[state] for state in NOT_WORK)
    rows = []
    for state in NOT_WORK:
        if totals[state] >= 0.5:
            cost = [
                (d.seconds or {}).get(state, 0.0) / 3600 * price for d in diagnoses if (price := prices.get(d.uuid))
            ]
            distinct = sorted({price for price in prices.values() if price})
            money = f"{sum(cost):.2f} at {', '.join(f'{price:g}' for price in distinct)} a GPU-hour" if cost else ""
            rows.append((STATE_WORDS[state], gpu_time(totals[state], measured), money))
        if state == "busy_not_working":
            rows += _causes(diagnoses, measured)
    if totals["unmeasured"] >= 0.5:
        rows.append(("not judged, and in none of these", gpu_time(totals["unmeasured"], measured), ""))
    title = f"Not work: {gpu_time_of(lost, measured)} ({100 * lost / measured:.0f} %)"
    return (Heading(title), Figures(tuple(rows)))


# What is selected, ready for a ticket: the verdict with its evidence and remedy as text, or as one JSON object.


def ticket_json(frame: Frame, position: int, process: ProcessSample | None = None) -> str:
    """``ticket_data`` as text."""
    return json.dumps(ticket_data(frame, position, process), ensure_ascii=False, indent=2)


def ticket_text(frame: Frame, position: int, process: ProcessSample | None = None) -> str:
    """What somebody who was not there needs: where, what, since when, the evidence, the remedy."""
    snapshot, d = frame.snapshot, frame.diagnoses[position]
    gpu = snapshot.gpus[position]
    moment = datetime.fromtimestamp(snapshot.t, timezone.utc)
    title = full_title(d.plain_title, d.busy_not_working)
    for_s = "" if d.since is None else f", for {length(max(0.0, snapshot.t - d.since))}"
    simulated = "simulated by gputop demo: " if snapshot.machine.is_simulated else ""
    lines = [
        f"{simulated}{snapshot.machine.hostname} GPU {gpu.static.index} ({gpu.static.name}): {title}{for_s}",
        f"at {moment:%Y-%m-%d %H:%M:%S} UTC; util {_pct(gpu.util_pct)}, SM {_pct(gpu.sm_active_pct)} ({gpu.sm_source})",
        *(f"evidence: {line}" for line in d.evidence),
    ]
    if d.remedy:
        lines.append(f"what helps: {d.remedy}")
    lines += [f"also: {b.evidence}" + (f"; {b.remedy}" if b.remedy else "") for b in d.badges]
    lines += [
        f"process: pid {p.pid}, {p.static.user or 'user n/a'}: {p.static.command or p.static.name or 'n/a'}"
        for p in processes_on(frame, gpu.static.index, process)
    ]
    if process is not None:
        values = [f"{name} {value}" for name, value in facts(process, process).items() if value is not None]
        lines.append(f"  {', '.join(values)}")
    return text_lines(lines)


def _pct(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.0f} %"
