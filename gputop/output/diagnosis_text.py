"""The diagnosis as a document, and one GPU's verdict as a ticket."""

from __future__ import annotations

import time

from gputop.diagnosis.rules.gates import COLLECTING
from gputop.diagnosis.types import STATE_WORDS, GpuDiagnosis
from gputop.diagnosis.verdict.diagnosis_data import as_json
from gputop.diagnosis.verdict.gpu_owners import owner_words
from gputop.diagnosis.verdict.summary import (
    LEVEL_OF_ROLE,
    alarmed,
    number_words,
    since_words,
    summarize,
)
from gputop.model.durations import duration, length
from gputop.model.quantity import kinds
from gputop.model.server_words import server_lines
from gputop.model.snapshot import SIMULATED, GpuSample, Snapshot
from gputop.monitor import Frame
from gputop.output.document import Document, Items, Notes, Paragraph, Verdict, part
from gputop.output.report_document import headline, money_line, time_figures
from gputop.output.report_text import time_data
from gputop.paint.glyphs import level_glyph
from gputop.paint.step_words import longest_that_fits, step_forms
from gputop.paint.words import gpu_label, product, sm_provenance
from gputop.report.job_report import JobReport


def diagnosis_document(frame: Frame, report: JobReport) -> Document:
    """The machine, a verdict for each GPU, and the GPU time.

    The GPU time is the report's up to this frame.
    """
    snapshot = frame.snapshot
    utc_offset_s = float(time.localtime(snapshot.t).tm_gmtoff)
    verdicts = [
        _gpu(
            gpu,
            d,
            longest_that_fits(step_forms(snapshot, frame.steps, gpu), None),
            utc_offset_s,
            report.price,
        )
        for gpu, d in zip(snapshot.gpus, frame.diagnoses, strict=True)
    ]
    judged = report.time.judged_s > 0.0
    times = part(
        "GPU time", time_figures(report), Items(tuple(filter(None, (money_line(report),))))
    )
    served = [line for row in snapshot.servers if row.error is None for line in server_lines(row)]
    lead = (_machine(snapshot), _period(report), *([headline(report)] if judged else []))
    unjudged = () if judged else (Paragraph("No GPU time could be judged yet."),)
    return Document(
        lead[0], (*verdicts, *times, *unjudged, Items(tuple(served)), Notes(snapshot.notices)), lead
    )


def diagnosis_json(frame: Frame, report: JobReport) -> dict[str, object]:
    """The diagnosis as JSON, with the report's GPU time."""
    return {
        **as_json(frame.snapshot, frame.diagnoses, report.begin, frame.steps),
        "duration_s": report.duration_s,
        **time_data(report.time),
    }


def _machine(snapshot: Snapshot) -> str:
    counted = (
        kinds(product(gpu.static.name, gpu.mem_total_bytes) for gpu in snapshot.gpus) or "no GPU"
    )
    driver = f", driver {snapshot.machine.driver}" if snapshot.machine.driver else ""
    host = snapshot.machine.hostname + SIMULATED * snapshot.machine.is_simulated
    return f"{host}: {counted}{driver}; {sm_provenance(snapshot.gpus)[0]}"


def _period(report: JobReport) -> str:
    form = "%Y-%m-%d %H:%M:%S"
    first, last = (time.strftime(form, time.localtime(t)) for t in (report.begin, report.end))
    return f"{first} to {last} ({length(report.duration_s)})"


def _gpu(
    gpu: GpuSample, d: GpuDiagnosis, steps: str, utc_offset_s: float, price: float | None
) -> Verdict:
    told = summarize(d)
    judged = d.verdict != COLLECTING.id
    facts = []
    if judged and told.number is not None:
        # The evidence below may give the same reason: then it is not said twice.
        is_in_evidence = any((d.efficiency_reason or "") in text for text in told.evidence)
        reason = (
            "" if told.number.value is not None or is_in_evidence else f": {d.efficiency_reason}"
        )
        facts = [f"{number_words(told.number)}{reason}", f"confidence {d.confidence}"]
    facts += filter(None, (since_words(told, utc_offset_s),))
    evidence = list(told.evidence)
    if evidence and d.n:
        evidence[0] += f" ({d.window_s:.0f} s, n={d.n})"
    spent = [
        f"{STATE_WORDS[state]} {duration(s)}" for state, s in (d.seconds or {}).items() if s >= 0.5
    ]
    labels_and_texts = [
        ("process", "" if told.owner is None else owner_words(told.owner)),
        *(
            (
                f"{level_glyph(badge.level)} {badge.title}",
                "; ".join(filter(None, (badge.evidence, badge.remedy))),
            )
            for badge in told.other_badges
        ),
        *(("note", note) for note in told.notes),
        ("steps", steps),
        ("time", "; ".join(spent)),
    ]
    filled = tuple((label, text) for label, text in labels_and_texts if text)
    title = alarmed(told.words)
    return Verdict(
        LEVEL_OF_ROLE[told.role],
        f"GPU {gpu_label(gpu)}: {title}",
        ", ".join(facts),
        tuple(evidence),
        told.remedy,
        told.worth.words(price),
        more=filled,
    )
