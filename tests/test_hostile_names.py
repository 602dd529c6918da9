"""Names by enemies through every output: no control character, no markup of theirs, no secret, and no name redacted.

Each command that shows something from outside is in ``OUTPUTS``; a command that is added has to be put there.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec.structs import replace

from gputop.api.run_summary import Summary, WatchCost
from gputop.cli import main
from gputop.commands.registry import commands_and_parts
from gputop.features.alerts.alert_judge import AlertChange
from gputop.features.alerts.alert_table import alerts_of
from gputop.features.alerts.firing import NotHanded, gpus_firing
from gputop.features.fleet.decode_answers import labels_of
from gputop.features.fleet.fleet_data import RedactedFleet
from gputop.features.fleet.fleet_frame import fleet_frame
from gputop.features.fleet.fleet_screen import fleet_screen
from gputop.features.fleet.fleet_ticket import ticket_text as ticket_text_of_fleet
from gputop.features.fleet.fleet_view import FleetView, Panel, rows_of
from gputop.features.fleet.simulated_fleet import STARTED
from gputop.mcp.answers import labelled
from gputop.model.quantity import clean_text
from gputop.model.redaction import Redactor
from gputop.monitor import Frame, Monitor
from gputop.output.diagnosis_text import ticket_text
from gputop.output.report_text import report_markdown
from gputop.output.snapshot_data import json_text, snapshot_data
from gputop.paint.line import cells
from gputop.report.job_report import ReportBuilder, report_recording
from gputop.sources.one_reading import OneReading
from tests.support.hostile import ATTACKS, CONTROLS, FACT, MARK, SECRET, HostileFleet, recording, snapshot, trace
from tests.support.recording_frames import rounded
from tests.support.scripted_engine import answers
from tests.support.scripted_engine import engine as scripted
from tests.support.synthetic_trace import planted, written

OUTPUTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "once": (("once",), ("once", "--json"), ("once", "--csv")),
    "export": (
        ("export", "--once", "--processes", "--dcgm-names", "4.9"), ("export", "--once", "--textfile", "OUT.prom"),
    ),
    "report": (
        ("report", "FILE"), ("report", "FILE", "--json"), ("report", "FILE", "--markdown"),
        ("report", "FILE", "-o", "OUT.html"), ("report", "FILE", "-o", "OUT.md"),
    ),
    "compare": (("compare", "FILE", "FILE"), ("compare", "FILE", "FILE", "-o", "OUT.html")),
    "dump": (("dump", "FILE", "--json"), ("dump", "FILE", "--csv")),
    "diagnose": (("diagnose", "FILE"), ("diagnose", "FILE", "--json")),
    "alerts": (("alerts", "FILE", "--config", "ALERTS"), ("alerts", "FILE", "--json", "--config", "ALERTS")),
    "screenshot": (
        ("screenshot", "FILE", "-o", "OUT.svg"), ("screenshot", "FILE", "-o", "OUT.txt", "--size", "200x60"),
        ("screenshot", "fleet", "--prom", "URL", "-o", "OUT.svg"),
        ("screenshot", "fleet", "--prom", "URL", "-o", "OUT.txt"),
    ),
    "fleet": (("fleet", "--prom", "URL", "--json"), ("fleet", "--prom", "URL", "--csv")),
    "fleet diagnose": (("fleet", "diagnose", "--prom", "URL"), ("fleet", "diagnose", "--prom", "URL", "--json")),
    "trace": (
        ("trace", "TRACE"), ("trace", "TRACE", "--json"), ("trace", "TRACE", "-o", "OUT.html"),
        ("trace", "--compare", "TRACE", "TRACE"),
    ),
}  # fmt: skip
"""Commands with the words that make them show names. FILE is a recording, URL an engine, OUT what is written."""
ELSEWHERE = {
    "demo": "made of our own names", "fleet demo": "made of our own names", "fleet deploy": "no name from outside",
    "fleet queries": "no name from outside", "completion": "no name from outside", "config": "what its user wrote",
    "help": "no name from outside", "doctor": "test_doctor", "loader": "test_loader_bench", "prove": "test_prove",
    "mark": "test_marks", "replay": "draws what screenshot draws", "serve": "draws what the screen draws",
    "record": "what it writes is what FILE holds", "run": "ends in the report", "mcp": "below, without its process",
    "memory": "test_memory_snapshot", "fleet remedy": "test_fleet_remedies",
}  # fmt: skip
ALERTS = '[[alert]]\nname = "busy"\nwhen = "util_pct > 30"\nfor = "5s"\nrun = ["/bin/echo", "{gpu}", "{uuid}"]\n'


def test_every_command_is_in_one_of_the_two_lists() -> None:
    assert sorted([*OUTPUTS, *ELSEWHERE]) == sorted(commands_and_parts())


class Page(HTMLParser):
    """What a browser would make elements and attributes of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        for key, value in attrs:
            self.found.append(f"{tag} {key}")
            assert not (value or "").lower().strip().startswith("javascript:"), value
            assert key not in ("href", "src", "style") or MARK not in (value or ""), value


