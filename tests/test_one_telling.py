"""One past of the demo, told by every output: the same title, number, time, colour and owner of each GPU."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from msgspec import to_builtins

from gputop.diagnosis.verdict.diagnosis_data import as_json
from gputop.diagnosis.verdict.gpu_owners import owner_words
from gputop.diagnosis.verdict.summary import (
    LEVEL_OF_ROLE,
    GpuSummary,
    alarmed,
    number_words,
    role_of,
    since_words,
    summarize,
)
from gputop.features.export.metrics_page import ExporterCost, PageChoice, PageReading, metrics_page
from gputop.features.export.run_counters import RunCounters
from gputop.model.redaction import Redactor
from gputop.model.snapshot import Snapshot
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.output.diagnosis_text import diagnosis_document
from gputop.output.document import Verdict
from gputop.output.report_document import finding_blocks
from gputop.output.report_html import gpu_section, report_html
from gputop.output.report_text import report_text
from gputop.output.ticket import ticket_data, ticket_text
from gputop.paint.main_screen import main_screen
from gputop.paint.verdict_history import verdict_spans
from gputop.paint.view import View
from gputop.report.lanes import Pictured, pictured
from gputop.session.judged import Judged
from gputop.sources.simulation.simulated import SimulatedSource
from tests.support.kept import kept

LATE = 1_780_000_000.0
SCENARIOS = {"node": 120.0, "idle_holding_memory": 420.0, "straggler": 120.0}
"""The past of each, seconds: one that holds its memory is told so after five minutes."""


class Told:
    """A scenario's past, its last frame and its report."""

    def __init__(self, scenario: str) -> None:
        self.snapshots: list[Snapshot] = list(
            SimulatedSource(scenario, clock=lambda: LATE).past(SCENARIOS[scenario])
        )
        monitor, self.counters = Monitor(), RunCounters()
        for snapshot in self.snapshots:
            self.frame: Frame = monitor.feed(snapshot)
            self.counters.take(self.frame)
        self.tellings: tuple[GpuSummary, ...] = tuple(map(summarize, self.frame.diagnoses))
        self.pictured: Pictured = pictured(self.snapshots)


@pytest.fixture(scope="module", params=SCENARIOS)
def told(request: pytest.FixtureRequest) -> Iterator[Told]:
    yield kept(f"told-{request.param}", lambda: Told(request.param))


def test_texts_tell_each_gpu_alike(told: Told) -> None:
    offset = float(time.localtime(LATE).tm_gmtoff)
    document = diagnosis_document(told.frame, told.pictured.report)
    verdicts = [block for block in document.blocks if isinstance(block, Verdict)]
    for position, (said, verdict) in enumerate(zip(told.tellings, verdicts, strict=True)):
        assert verdict.headline == f"GPU {said.gpu}: {alarmed(said.words)}"
        assert verdict.level == LEVEL_OF_ROLE[said.role]
        assert verdict.aside.startswith(number_words(said.number))
        assert verdict.aside.endswith(since_words(said, offset))
        assert said.owner is not None and ("process", owner_words(said.owner)) in verdict.more
        first, *rest = ticket_text(told.frame, position).splitlines()
        assert first.endswith(f": {said.words}, {number_words(said.number)}, {since_words(said)}")
        assert any(f"pid {said.owner.pid}," in line for line in rest)
        assert [f"evidence: {line}" for line in said.evidence] == [
            r for r in rest if r.startswith("evidence: ")
        ]


def test_what_was_found_before_has_the_colours_of_what_stands(told: Told) -> None:
    frame = told.frame
    judged = Judged(((0, snapshot) for snapshot in told.snapshots), 1.0)
    judged.to_trouble(float("inf"), lambda: 0.0)
    while not judged.is_complete:
        judged.advance(float("inf"), lambda: 0.0)
    for said, d in zip(told.tellings, frame.diagnoses, strict=True):
        stand = [f.role for f in frame.findings if f.gpu == d.index and f.ended is None]
        assert said.role in stand
        assert verdict_spans(frame, d)[-1].level == LEVEL_OF_ROLE[role_of(d)]
        assert [c.level for c in judged.changes() if c.gpu == d.index][-1] == LEVEL_OF_ROLE[
            said.role
        ]


