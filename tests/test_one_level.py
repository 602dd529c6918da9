"""A GPU has one level: in the library, in data, in reports, for assistants, in colour and for Prometheus."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.diagnosis.types import Badge, Role
from gputop.diagnosis.verdict.catalogue import verdict_roles, verdict_rows
from gputop.diagnosis.verdict.diagnosis_data import as_json
from gputop.diagnosis.verdict.summary import LEVEL_OF_ROLE, in_sample, level_of, role_of, summarize
from gputop.features.export.metrics_page import ExporterCost, PageChoice, PageReading, metrics_page
from gputop.features.export.run_counters import RunCounters
from gputop.features.traces.chrome import read_chrome
from gputop.features.traces.trace_analysis import StepChoice, analyse
from gputop.features.traces.trace_report import TraceVerdict
from gputop.mcp.answers import labelled
from gputop.model.snapshot import Snapshot
from gputop.monitor import Frame, Monitor
from gputop.output.diagnosis_text import diagnosis_document
from gputop.output.document import Verdict
from gputop.paint.panes import ShownGpu, title
from gputop.paint.view import View
from gputop.recording.reader import read_snapshots
from gputop.report.job_report import JobReport, ReportBuilder
from gputop.sources.simulation.scenarios import SCENARIOS
from gputop.sources.simulation.simulated import SimulatedSource, snapshot_at
from tests.support.expected_verdicts import EXPECTED
from tests.support.seldom import quick_ones
from tests.support.synthetic_trace import CAUSES, planted, written

TESTS = Path(__file__).parent
RECORDINGS = sorted(
    path
    for folder in ("telemetry", "vectors", "inputs")
    for path in (TESTS / folder).glob("*.jsonl*")
)
LATE = 1_780_000_000.0
EACH = 30
"""Samples between two comparisons; every sample is diagnosed."""
STEADY = 30
"""Samples that say the same before they are compared with a verdict, which is of a window as long."""
CONTRARY: tuple[tuple[Role, Role], ...] = (
    ("work", "not_working"), ("not_working", "work"), ("not_working", "information"), ("waiting", "work"),
)  # fmt: skip
"""What one sample says, and what the verdict beside it must not mean."""
STATED = {
    row.id: set(re.findall(r"green|info|yellow|red|grey", row.level)) for row in verdict_rows()
}
"""The levels that docs/verdicts.md and `gputop help verdicts` state for each verdict."""


def _recorded(name: str) -> Iterator[Snapshot]:
    if name in SCENARIOS:
        end = int(max(expected.after_s for expected in EXPECTED[name]))
        return (
            snapshot_at(LATE + second, scenario=name, started=LATE) for second in range(-25, end)
        )
    return read_snapshots(str(TESTS / name))


QUICK = (
    "node", "remedied", "checkpoint_pause", "lost_gpu", "straggler", "ecc", "hang", "stalled", "thermal",
    "idle_holding_memory", "no_sm_counter", "one_gpu", "shared_gpu", "asleep", "hollow", "fabric_link",
)  # fmt: skip
"""Scenes that show each level and role, and each kind of badge; recordings and other scenes are slow."""
SOURCES = [*(str(path.relative_to(TESTS)) for path in RECORDINGS), *SCENARIOS]


@pytest.mark.parametrize("name", quick_ones(SOURCES, QUICK))
def test_every_output_gives_a_gpu_the_same_level(name: str) -> None:
    monitor, builder, counters = Monitor(), ReportBuilder(), RunCounters()
    same: dict[str, tuple[Role, int]] = {}
    frame: Frame | None = None
    begin = 0.0
    for number, snapshot in enumerate(_recorded(name)):
        frame = monitor.feed(snapshot)
        begin = begin or snapshot.t
        builder.add(frame)
        counters.take(frame)
        _check_one_sample(frame, same)
        if number % EACH == EACH - 1:
            _check_levels(frame, counters, builder.report(), begin)
    assert frame is not None
    _check_levels(frame, counters, builder.report(), begin)


def _check_levels(frame: Frame, counters: RunCounters, report: JobReport, begin: float) -> None:
    data = json.loads(json.dumps(as_json(frame.snapshot, frame.diagnoses, begin)))
    answer = labelled(data)
    reading = PageReading(frame, True, True, frame.snapshot.t, {})
    page = metrics_page(reading, counters, ExporterCost(0.0), PageChoice())
    exported = dict(re.findall(r'gputop_gpu_level\{gpu="(\d+)".*level="([a-z-]+)"\} 1', page))
    states = dict(re.findall(r'gputop_gpu_state\{gpu="(\d+)".*state="([a-z_]+)"\} 1', page))
    document = diagnosis_document(frame, report)
    blocks = [block for block in document.blocks if isinstance(block, Verdict)]
    for position, d in enumerate(frame.diagnoses):
        told = summarize(d)
        painted = _painted(frame, position)
        levels = {
            "summary": told.level,
            "painted": painted,
            "diagnose --json": data["gpus"][position]["level"],
            "mcp": answer["gpus"][position]["level"],
            "exporter": exported[str(d.index)],
            "diagnose": blocks[position].level,
        }
        assert set(levels.values()) == {d.level}, (levels, d.level, d)
        assert states[str(d.index)] == d.state
        assert LEVEL_OF_ROLE[role_of(d)] in STATED[d.verdict], d
    _check_findings(frame, report)


def _painted(frame: Frame, position: int) -> str:
    """Level of the colour in which a GPU's title stands."""
    styles = [style or "" for _, style in title(ShownGpu(frame, View(), position), 160)]
    if "alarm.title" in styles:
        return "red"
    return next(style for style in styles if style.startswith("level.")).removeprefix("level.")


