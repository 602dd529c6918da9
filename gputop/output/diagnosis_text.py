"""The diagnosis as a document, and one GPU's verdict as a ticket."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone

from gputop.diagnosis.diagnosis_data import as_json, verdict_data
from gputop.diagnosis.gpu_owners import owner_words
from gputop.diagnosis.rules.gates import COLLECTING
from gputop.diagnosis.summary import LEVEL_OF_ROLE, alarmed, number_words, since_words, summarize
from gputop.diagnosis.types import STATE_WORDS, GpuDiagnosis
from gputop.model.quantity import duration, kinds, length
from gputop.model.serving import server_lines
from gputop.model.snapshot import SIMULATED, GpuSample, ProcessSample, Snapshot, value
from gputop.monitor import Frame
from gputop.output.document import Document, Items, Notes, Paragraph, Verdict, part, text_lines
from gputop.output.report_document import headline, money_line, time_figures
from gputop.output.report_text import time_data
from gputop.paint.glyphs import level_glyph
from gputop.paint.words import gpu_label, longest_that_fits, product, sm_provenance, step_forms
from gputop.report.job_report import JobReport


def diagnosis_document(frame: Frame, report: JobReport) -> Document:
    """The machine, a verdict for each GPU, and the GPU time.

    The GPU time is the report's up to this frame.
    """
    snapshot = frame.snapshot
    utc_offset_s = float(time.localtime(snapshot.t).tm_gmtoff)
    verdicts = [
        _gpu(gpu, d, longest_that_fits(step_forms(snapshot, frame.steps, gpu), None), utc_offset_s, report.price)
        for gpu, d in zip(snapshot.gpus, frame.diagnoses, strict=True)
    ]
    judged = report.time.judged_s > 0.0
    times = part("GPU time", time_figures(report), Items(tuple(filter(None, (money_line(report),)))))
    served = [line for row in snapshot.servers if row.error is None for line in server_lines(row)]
    lead = (_machine(snapshot), _period(report), *([headline(report)] if judged else []))
    unjudged = () if judged else (Paragraph("No GPU time could be judged yet."),)
    return Document(lead[0], (*verdicts, *times, *unjudged, Items(tuple(served)), Notes(snapshot.notices)), lead)


def diagnosis_json(frame: Frame, report: JobReport) -> dict[str, object]:
    """The diagnosis as JSON, with the report's GPU time."""
    return {
        **as_json(frame.snapshot, frame.diagnoses, report.begin, frame.steps),
        "duration_s": report.duration_s,
        **time_data(report.time),
    }


def _machine(snapshot: Snapshot) -> str:
    counted = kinds(product(gpu.static.name, gpu.mem_total_bytes) for gpu in snapshot.gpus) or "no GPU"
    driver = f", driver {snapshot.machine.driver}" if snapshot.machine.driver else ""
    host = snapshot.machine.hostname + SIMULATED * snapshot.machine.is_simulated
    return f"{host}: {counted}{driver}; {sm_provenance(snapshot.gpus)[0]}"


def _period(report: JobReport) -> str:
    form = "%Y-%m-%d %H:%M:%S"
    first, last = (time.strftime(form, time.localtime(t)) for t in (report.begin, report.end))
    return f"{first} to {last} ({length(report.duration_s)})"


