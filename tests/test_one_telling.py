"""One past of the demo, told by every output: the same title, number, time, colour and owner of each GPU."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from msgspec import to_builtins

from gputop.diagnosis.diagnosis_data import as_json
from gputop.diagnosis.telling import (
    LEVEL_OF_ROLE,
    Telling,
    alarmed,
    number_words,
    owner_words,
    since_words,
    tell,
)
from gputop.features.export.metrics_page import ExporterCost, PageChoice, PageReading, metrics_page
from gputop.features.export.run_counters import RunCounters
from gputop.mcp.answers import diagnosis_brief, labelled
from gputop.model.redaction import Redactor
from gputop.model.snapshot import Snapshot
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.output.diagnosis_text import diagnosis_document, ticket_text
from gputop.output.document import Verdict
from gputop.output.report_html import gpu_section, report_html
from gputop.output.report_text import finding_blocks, report_text
from gputop.paint.main_screen import main_screen
from gputop.paint.view import View
from gputop.report.lanes import Pictured, pictured
from gputop.report.verdict_data import ticket_data
from gputop.sources.simulation.simulated import SimulatedSource

LATE = 1_780_000_000.0
SCENARIOS = ("node", "straggler", "half_working")


class Told:
    """A scenario's past, its last frame and its report."""

    def __init__(self, scenario: str) -> None:
        self.snapshots: list[Snapshot] = list(SimulatedSource(scenario, clock=lambda: LATE).past(420.0))
        monitor, self.counters = Monitor(), RunCounters()
        for snapshot in self.snapshots:
            self.frame: Frame = monitor.feed(snapshot)
            self.counters.take(self.frame)
        self.tellings: tuple[Telling, ...] = tell(self.frame.diagnoses)
        self.pictured: Pictured = pictured(self.snapshots)


@pytest.fixture(scope="module", params=SCENARIOS)
def told(request: pytest.FixtureRequest) -> Iterator[Told]:
    yield Told(request.param)


def test_texts_tell_each_gpu_alike(told: Told) -> None:
    offset = float(time.localtime(LATE).tm_gmtoff)
    document = diagnosis_document(told.frame.snapshot, told.frame.diagnoses, told.snapshots[0].t, None)
    verdicts = [block for block in document.blocks if isinstance(block, Verdict)]
    for position, (telling, verdict) in enumerate(zip(told.tellings, verdicts, strict=True)):
        assert verdict.headline == f"GPU {telling.gpu}: {alarmed(telling.words)}"
        assert verdict.level == LEVEL_OF_ROLE[telling.role]
        assert verdict.aside.startswith(number_words(telling.number))
        assert verdict.aside.endswith(since_words(telling, offset))
        assert telling.owner is not None and ("process", owner_words(telling.owner)) in verdict.more
        first, *rest = ticket_text(told.frame, position).splitlines()
        assert first.endswith(f": {telling.words}, {number_words(telling.number)}, {since_words(telling)}")
        assert any(f"pid {telling.owner.pid}," in line for line in rest)
        assert [f"evidence: {line}" for line in telling.evidence] == [r for r in rest if r.startswith("evidence: ")]


def test_data_tells_each_gpu_alike(told: Told) -> None:
    frame = told.frame
    whole = json.loads(json.dumps(as_json(frame.snapshot, frame.diagnoses, told.snapshots[0].t)))
    for position, telling in enumerate(told.tellings):
        wanted = {
            "telling": telling.words, "role": telling.role, "number": to_builtins(telling.number),
            "owner": to_builtins(telling.owner), "began": telling.since,
            "charged_s": None if telling.charged_s is None else round(telling.charged_s, 3),
        }  # fmt: skip
        for given in (whole["gpus"][position], ticket_data(frame, position)):
            assert {key: given[key] for key in wanted} == wanted
        (given,) = diagnosis_brief(labelled(whole), gpu=telling.gpu)["gpus"]
        assert (given["telling"], given["role"], given["number"]) == (telling.words, telling.role, wanted["number"])
        assert "command" not in given["owner"] and given["owner"]["command_untrusted"]


def test_report_and_page_tell_each_gpu_alike(told: Told) -> None:
    findings = {f.gpu: f for f in told.pictured.report.findings if f.kind == "verdict" and f.spells == 1}
    text, page = report_text(told.pictured.report), report_html(told.pictured)
    for telling, gpu in zip(told.tellings, told.pictured.report.gpus, strict=True):
        assert telling.owner is not None and owner_words(telling.owner) in text
        section = gpu_section(told.pictured, gpu)
        assert section in page and f">{telling.words}<" in section and owner_words(telling.owner) in section
        finding = findings.get(telling.gpu)
        if finding is None or finding.level == "green":
            continue
        assert (finding.text, finding.role, finding.number, finding.owner) == (
            telling.words, telling.role, telling.number, telling.owner,
        )  # fmt: skip
        assert finding.when == since_words(telling)
        assert f">{number_words(telling.number)}<" in section and finding.when in section
    blocks = [block for block in finding_blocks(told.pictured.report, None) if isinstance(block, Verdict)]
    remedies = [block.remedy for block in blocks if block.remedy] + [f.remedy for f in told.pictured.report.fixes()]
    assert len(remedies) == len(set(remedies)), "a remedy is told once"


def test_screen_shows_title_and_cause(told: Told) -> None:
    shown = plain_text(main_screen(told.frame, View(), 200, 80).rows)
    for telling in told.tellings:
        assert alarmed(telling.title) in shown


def test_the_exporter_counts_what_is_told_and_names_no_process(told: Told) -> None:
    frame = told.frame
    reading = PageReading(frame, True, True, frame.snapshot.t, {})
    page = metrics_page(reading, told.counters, ExporterCost(0.0, None), PageChoice())
    for telling, d in zip(told.tellings, frame.diagnoses, strict=True):
        rows = [row for row in page.splitlines() if f'gpu="{telling.gpu}"' in row]
        assert any(
            row.startswith("gputop_gpu_verdict{") and f'"{d.verdict}"' in row and row.endswith(" 1") for row in rows
        )
        assert telling.owner is not None and telling.owner.command is not None
        assert not any(telling.owner.command in row or f'"{telling.owner.pid}"' in row for row in rows)
        for verdict, seconds in (d.lost or {}).items():
            (row,) = (r for r in rows if r.startswith("gputop_gpu_lost_seconds_total{") and f'"{verdict}"' in r)
            assert float(row.split()[-1]) == pytest.approx(seconds, rel=1e-6)


def test_a_redacted_owner_is_numbered() -> None:
    redactor, monitor = Redactor(), Monitor()
    for snapshot in SimulatedSource("small_kernels", clock=lambda: LATE).past(60.0):
        frame = monitor.feed(redactor.snapshot(snapshot))
    (telling,) = tell(frame.diagnoses)
    assert telling.owner is not None and (telling.owner.user, telling.owner.command) == ("user1", "python")
