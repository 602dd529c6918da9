"""Reports as pages: what they say, that nothing in them runs, and that they stay small."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.model.snapshot import Event
from gputop.output.comparison import MeanChange, change, sentence
from gputop.output.html import prose
from gputop.output.report_html import compare_html, report_html
from gputop.output.report_text import report_data, report_markdown
from gputop.report.lanes import COLUMNS, LaneColumn, Pictured, pictured, pictured_recording
from gputop.sources.simulation.simulated import SimulatedSource
from tests.support.recording_frames import recorded
from tests.support.scenes import T0, gpu, snap, train, workers

VECTORS = Path(__file__).parents[1] / "vectors"


class _Strict(HTMLParser):
    """Every element is closed by its own end, and none of them can do anything."""

    VOID = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs), attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _parsed(page: str) -> _Strict:
    parser = _Strict()
    parser.feed(page)
    assert not parser.open and "script" not in parser.seen
    return parser


@pytest.fixture(scope="module")
def flagged() -> Pictured:
    return pictured_recording(str(VECTORS / "busy_not_working_A.jsonl"))


def test_a_report_page_says_what_the_gpu_did_and_shows_it(flagged: Pictured) -> None:
    page = report_html(flagged)
    assert {"svg", "path", "rect", "table"} <= _parsed(page).seen
    for words in (
        "GPU-s lost",
        "busy, not working: small kernels",
        "what helps",
        "Where the time went",
        "efficiency",
    ):
        assert words in page
    assert "/ 100" not in page


def test_a_gpu_that_does_not_work_is_an_alarm_whatever_its_words(flagged: Pictured) -> None:
    other_words = tuple(replace(finding, text="small kernels") for finding in flagged.report.findings)
    for findings in (flagged.report.findings, other_words, ()):
        page = report_html(replace(flagged, report=replace(flagged.report, findings=findings)))
        assert page.count('<header class="alarm">') == 1
    assert all("is_not_working" not in finding for finding in report_data(flagged.report)["findings"])


def test_a_page_of_a_day_of_eight_gpus_stays_below_two_megabytes(flagged: Pictured) -> None:
    ((uuid, columns),) = flagged.lanes.items()
    busy = tuple(LaneColumn(40 + i % 50, i % 40, i % 3 == 0, "red", f"busy, not working: {i}") for i in range(COLUMNS))
    assert len(columns) == COLUMNS
    gpus = tuple(replace(flagged.report.gpus[0], index=i, uuid=f"{uuid}{i}") for i in range(8))
    findings = tuple(replace(flagged.report.findings[0], gpu=i % 8) for i in range(1000))
    day = replace(
        flagged, report=replace(flagged.report, gpus=gpus, findings=findings), lanes={g.uuid: busy for g in gpus}
    )
    page = report_html(day)
    assert len(page.encode()) < 2_000_000
    # SM of the last column is drawn: no path is cut short.
    assert page.count(f"M{COLUMNS - 1} 100v-{(COLUMNS - 1) % 40}h1") == 8


def test_a_comparison_says_what_improved_and_how_sure_that_is(flagged: Pictured) -> None:
    healthy = pictured_recording(str(VECTORS / "healthy_spinning_main.jsonl"))
    page = compare_html(flagged, healthy)
    _parsed(page)
    assert "SM activity went from" in page and "points at 95 % confidence, sure" in page
    same = change(flagged, flagged)
    assert same is not None and not same.is_sure
    assert "stayed at" in sentence(same)
    assert "chance" in sentence(MeanChange("SM", 40.0, 43.0, 5.0))
    assert "too short" in sentence(MeanChange("SM", 40.0, 43.0, None))


def test_util_that_rises_while_sm_falls_is_not_called_better(flagged: Pictured) -> None:
    from gputop.output.comparison import compare

    before, after = (
        flagged.report,
        replace(flagged.report, gpus=(replace(flagged.report.gpus[0], util_pct=100.0, sm_pct=1.0),)),
    )
    before = replace(before, gpus=(replace(before.gpus[0], util_pct=24.0, sm_pct=20.0),))
    found = {d.key: d.direction for d in compare(before, after).differences}
    assert (found["util_pct"], found["sm_pct"]) == ("changed", "worse")


def test_the_file_s_suffix_chooses_the_form_and_the_file_is_the_owner_s(tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    assert main(["report", str(VECTORS / "dataloader_cpu.jsonl"), "-o", str(path)]) == 0
    assert re.search(r"idle +[0-9]+ %", path.read_text("utf-8")) and path.stat().st_mode & 0o777 == 0o600
    assert main(["report", str(VECTORS / "dataloader_cpu.jsonl"), "-o", str(tmp_path / "no" / "r.html")]) == 2


def test_what_the_frames_do_not_cover_stays_empty(tmp_path: Path) -> None:
    ticks = (*range(30), *range(300, 330))
    path = recorded(tmp_path / "gap.jsonl", (snap(tick, gpu(), [train(), *workers(2, 10.0)]) for tick in ticks))
    (columns,) = pictured_recording(str(path)).lanes.values()
    assert columns[COLUMNS // 2] is None and columns[5] is not None and columns[-1] is not None


def test_a_damaged_recording_says_what_is_missing_whose_it_was_and_when(flagged: Pictured) -> None:
    text = "no data for 58 s: the recording is damaged here"
    gap = Event(flagged.report.begin + 3.0, "gap", text, is_damage=True)
    row = replace(flagged.processes[0], job="slurm 8830", user="rl")
    page = report_html(
        replace(flagged, report=replace(flagged.report, gaps=1, missing=(gap,)), processes=(row, replace(row, pid=9)))
    )
    _parsed(page)
    assert "Parts of this recording are damaged" in page and page.count("damaged here") >= 2
    begin = datetime.fromtimestamp(flagged.report.begin, timezone.utc)
    assert f"<span>{begin:%H:%M}" in page, "the axis of time has the clock at its begin"
    assert "missing" not in report_html(flagged)


def test_a_finding_of_several_gpus_is_told_once_in_every_form(flagged: Pictured) -> None:
    (finding, *_) = flagged.report.findings
    report = replace(flagged.report, findings=tuple(replace(finding, gpu=gpu) for gpu in (0, 1, 2, 5)))
    page = report_html(replace(flagged, report=report))
    assert page.partition("<h2>Other findings")[2].count(">GPUs 1, 2, 5: ") == 1, "GPU 0 has a card"
    assert report_markdown(report).partition("## Findings")[2].count(f": {finding.text}") == 1
    assert len(report_data(report)["findings"]) == 4


def test_commands_in_a_remedy_are_code_and_half_a_backtick_is_none() -> None:
    assert prose("raise it (`gputop loader` finds <how many>)") == (
        "raise it (<code>gputop loader</code> finds &lt;how many&gt;)"
    )
    assert prose("a ` alone") == "a ` alone"


def test_the_headline_and_what_was_not_judged_sum_up_to_the_cards() -> None:
    page = report_html(pictured(list(SimulatedSource(clock=lambda: T0).past(120.0))))
    lost, judged, apart = map(float, re.findall(r"([0-9.]+) of ([0-9.]+) GPU-. lost.*?, ([0-9.]+) GPU-. not", page)[0])
    *cards, whole = map(float, re.findall(r'class="tile[^"]*"><b>([0-9.]+) GPU-.</b>', page))
    assert len(cards) > 4 and lost < judged and apart > 0.0
    assert whole == pytest.approx(judged + apart, abs=0.02) and sum(cards) == pytest.approx(whole, abs=0.06)


def test_on_a_narrow_screen_cells_stand_below_each_other_with_their_names() -> None:
    page = report_html(pictured(list(SimulatedSource("small_kernels", clock=lambda: T0).recent(120.0))))
    assert '<table class="stacks">' in page
    assert 'data-name="wins at most"' in page and 'data-name="what helps"' in page
