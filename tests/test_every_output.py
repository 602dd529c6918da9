"""One poisoned machine through every output of every command: names by enemies, secrets, and names to be redacted.

No control character, no markup of theirs, no secret, and with ``--redact`` no name; nothing is sent, and only what was
asked for is written. Each command that shows something from outside is in ``OUTPUTS`` or ``LIVE``; one that is added
has to be put there, or into ``ELSEWHERE``.
"""

from __future__ import annotations

import csv
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import pytest

from gputop.api.run_summary import Summary
from gputop.api.watch_cost import WatchCost
from gputop.cli import main
from gputop.command_line.registry import COMMANDS_AND_PARTS
from gputop.features.alerts.alert_table import alerts_of
from gputop.features.alerts.evaluator import firing
from gputop.features.fleet.judge.fleet_frame import fleet_frame
from gputop.features.fleet.read.redacted_fleet import RedactedFleet
from gputop.features.fleet.read.simulated_fleet import STARTED
from gputop.features.fleet.show.fleet_screen import fleet_screen
from gputop.features.fleet.show.fleet_view import FleetView, Panel, rows_of
from gputop.mcp.answers import labelled
from gputop.model.clean_text import clean_text
from gputop.model.redaction import Redactor
from gputop.model.secret_marks import MASK
from gputop.model.snapshot import Snapshot
from gputop.monitor import Frame, Monitor
from gputop.output.report_text import report_markdown
from gputop.output.snapshot_data import json_text, snapshot_data
from gputop.output.ticket import ticket_text
from gputop.paint.cells import cells
from gputop.report.job_report import ReportBuilder, report_recording
from gputop.sources.one_reading import OneReading
from tests.nvml.stand_in import Scenario
from tests.support.hostile import (
    ATTACKS,
    CONTROLS,
    FACT,
    MARK,
    SECRET,
    HostileFleet,
    recording,
    snapshot,
    trace,
)
from tests.support.poisoned import SECRETS, PoisonedMachine, S, holds_a_secret
from tests.support.recording_frames import read_back
from tests.support.scripted_engine import answers
from tests.support.scripted_engine import engine as scripted
from tests.support.synthetic_trace import planted, written

OUTPUTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "once": (("once",), ("once", "--json"), ("once", "--csv"), ("once", "--filter", "mem>0G")),
    "export": (
        ("export", "--once", "--processes"), ("export", "--once", "--textfile", "OUT.prom"),
    ),
    "report": (
        ("report", "FILE"), ("report", "FILE", "--json"), ("report", "FILE", "--markdown"),
        ("report", "FILE", "-o", "OUT.html"), ("report", "FILE", "-o", "OUT.md"),
        ("report", "FILE", "-o", "OUT.svg"),
    ),
    "compare": (
        ("compare", "FILE", "FILE"), ("compare", "FILE", "FILE", "--json"),
        ("compare", "FILE", "FILE", "-o", "OUT.html"), ("compare", "FILE", "FILE", "FILE"),
    ),
    "dump": (("dump", "FILE", "--json"), ("dump", "FILE", "--csv")),
    "diagnose": (("diagnose", "FILE"), ("diagnose", "FILE", "--json")),
    "alerts": (("alerts", "FILE", "--config", "ALERTS"), ("alerts", "FILE", "--json", "--config", "ALERTS")),
    "screenshot": (
        ("screenshot", "FILE", "-o", "OUT.svg"),
        ("screenshot", "FILE", "-o", "OUT.txt", "--size", "200x60"),
        ("screenshot", "fleet", "--prom", "URL", "-o", "OUT.svg"),
        ("screenshot", "fleet", "--prom", "URL", "-o", "OUT.txt"),
    ),
    "fleet": (("fleet", "--prom", "URL", "--json"), ("fleet", "--prom", "URL", "--csv")),
    "trace": (
        ("trace", "TRACE"), ("trace", "TRACE", "--json"), ("trace", "TRACE", "-o", "OUT.html"),
        ("trace", "--compare", "TRACE", "TRACE"),
    ),
}  # fmt: skip
"""Commands with the words that make them show names. FILE is a recording, URL an engine, OUT what is written."""
ELSEWHERE = {
    "pick": "UUIDs and indices alone",
    "demo": "made of our own names", "fleet demo": "made of our own names", "fleet deploy": "no name from outside",
    "fleet queries": "no name from outside", "completion": "no name from outside", "config": "what its user wrote",
    "help": "no name from outside", "doctor": "below, as a program", "loader": "test_loader_bench",
    "prove": "test_prove", "mark": "below, as a program", "replay": "below, as a program",
    "serve": "draws what the screen draws", "record": "below, as a program", "run": "below, as a program",
    "mcp": "below, without its process",
    "memory": "test_memory_snapshot",
}  # fmt: skip
ALERTS = '[[alert]]\nname = "busy"\nwhen = "util_pct > 30"\nfor = "5s"\nrun = ["/bin/echo"]\n'