def harmless(name: str, text: str) -> None:
    """Nothing in a text does anything but be read."""
    assert not CONTROLS & set(text), sorted(CONTROLS & set(text))
    assert SECRET not in text
    text.encode()
    if name.endswith((".html", ".svg")):
        assert not {"img", "img src", "img onerror", "svg onload"} & set(Page(text).found)
        assert "alert" not in "".join(re.findall(r"<script.*?</script>", text, re.DOTALL))
    if name.endswith(".svg"):
        ElementTree.fromstring(text)
    if name.endswith((".md", "--markdown")):
        assert not re.search(r"(?<!\\)(?:<(?:script|img|svg)|\[a\]|`)", text)
    if name.endswith("--csv"):
        import csv

        rows = list(csv.reader(text.splitlines()))
        assert len({len(row) for row in rows}) == 1
        assert not [cell for row in rows for cell in row if cell[:1] in ("=", "+", "@", "\t")]
    if text and name.endswith((".prom", "4.9")) and "--textfile" not in name:
        from prometheus_client.parser import text_string_to_metric_families

        assert list(text_string_to_metric_families(text))
    if name.endswith("--json"):
        for each in [text] if text.startswith("{\n") else text.splitlines():
            json.loads(each)


class Live:
    """This machine, as a source gives it."""

    def __init__(self) -> None:
        self.read = OneReading(snapshot(40.0, clean=True))

    def look(self, *_: Any) -> None: ...

    def close(self) -> None: ...

    def read_once(self, *_: Any) -> OneReading:
        return self.read


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "alerts.toml").write_text(ALERTS)
    (folder / "alerts.toml").chmod(0o600)
    with scripted() as server:
        server.answer = answers(HostileFleet(24))
        words = {
            "FILE": recording(folder / "r.jsonl.gz"), "URL": server.url, "ALERTS": str(folder / "alerts.toml"),
            "TRACE": str(written(folder / "t.json", trace(planted("small_kernels")))),
        }  # fmt: skip
        yield lambda word: words.get(word, str(folder / word.lower()) if word.startswith("OUT.") else word)


CASES = [words for each in OUTPUTS.values() for words in each]


@pytest.mark.slow
@pytest.mark.parametrize("redacted", [False, True], ids=["plain", "redacted"])
@pytest.mark.parametrize("words", CASES, ids=" ".join)
def test_hostile_names_do_nothing(
    words: tuple[str, ...], redacted: bool, place: Callable[[str], str], monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("gputop.sources.local.open_local", lambda *_: Live())
    for word in words:
        if word.startswith("OUT."):
            Path(place(word)).unlink(missing_ok=True)
    status = main([*map(place, words), *["--redact"] * redacted])
    shown = capfd.readouterr()
    assert status in (0, 1, 2), shown.err
    texts = [("" if "-o" in words else " ".join(words), shown.out), ("", shown.err)]
    texts += [(word, Path(place(word)).read_text(encoding="utf-8")) for word in words if word.startswith("OUT.")]
    assert any(MARK in text or FACT in text for _, text in texts) or redacted or words[0] in ("alerts", "compare"), (
        texts
    )
    for name, text in texts:
        harmless(name, text)
        if redacted:
            assert MARK not in text, text[text.index(MARK) - 200 : text.index(MARK) + 100]


def frames() -> Frame:
    monitor = Monitor(1.0)
    return [monitor.feed(rounded(snapshot(float(t)))) for t in range(12)][-1]


def test_what_is_told_to_programs_and_people_is_harmless() -> None:
    frame = frames()
    harmless("--json", json_text(labelled(snapshot_data(frame.snapshot))))
    harmless("", ticket_text(frame, 0))
    alert = alerts_of([{"name": "busy", "when": "util_pct > 30", "run": ["echo", "{gpu}", "{uuid}"]}])[0]
    static = frame.snapshot.gpus[0].static
    firing = gpus_firing(AlertChange("fired", 40.0, alert, "", (0,), (static.uuid,), 30.0), frame, [0])
    with pytest.raises(NotHanded, match="uuid"):
        firing.argv()
    harmless("--json", firing.json())
    harmless("", firing.title + firing.body.replace("\n", ""))


def test_a_name_in_markdown_is_no_link_no_picture_and_no_table() -> None:
    frame = frames()
    builder = ReportBuilder()
    builder.add(frame)
    for attack in ATTACKS:
        text = report_markdown(builder.report(command=clean_text(attack)))
        harmless("x.md", text)
    assert "\\[a\\](http" in text


@pytest.mark.slow
def test_a_page_for_a_notebook_is_harmless(tmp_path: Path) -> None:
    report = report_recording(recording(tmp_path / "r.jsonl"))
    summary = Summary(report, (), None, WatchCost(1.0, 1.0, 0.0), available=True, reason=None)
    harmless("x.html", summary.html)
    harmless("x.html", summary._repr_html_())
    harmless("", summary.text)
    harmless("--json", json.dumps(summary.to_dict()))


@pytest.mark.slow
@pytest.mark.parametrize("redacted", [False, True], ids=["plain", "redacted"])
def test_every_page_and_ticket_of_the_fleet_is_harmless(redacted: bool) -> None:
    hostile = HostileFleet(40)
    read = hostile.ask(STARTED)
    fleet = RedactedFleet(hostile, Redactor()) if redacted else hostile
    frame = fleet_frame(replace(fleet.ask(STARTED), lost=fleet.hour(STARTED)))
    assert len(read.gpus) == 320
    for panel in get_args(Panel):
        for row in range(8):
            view = FleetView(panel=panel, host=rows_of(frame, FleetView())[row])
            lines = ["".join(text for text, _ in line) for line in fleet_screen(frame, view, 200, 60).rows]
            assert {cells(line) for line in lines} == {200}
            harmless("", "\n".join(lines))
            harmless("", ticket_text_of_fleet(frame, view))
            assert not redacted or MARK not in "".join(lines)


@pytest.mark.parametrize("raw", [b'{"a":"\xff\xfe"}', b'{"\xc3":"x"}'])
def test_a_label_that_is_no_text_does_not_hide_a_fleet(raw: bytes) -> None:
    assert len(labels_of(msgspec.Raw(raw))) == 1