def _gpu(gpu: GpuSample, d: GpuDiagnosis, steps: str, utc_offset_s: float, price: float | None) -> Verdict:
    told = summarize(d)
    judged = d.verdict != COLLECTING.id
    facts = []
    if judged and told.number is not None:
        # The evidence below may give the same reason: then it is not said twice.
        is_in_evidence = any((d.efficiency_reason or "") in text for text in told.evidence)
        reason = "" if told.number.value is not None or is_in_evidence else f": {d.efficiency_reason}"
        facts = [f"{number_words(told.number)}{reason}", f"confidence {d.confidence}"]
    facts += filter(None, (since_words(told, utc_offset_s),))
    evidence = list(told.evidence)
    if evidence and d.n:
        evidence[0] += f" ({d.window_s:.0f} s, n={d.n})"
    spent = [f"{STATE_WORDS[state]} {duration(s)}" for state, s in (d.seconds or {}).items() if s >= 0.5]
    labels_and_texts = [
        ("process", "" if told.owner is None else owner_words(told.owner)),
        *(
            (f"{level_glyph(badge.level)} {badge.title}", "; ".join(filter(None, (badge.evidence, badge.remedy))))
            for badge in told.other_badges
        ),
        *(("note", note) for note in told.notes),
        ("steps", steps),
        ("time", ", ".join(spent)),
    ]
    filled = tuple((label, text) for label, text in labels_and_texts if text)
    title = alarmed(told.words)
    return Verdict(LEVEL_OF_ROLE[told.role], f"GPU {gpu_label(gpu)}: {title}", ", ".join(facts), tuple(evidence),
                   told.remedy, told.worth.words(price), more=filled)  # fmt: skip


# What is selected, ready for a ticket or a fired alert: the verdict with its evidence and remedy, as data or text.

_FACTS = ("role", "gpu_mem_bytes", "cpu_pct", "main_run_pct", "state", "waiting_on", "rss_bytes", "job")


def ticket_data(frame: Frame, position: int, process: ProcessSample | None = None) -> dict[str, object]:
    """One GPU's verdict and processes as JSON.

    Command lines are masked, as in the frame. With a ``process`` only that one is included, with its activity.
    """
    gpu, d = frame.snapshot.gpus[position], frame.diagnoses[position]
    return {
        "schema": 1,
        "t": frame.snapshot.t,
        "host": frame.snapshot.machine.hostname,
        "simulated": frame.snapshot.machine.is_simulated,
        "gpu": gpu.static.index,
        "uuid": gpu.static.uuid,
        "name": gpu.static.name,
        **verdict_data(d),
        "util_pct": gpu.util_pct,
        "sm_active_pct": gpu.sm_active_pct,
        "sm_source": gpu.sm_source,
        "processes": [
            {"pid": p.pid, "user": p.static.user, "command": p.static.command or p.static.name, **facts(p, process)}
            for p in processes_on(frame, gpu.static.index, process)
        ],
    }


def processes_on(frame: Frame, index: int, process: ProcessSample | None) -> list[ProcessSample]:
    """The chosen process, else all processes with a context there."""
    if process is not None:
        return [process]
    return [p for p in frame.snapshot.processes if p.gpu == index and p.role == "gpu"]


def facts(process: ProcessSample, chosen: ProcessSample | None) -> dict[str, object]:
    """Activity of the chosen process by catalogue key; empty for others."""
    return {key: value(process, key) for key in _FACTS} if process is chosen else {}


def ticket_json(frame: Frame, position: int, process: ProcessSample | None = None) -> str:
    """``ticket_data`` as text."""
    return json.dumps(ticket_data(frame, position, process), ensure_ascii=False, indent=2)


def ticket_text(frame: Frame, position: int, process: ProcessSample | None = None) -> str:
    """One GPU's verdict as text: place, time, evidence, remedy, processes."""
    snapshot, told = frame.snapshot, summarize(frame.diagnoses[position])
    gpu = snapshot.gpus[position]
    moment = datetime.fromtimestamp(snapshot.t, timezone.utc)
    simulated = "simulated by gputop demo: " if snapshot.machine.is_simulated else ""
    where = f"{simulated}{snapshot.machine.hostname} GPU {gpu.static.index} ({gpu.static.name})"
    lines = [
        ", ".join(filter(None, (f"{where}: {told.words}", number_words(told.number), since_words(told)))),
        f"at {moment:%Y-%m-%d %H:%M:%S} UTC; util {_pct(gpu.util_pct)}, SM {_pct(gpu.sm_active_pct)} ({gpu.sm_source})",
        *(f"evidence: {line}" for line in told.evidence),
    ]
    if told.remedy:
        lines.append(f"what helps: {told.remedy}")
    lines += [f"also, {b.title}: {b.evidence}" + (f"; {b.remedy}" if b.remedy else "") for b in told.other_badges]
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
