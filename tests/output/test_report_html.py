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
from gputop.output.report_html import report_html
from gputop.output.report_text import report_data, report_markdown
from gputop.report.lanes import Pictured, pictured, pictured_recording
from gputop.sources.simulation.simulated import SimulatedSource
from tests.support.scenes import T0

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
        "GPU-s wasted",
        "busy, not working: small kernels",
        "what helps",
        "Where the time went",
        "efficiency",
    ):
        assert words in page
    assert "/ 100" not in page


def test_the_file_s_suffix_chooses_the_form_and_the_file_is_the_owner_s(tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    assert main(["report", str(VECTORS / "dataloader_cpu.jsonl"), "-o", str(path)]) == 0
    assert (
        re.search(r"idle +[0-9]+ %", path.read_text("utf-8"))
        and path.stat().st_mode & 0o777 == 0o600
    )
    assert (
        main(
            ["report", str(VECTORS / "dataloader_cpu.jsonl"), "-o", str(tmp_path / "no" / "r.html")]
        )
        == 2
    )


def test_a_damaged_recording_says_what_is_missing_and_when(flagged: Pictured) -> None:
    text = "no data for 58 s: the recording is damaged here"
    gap = Event(flagged.report.begin + 3.0, "gap", text, is_damage=True)
    page = report_html(replace(flagged, report=replace(flagged.report, gaps=1, missing=(gap,))))
    _parsed(page)
    assert "Parts of this recording are damaged" in page and page.count("damaged here") >= 2
    begin = datetime.fromtimestamp(flagged.report.begin, timezone.utc)
    assert f"<span>{begin:%H:%M}" in page, "the axis of time has the clock at its begin"
    assert "missing" not in report_html(flagged)


def test_a_finding_of_several_gpus_is_told_once_in_every_form(flagged: Pictured) -> None:
    (finding, *_) = flagged.report.findings
    report = replace(
        flagged.report, findings=tuple(replace(finding, gpu=gpu) for gpu in (0, 1, 2, 5))
    )
    page = report_html(replace(flagged, report=report))
    assert page.partition("<h2>Other findings")[2].count(">GPUs 1, 2, 5: ") == 1, "GPU 0 has a card"
    assert report_markdown(report).partition("## Findings")[2].count(f": {finding.text}") == 1
    assert len(report_data(report)["findings"]) == 4


def test_the_headline_and_what_was_not_judged_sum_up_to_the_cards() -> None:
    page = report_html(pictured(list(SimulatedSource(clock=lambda: T0).past(120.0))))
    wasted, judged, apart = map(
        float, re.findall(r"([0-9.]+) of ([0-9.]+) GPU-. wasted.*?, ([0-9.]+) GPU-. not", page)[0]
    )
    *cards, whole = map(float, re.findall(r'class="tile[^"]*"><b>([0-9.]+) GPU-.</b>', page))
    assert len(cards) > 4 and wasted < judged and apart > 0.0
    assert whole == pytest.approx(judged + apart, abs=0.02) and sum(cards) == pytest.approx(
        whole, abs=0.06
    )
