"""Every product shows the same GPU time of a recording: text, Markdown, page, JSON, diagnosis and comparison."""

from __future__ import annotations

import html
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from gputop.commands.diagnose import judged
from gputop.diagnosis.types import State
from gputop.diagnosis.verdict.worth import worth
from gputop.output.comparison import compare
from gputop.output.comparison_document import compare_data, compare_document
from gputop.output.diagnosis_text import diagnosis_document, diagnosis_json
from gputop.output.plain_document import plain
from gputop.output.report_document import time_figures
from gputop.output.report_html import report_html
from gputop.output.report_text import report_data, report_markdown, report_text
from gputop.output.snapshot_data import json_text
from gputop.recording.reader import read_snapshots
from gputop.report.job_report import JobReport, report_recording, report_snapshots
from gputop.report.lanes import pictured_recording
from gputop.report.time_account import UNJUDGED, UNRECORDED
from gputop.sources.simulation.simulated import SimulatedSource
from tests.support.recording_frames import recorded
from tests.support.scenes import gpu, snap, train, workers

TESTS = Path(__file__).parents[1]
RECORDINGS = sorted(
    [*(TESTS / "telemetry").glob("*.jsonl.gz"), *(TESTS / "vectors").glob("*.jsonl")]
)[::5]
EACH = pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name.partition(".")[0])


@cache
def _report(path: Path) -> JobReport:
    return report_recording(str(path))


@cache
def _diagnosed(path: Path) -> tuple[dict[str, Any], str]:
    frame, report = judged(read_snapshots(str(path)), None)
    return json.loads(json_text(diagnosis_json(frame, report))), plain(
        diagnosis_document(frame, report)
    )


def _words(text: str) -> str:
    """A text of any form without its markup."""
    return " ".join(html.unescape(re.sub(r"</?[a-z][^>]*>|[\\|*#-]", " ", text)).split())


@EACH
def test_the_time_adds_up_to_the_recording_s_length(path: Path) -> None:
    report = _report(path)
    rows = report.time.rows()
    assert sum(row.gpu_s for row in rows) == pytest.approx(report.duration_s * len(report.counted))
    assert sum(row.of_all for row in rows) == pytest.approx(1.0)
    assert sum(row.of_judged or 0.0 for row in rows) == pytest.approx(
        1.0 if report.time.judged_s else 0.0
    )
    for of_gpu in report.counted:
        assert sum(of_gpu.seconds.values()) == pytest.approx(
            report.time.measured_s / len(report.counted)
        )
        verdicts = [
            finding
            for finding in report.findings
            if (finding.gpu, finding.kind) == (of_gpu.index, "verdict")
        ]
        assert sum(finding.seconds for finding in verdicts) <= report.duration_s + 1e-6
        assert sum(finding.gain_s for finding in verdicts) <= sum(of_gpu.lost.values()) + 1e-6


@EACH
def test_diagnosis_and_report_give_the_same_numbers(path: Path) -> None:
    report, data = _report(path), report_data(_report(path))
    diagnosis, text = _diagnosed(path)
    for key in (
        "duration_s",
        "gpu_time_s",
        "judged_s",
        "lost_share",
        "state_s",
        "time",
        "begin",
        "end",
    ):
        assert diagnosis[key] == json.loads(json.dumps(data))[key], key
    for of_gpu, reported in zip(diagnosis["gpus"], report.gpus, strict=True):
        assert of_gpu["seconds"] == pytest.approx(dict(reported.seconds), abs=1e-3)
        assert of_gpu["lost_seconds"] == pytest.approx(dict(reported.lost), abs=1e-3)
        found = [
            f
            for f in report.findings
            if f.gpu == of_gpu["index"] and f.id.split()[0] == of_gpu["verdict"]
        ]
        for finding in (finding for finding in found if finding.spells == 1):
            assert (finding.level, finding.role, finding.text) == (
                of_gpu["level"],
                of_gpu["role"],
                of_gpu["title"],
            )
            assert finding.first_t == pytest.approx(max(of_gpu["since"], report.begin))
            assert finding.seconds == pytest.approx(
                min(of_gpu["lasted_s"], report.duration_s), abs=1e-3
            )
            assert finding.gain_s == pytest.approx(of_gpu["charged_s"], abs=1e-3)
    for name, value, note in time_figures(report).rows:
        shown = value if isinstance(value, str) else value.text
        assert re.search(rf"{re.escape(name)} +{re.escape(shown)}  {re.escape(note)}", text), name