def test_a_busy_gpu_that_waits_for_a_straggler_is_painted_as_one_that_waits() -> None:
    monitor = Monitor()
    for snapshot in SimulatedSource("small_kernels", clock=lambda: LATE).past(40.0):
        frame = monitor.feed(snapshot)
    (alone,) = frame.diagnoses
    waits = Badge("straggler", "yellow", "waits for GPU 2", "", about=2)
    beside = replace(alone, badges=(waits,), level=level_of(alone.role, alone.state, (waits,)))
    assert (alone.level, _painted(frame, 0)) == ("red", "red")
    assert (beside.level, _painted(replace(frame, diagnoses=(beside,)), 0)) == ("yellow", "yellow")


def _check_findings(frame: Frame, report: JobReport) -> None:
    own_levels = {(d.index, d.verdict): LEVEL_OF_ROLE[role_of(d)] for d in frame.diagnoses}
    levels = {(d.index, d.verdict): d.level for d in frame.diagnoses}
    for finding in frame.findings:
        key = (finding.gpu, finding.id)
        if finding.kind == "verdict" and finding.ended is None and key in own_levels:
            assert finding.level == LEVEL_OF_ROLE[finding.role]
    for said in report.findings:
        key = (said.gpu, said.id.split()[0])
        if said.kind == "verdict" and key in levels:
            # A broken card is a finding of its own beside the verdict's.
            assert said.level in (levels[key], own_levels[key]), (said, levels[key])


def _check_one_sample(frame: Frame, same: dict[str, tuple[Role, int]]) -> None:
    """Compare what `once` says of a sample, where all samples of the window say so."""
    for gpu, d in zip(frame.snapshot.gpus, frame.diagnoses, strict=True):
        _, role = in_sample(gpu, frame.snapshot.processes, frame.snapshot.host)
        before, count = same.get(d.uuid, (role, 0))
        same[d.uuid] = (role, count + 1 if role == before else 1)
        if same[d.uuid][1] > STEADY and d.verdict != "collecting":
            assert (role, summarize(d).role) not in CONTRARY, d


@pytest.mark.parametrize("cause", CAUSES)
def test_a_trace_gives_a_verdict_the_level_of_the_screen(cause: str, tmp_path: Path) -> None:
    verdict = _of_trace(planted(cause), tmp_path)
    assert verdict.level in STATED[verdict.id] | {"info", "yellow"}
    if cause not in ("busy", "small_kernels"):
        assert verdict.level == LEVEL_OF_ROLE[verdict_roles()[verdict.id]]


def test_a_trace_whose_gpu_idles_most_of_the_time_is_yellow(tmp_path: Path) -> None:
    document = planted("launch_bound")
    (report,) = analyse(read_chrome(str(written(tmp_path / "t.json", document))), StepChoice(None))
    assert report.measures.share_pct["idle"] > 50.0
    assert (report.verdict.id, report.verdict.level) == ("main_process", "yellow")


def _of_trace(document: object, folder: Path) -> TraceVerdict:
    (report,) = analyse(read_chrome(str(written(folder / "t.json", document))), StepChoice(None))
    return report.verdict


@pytest.mark.parametrize(
    ("words", "level", "status"),
    [
        (["demo", "checkpoint_pause"], "info", 0),
        ([str(TESTS / "telemetry" / "h200_checkpoint.gputop.jsonl.gz")], "info", 0),
        ([str(TESTS / "telemetry" / "h200_small_steps.gputop.jsonl.gz")], "yellow", 1),
    ],
)
def test_a_pause_to_save_passes_a_gate_and_a_waiting_gpu_does_not(
    words: list[str], level: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", *words, "--json"]) == status
    (found,) = json.loads(capsys.readouterr().out)["gpus"]
    assert found["level"] == level