def test_every_command_is_in_one_of_the_two_lists() -> None:
    assert sorted([*OUTPUTS, *ELSEWHERE]) == sorted(COMMANDS_AND_PARTS)


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

    def __init__(self, found: Snapshot) -> None:
        self.read = OneReading(found)

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
        yield lambda word: words.get(
            word, str(folder / word.lower()) if word.startswith("OUT.") else word
        )


CASES = [words for each in OUTPUTS.values() for words in each]
QUICK = (
    "once --json",
    "report FILE",
    "dump FILE --csv",
    "screenshot FILE -o OUT.txt",
    "diagnose FILE",
)


@pytest.mark.parametrize("mode", ["plain", "redacted"])
@pytest.mark.parametrize(
    "words", [pytest.param(words, marks=[pytest.mark.slow] * (" ".join(words) not in QUICK)) for words in CASES],
    ids=" ".join,
)  # fmt: skip
def test_an_output_is_harmless_and_a_redacted_one_names_nobody(
    words: tuple[str, ...], mode: str, place: Callable[[str], str], monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(
        "gputop.sources.local.open_local", lambda *_: Live(snapshot(40.0, clean=True))
    )
    said = list(map(place, words))
    for word in words:
        if word.startswith("OUT."):
            Path(place(word)).unlink(missing_ok=True)
    status = main([*said, *["--redact"] * (mode != "plain")])
    shown = capfd.readouterr()
    assert status in (0, 1, 2), shown.err
    texts = [("" if "-o" in words else " ".join(words), shown.out), ("", shown.err)]
    texts += [
        (word, Path(place(word)).read_text(encoding="utf-8"))
        for word in words
        if word.startswith("OUT.")
    ]
    seen = any(MARK in text or FACT in text for _, text in texts)
    assert seen or mode != "plain" or words[0] in ("alerts", "compare"), texts
    for name, text in texts:
        harmless(name, text)
        if mode == "redacted":
            assert MARK not in text, text[text.index(MARK) - 200 : text.index(MARK) + 100]


def frames() -> Frame:
    monitor = Monitor(1.0)
    return [monitor.feed(each) for each in read_back(*(snapshot(float(t)) for t in range(12)))][-1]


def test_what_is_told_to_programs_and_people_is_harmless() -> None:
    frame = frames()
    harmless("--json", json_text(labelled(snapshot_data(frame.snapshot))))
    harmless("", ticket_text(frame, 0))
    alert = alerts_of([{"name": "busy", "when": "util_pct > 30", "run": ["echo"]}])[0]
    harmless("--json", json.dumps(firing(alert, frame, [0], 30.0).data, ensure_ascii=False))


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
def test_every_page_of_the_fleet_is_harmless(redacted: bool) -> None:
    hostile = HostileFleet(40)
    read = hostile.ask(STARTED)
    fleet = RedactedFleet(hostile, Redactor()) if redacted else hostile
    frame = fleet_frame(fleet.ask(STARTED))
    assert len(read.gpus) == 320
    for panel in get_args(Panel):
        for row in range(8):
            view = FleetView(panel=panel, host=rows_of(frame, FleetView())[row])
            lines = [
                "".join(text for text, _ in line)
                for line in fleet_screen(frame, view, 200, 60).rows
            ]
            assert {cells(line) for line in lines} == {200}
            harmless("", "\n".join(lines))
            assert not redacted or MARK not in "".join(lines)


def test_own_processes_are_found_under_their_user_s_number(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "--once", "--redact", "-u", "rl"]) == 0
    shown = capsys.readouterr().out
    assert "4711" in shown and "user1" in shown
    assert "4301" not in shown and "train.py" not in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ("config", "--dcgm-url", f"http://me:{S}@127.0.0.1:9/metrics"), ("once", "--dcgm-url", f"ftp://me:{S}@h"),
        ("replay", f"http://me:{S}@h/x"), ("report", f"/nonexistent/token={S}"), ("once", "--theme", SECRET), (SECRET,),
        ("run", "--", f"/nonexistent/{SECRET}"), ("once", "--filter", f"password={S}"), ("mark", f"password={S}"),
    ],
)  # fmt: skip
def test_messages_about_a_wrong_word_do_not_repeat_a_secret(
    arguments: tuple[str, ...],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    # Where somebody listens, a mark is sent to them and nothing is said.
    monkeypatch.setattr("gputop.sources.marks.runtime_directories", lambda: [str(tmp_path)])
    with suppress(SystemExit):
        main(arguments)
    shown = capfd.readouterr()
    assert shown.out or shown.err
    assert not holds_a_secret((shown.out + shown.err).encode())


# Whole programs: what they print and write of real processes, and which sockets they use for it.

LIVE: tuple[tuple[str, ...], ...] = (
    ("once",), ("once", "--json"), ("diagnose", "--for", "1s"), ("config",), ("config", "--init"),
    ("record", "--for", "2s", "-o", "r.jsonl"), ("report", "r.jsonl"), ("export", "--once", "--processes"),
    ("run", "-o", "run.jsonl", "--report", "run.md", "--", "true", *SECRETS),
    ("run", "-o", "m.jsonl", "--report", "m.md", "--", sys.executable, "-m", "gputop", "mark", f"--token {S}"),
    ("screenshot", "r.jsonl", "-o", "s.svg"),
)  # fmt: skip
ASKED_FOR, IF_MEASURED = {"r.jsonl", "run.md", "m.md", "s.svg"}, {"run.jsonl", "m.jsonl"}
LOOKED_AT = (
    "('localhost', 9400", "('127.0.0.1', 9400)", "('::1', 9400", "('127.0.0.1', 9401",
)  # fmt: skip
"""Where a GPU without GPM is looked up once, and ``doctor`` looks whether this node is exported: unasked, no others.
An exporter that happens to run beside the tests is found by its command line, and asked at the usual address alone."""


@pytest.fixture
def machine(
    nvml_scenario: Callable[..., Scenario], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    made: list[PoisonedMachine] = []

    def make(scenario: Scenario | None = None, *, processes: bool = True) -> PoisonedMachine:
        # A short path: the address of a Unix socket has 107 bytes.
        made.append(
            PoisonedMachine(
                tmp_path_factory.mktemp("p"), scenario or nvml_scenario(1), processes=processes
            )
        )
        return made[-1]

    yield make
    for there in made:
        there.close()


@pytest.mark.nvml
def test_one_look_and_the_screen_send_and_write_nothing_and_show_no_secret(machine: Any) -> None:
    there = machine(processes=False)
    shown = there.run("once", "--json")
    assert f"--api-key {MASK} --password={MASK} HF_TOKEN={MASK}" in shown
    assert "--max-tokens 512" in shown and "--tokenizer bert" in shown
    there.screen(keys=(("?", "keys"),))
    assert there.sockets() == [] and there.written().keys() <= {"run/gputop"}
    assert not holds_a_secret(there.seen)


@pytest.mark.slow
@pytest.mark.nvml
@pytest.mark.parametrize("redacted", [False, True], ids=["plain", "redacted"])
def test_programs_show_nothing_hostile_of_real_processes_and_send_nothing(
    machine: Any, redacted: bool
) -> None:
    there: PoisonedMachine = machine()
    shown = {}
    for words in LIVE:
        job = words.index("--") if "--" in words else len(words)
        shown[" ".join(words[:job])] = there.run(
            *words[:job], *["--redact"] * redacted, *words[job:]
        )
    assert there.sockets() == []
    assert {
        name.removeprefix("work/") for name in there.written() if "work/" in name
    } - IF_MEASURED == ASKED_FOR
    assert {mode for name, mode in there.written().items() if name.startswith("work/")} == {0o600}
    rest = {name for name in there.written() if not name.startswith("work/")}
    assert rest == {"run/gputop", "config/gputop", "config/gputop/config.toml"}
    shown |= {name: data.decode() for name, data in there.files().items()}
    for name, text in shown.items():
        assert not CONTROLS & set(text), (name, sorted(CONTROLS & set(text)))
        assert not holds_a_secret(text.encode()), name
        assert not redacted or MARK not in text, (name, text[text.index(MARK) - 200 :][:300])
    assert FACT in shown["r.jsonl"]
    if not redacted:
        assert MARK in shown["r.jsonl"]
        assert all(
            MASK in shown[name].replace("\\*", "*") for name in ("r.jsonl", "run.md", "m.md")
        )
    written = there.screen("replay", "r.jsonl", *["--redact"] * redacted, keys=()).decode()
    commands = re.findall(r"\x1b\][^\x07\x1b]*\x07", written)
    assert (MARK in written) != redacted
    assert (
        MARK not in "".join(commands)
        and "owned" not in "".join(commands)
        and not holds_a_secret(written.encode())
    )
    # CAN ends a sequence that was cut off, before the terminal is restored.
    assert not (CONTROLS - set("\x08\x1b\r\x18")) & set(
        "".join(re.split(r"\x1b\][^\x07\x1b]*\x07", written))
    )


@pytest.mark.slow
@pytest.mark.nvml
def test_the_doctor_and_a_gpu_without_gpm_look_at_one_place_of_this_machine_only(
    machine: Any, nvml_scenario: Callable[..., Scenario]
) -> None:
    there: PoisonedMachine = machine(nvml_scenario(1, "NVIDIA A100-SXM4-80GB"), processes=False)
    there.run("once", "--wait", "1m")
    there.run("doctor", "--json", "--wait", "1m")
    asked = there.sockets()
    assert any(line.startswith("socket.connect") for line in asked)
    assert [line for line in asked if not any(where in line for where in LOOKED_AT)] == []
    assert there.written() == {} and not holds_a_secret(there.seen)


KEYS = (
    ("d", "to see more"), ("\x1b", "GPU-MEM"), ("e", "look like secrets"), ("\x1b", "GPU-MEM"), ("\x1b[20~", "SIGTERM"),
    ("\x1b", "GPU-MEM"), ("R", ".gz"), ("\x1b[19~", ".svg"),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.nvml
@pytest.mark.parametrize("how", ["masked", "shown", "redacted"])
def test_the_screen_shows_secrets_only_if_asked_to_and_writes_none(machine: Any, how: str) -> None:
    there: PoisonedMachine = machine(processes=False)
    asked = {"masked": {}, "shown": {"GPUTOP_SHOW_SECRETS": "1"}}.get(how, {"GPUTOP_REDACT": "1"})
    environment_page = (("e", "not shown with --redact"),) if how == "redacted" else KEYS[2:3]
    keys = (*KEYS[:2], *environment_page, *KEYS[3:]) if how != "shown" else KEYS[-2:]
    data = there.screen(keys=keys, **asked) + there.seen
    assert holds_a_secret(data) == (how == "shown")
    files = there.files()
    assert sorted(name.rsplit(".", 1)[-1] for name in files) == ["gz", "svg"]
    assert not any(map(holds_a_secret, files.values()))
    if how == "redacted":
        assert not any(
            str(there.root).encode() in each or b"GPU-5ca1" in each
            for each in (data, *files.values())
        )