@EACH
def test_every_form_has_every_row_of_the_account(path: Path) -> None:
    pictured, report = pictured_recording(str(path)), _report(path)
    assert to_builtins(pictured.report) == to_builtins(report)
    forms = {
        "text": report_text(report),
        "md": report_markdown(report),
        "html": report_html(pictured),
    }
    rows = json.loads(json.dumps(report_data(report)))["time"]
    figures = time_figures(report).rows
    assert [row["key"] for row in rows] == [row.key for row in report.time.rows()] and len(
        figures
    ) == len(rows) + 1
    for form, text in zip(forms, map(_words, forms.values()), strict=True):
        for name, value, note in figures:
            shown = value if isinstance(value, str) else value.text
            for part in (name, shown, note):
                assert _words(html.escape(part)) in text, (form, part)


@EACH
def test_a_comparison_has_the_shares_of_the_reports(path: Path) -> None:
    before, after = _report(path), _report(RECORDINGS[0])
    data = compare_data(compare(before, after))
    assert data["lost_share"] == {"before": before.time.lost_share, "after": after.time.lost_share}
    shares = {row["key"]: row["before"] for row in data["differences"]}
    for state, seconds in before.time.states.items():
        whole = before.time.measured_s if state == UNJUDGED else before.time.judged_s
        assert shares[f"share.{state}"] == (
            pytest.approx(100.0 * seconds / whole) if whole else None
        )


@pytest.mark.parametrize(
    ("state", "share", "words"),
    [
        ("starved", 0.62, "up to 2.6 × faster"), ("starved", 0.0, ""), ("starved", None, ""),
        ("starved", 1.0, "over 20 × faster at best"), ("busy_not_working", 0.92, "92 % of the chip is unused"),
        ("idle", 0.9, ""), ("idle_allocated", 0.9, ""), ("working", 0.3, ""), ("unmeasured", None, ""),
    ],
)  # fmt: skip
def test_a_bound_in_words(state: State, share: float | None, words: str) -> None:
    assert worth(state, share).words() == words
    assert worth(state, share).words(2.0).startswith(words)
    if words and share is not None:
        assert f"worth {2.0 * share:.2f} an hour at most" in worth(state, share).words(2.0)


def test_a_gap_is_a_row_of_its_own(tmp_path: Path) -> None:
    ticks = (*range(60), *range(1060, 1120))
    path = recorded(
        tmp_path / "gap.jsonl", (snap(tick, gpu(), [train(), *workers(2, 10.0)]) for tick in ticks)
    )
    report = report_recording(str(path))
    (gap,) = [row for row in report.time.rows() if row.key == UNRECORDED]
    assert (
        report.duration_s == 1119.0 and gap.gpu_s == pytest.approx(1000.0) and gap.of_judged is None
    )
    assert sum(row.gpu_s for row in report.time.rows()) == pytest.approx(1119.0)
    assert "not recorded" in report_text(report)


def test_idle_time_has_one_name() -> None:
    """Nothing is known of its process: the GPU is idle in every table, not starved in one of them."""
    report = report_snapshots(snap(tick, gpu(util=20.0, sm=15.0)) for tick in range(120))
    assert not report.time.lost, "nobody is known to hold it"
    rows = {row.key: row.gpu_s for row in report.time.rows()}
    assert rows["idle"] == pytest.approx(report.time.states["idle"]) and rows["idle"] > 0.0


@pytest.mark.parametrize("scenario", ["lost_gpu", "asleep", "mig", "idle_holding_memory"])
def test_worked_wasted_idle_and_not_judged_add_up_to_the_wall_time(scenario: str) -> None:
    """Idle time of a GPU that nobody holds is no waste, and a lost GPU's time is in neither."""
    report = report_snapshots(SimulatedSource(scenario, clock=lambda: 1_780_000_000.0).past(200.0))
    time = report.time
    parts = {row.key: row.gpu_s for row in time.rows()}
    cards = sum(gpu.card_share for gpu in report.counted)
    assert sum(parts.values()) == pytest.approx(cards * report.duration_s)
    assert time.judged_s - time.lost_s - time.idle_s >= -1e-6, "no part is counted twice"
    assert not {"idle", "lost"} & time.lost.keys()
    assert parts.get("idle", 0.0) == pytest.approx(time.states["idle"])
    for text in (report_markdown(report), plain(compare_document(compare(report, report)))):
        assert not re.search(r"(was|were|time|GPU-.) lost|[Ll]ost (to|time)|lost:", text)
        assert "wasted" in text