def test_what_is_lost_by_holding_memory_is_called_so_from_the_beginning(told: Told) -> None:
    for d in told.frame.diagnoses:
        assert d.seconds is not None and d.lost is not None
        assert d.lost.get("idle_holding_memory", 0.0) == pytest.approx(d.seconds["idle_allocated"])


def test_data_tells_each_gpu_alike(told: Told) -> None:
    frame = told.frame
    whole = json.loads(json.dumps(as_json(frame.snapshot, frame.diagnoses, told.snapshots[0].t)))
    for position, said in enumerate(told.tellings):
        wanted = {
            "title": said.words, "level": said.level, "role": said.role, "number": to_builtins(said.number),
            "owner": to_builtins(said.owner), "since": said.since, "lasted_s": round(said.lasted_s, 3),
            "charged_s": None if said.charged_s is None else round(said.charged_s, 3),
        }  # fmt: skip
        for given in (whole["gpus"][position], ticket_data(frame, position)):
            assert {key: given[key] for key in wanted} == wanted


def test_report_and_page_tell_each_gpu_alike(told: Told) -> None:
    findings = {(f.gpu, f.id.split()[0]): f for f in told.pictured.report.findings if f.spells == 1}
    text, page = report_text(told.pictured.report), report_html(told.pictured)
    for said, d, gpu in zip(
        told.tellings, told.frame.diagnoses, told.pictured.report.gpus, strict=True
    ):
        assert said.owner is not None and owner_words(said.owner) in text
        section = gpu_section(told.pictured, gpu)
        assert (
            section in page and f">{said.words}<" in section and owner_words(said.owner) in section
        )
        finding = findings.get((said.gpu, d.verdict))
        if finding is None or finding.level == "green":
            continue
        assert (finding.text, finding.role, finding.number, finding.owner) == (
            said.words, said.role, said.number, said.owner,
        )  # fmt: skip
        assert finding.when == since_words(said)
        assert f">{number_words(said.number)}<" in section and finding.when in section
    blocks = [
        block for block in finding_blocks(told.pictured.report, None) if isinstance(block, Verdict)
    ]
    remedies = [block.remedy for block in blocks if block.remedy] + [
        f.remedy for f in told.pictured.report.fixes()
    ]
    assert len(remedies) == len(set(remedies)), "a remedy is told once"


def test_screen_shows_title_and_cause(told: Told) -> None:
    shown = plain_text(main_screen(told.frame, View(), 200, 80).rows)
    for said in told.tellings:
        assert alarmed(said.title) in shown


def test_the_exporter_counts_what_is_told_and_names_no_process(told: Told) -> None:
    frame = told.frame
    reading = PageReading(frame, True, True, frame.snapshot.t, {})
    page = metrics_page(reading, told.counters, ExporterCost(0.0, None), PageChoice())
    for said, d in zip(told.tellings, frame.diagnoses, strict=True):
        rows = [row for row in page.splitlines() if f'gpu="{said.gpu}"' in row]
        assert any(
            row.startswith("gputop_gpu_verdict{") and f'"{d.verdict}"' in row and row.endswith(" 1")
            for row in rows
        )
        assert said.owner is not None and said.owner.command is not None
        assert not any(said.owner.command in row or f'"{said.owner.pid}"' in row for row in rows)
        for verdict, seconds in (d.lost or {}).items():
            (row,) = (
                r
                for r in rows
                if r.startswith("gputop_gpu_lost_seconds_total{") and f'"{verdict}"' in r
            )
            assert float(row.split()[-1]) == pytest.approx(seconds, rel=1e-6)


def test_a_redacted_owner_is_numbered() -> None:
    redactor, monitor = Redactor(), Monitor()
    for snapshot in SimulatedSource("small_kernels", clock=lambda: LATE).past(60.0):
        frame = monitor.feed(redactor.snapshot(snapshot))
    (told,) = map(summarize, frame.diagnoses)
    assert told.owner is not None and (told.owner.user, told.owner.command) == ("user1", "python")
