"""No output of the program holds a secret from the command lines around it: the bytes of all of them are searched."""

from __future__ import annotations

import codecs
import gzip
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyte
import pytest

from gputop.cli import main
from gputop.model.secret_marks import MASK
from tests.nvml.stand_in import Process, Scenario
from tests.support.pty_program import ROOT, SCREEN_TAKEN, PtyProgram

pytestmark = pytest.mark.nvml

S = "Zq7xW9vK2mPl"
TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh"
ARGUMENTS = (
    "--api-key", S, f"--password=p {S} q", f"HF_TOKEN={S}", f"https://me:{S}@host/x?token={S}", "--max-tokens", "512",
    f"Authorization: Bearer {S}", TOKEN, "--tokenizer", "bert",
)  # fmt: skip
COLUMNS, ROWS = 240, 40
WAIT = "import threading, time; threading.Timer(900, print).start(); time.sleep(900)"


class Place:
    """A machine whose GPU is used by processes with secrets on their command lines, and an empty directory."""

    def __init__(self, root: Path, scenario: Scenario) -> None:
        self.work = root / "work"
        self.work.mkdir()
        (root / "run").mkdir(mode=0o700)
        script = root / "t.py"
        script.write_text(WAIT)
        self.processes = [
            subprocess.Popen([sys.executable, str(script), *ARGUMENTS], env={**os.environ, "MY_TOKEN": S}),
            subprocess.Popen([TOKEN, "900"], executable="/bin/sleep"),
            subprocess.Popen([f"trainer --token {S}", "900"], executable="/bin/sleep"),
        ]
        scenario.gpus[0].processes += [Process(process.pid, 1 << 30) for process in self.processes]
        scenario.write()
        self.environment = {
            **scenario.environment(), "PYTHONPATH": str(ROOT), "HOME": str(root), "XDG_RUNTIME_DIR": str(root / "run"),
        }  # fmt: skip
        self.seen = b""

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "gputop", *arguments],
            env=self.environment, cwd=self.work, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stderr
        self.seen += done.stdout + done.stderr
        return done.stdout.decode()

    def screen(self, keys: tuple[tuple[str, str], ...], **environment: str) -> bytes:
        """The live screen; each key is pressed, and what must show then is waited for."""
        before = os.getcwd()
        os.chdir(self.work)
        try:
            with PtyProgram(columns=COLUMNS, rows=ROWS, env={**self.environment, **environment}) as program:
                program.read_until(SCREEN_TAKEN)
                rows = Rows(program)
                rows.until("GPU-MEM")
                for key, shown in keys:
                    program.press(key)
                    if shown.startswith("."):
                        self._until_written(program, shown)
                    else:
                        rows.until(shown)
                    # What is written is often a part of a row: the rows are looked at as well.
                    self.seen += rows.text().encode()
                program.press("\x03")
                program.end()
                assert program.status == 0
                return program.written
        finally:
            os.chdir(before)

    def _until_written(self, program: PtyProgram, suffix: str) -> None:
        """Messages stand for some seconds only; a file stays."""
        deadline = time.monotonic() + 90.0
        while not any(path.suffix == suffix and path.stat().st_size for path in self.work.iterdir()):
            assert time.monotonic() < deadline, suffix
            program.read_for(0.1)

    def files(self) -> dict[str, bytes]:
        found = {}
        for path in self.work.rglob("*"):
            data = path.read_bytes()
            found[path.name] = gzip.decompress(data) if path.suffix == ".gz" else data
        return found

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


class Rows:
    """What the terminal shows, fed with what is new only: a whole screen takes the emulator a second."""

    def __init__(self, program: PtyProgram) -> None:
        self._program = program
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.Stream(self._screen)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._fed, self._rest = 0, ""

    def text(self) -> str:
        written = self._program.written
        text = self._rest + self._decoder.decode(written[self._fed :])
        self._fed = len(written)
        begun = re.search(r"\x1b(?:\[[0-?]*[ -/]*)?$", text)
        self._rest = text[begun.start() :] if begun else ""
        # The emulator takes private modes and the kitty protocol for text.
        self._stream.feed(re.sub(r"\x1b\[[<>=?][0-9;]*\$?[a-zA-Z]", "", text[: begun.start()] if begun else text))
        return "\n".join(self._screen.display)

    def until(self, text: str) -> str:
        """What shows as soon as a text does."""
        deadline = time.monotonic() + 60.0
        while text not in (shown := self.text()):
            assert time.monotonic() < deadline, (text, shown)
            self._program.read_for(0.1)
        return shown


def holds_a_secret(data: bytes) -> bool:
    return S.encode() in data or TOKEN[:12].encode() in data


@pytest.fixture
def place(tmp_path: Path, nvml_scenario: Callable[..., Scenario]) -> Iterator[Place]:
    there = Place(tmp_path, nvml_scenario(1))
    yield there
    there.close()


def test_one_look_and_a_recording_hold_no_secret(place: Place) -> None:
    shown = place.run("once", "--json")
    assert f"--api-key {MASK} --password={MASK} HF_TOKEN={MASK}" in shown
    assert "--max-tokens 512" in shown and "--tokenizer bert" in shown
    place.run("record", "--for", "1s", "-o", "r.jsonl.gz")
    assert not holds_a_secret(place.seen)
    assert MASK.encode() in place.files()["r.jsonl.gz"]
    assert not any(map(holds_a_secret, place.files().values()))


@pytest.mark.slow
def test_no_command_prints_or_writes_a_secret(place: Place) -> None:
    for arguments in (
        ("once",), ("once", "--csv"), ("once", "--filter", "mem>0G"), ("doctor",), ("doctor", "--json"),
        ("diagnose", "--for", "1s"), ("diagnose", "--for", "1s", "--json"), ("record", "--for", "2s", "-o", "r.jsonl"),
        ("dump", "r.jsonl", "--json"), ("dump", "r.jsonl", "--csv"), ("report", "r.jsonl"),
        ("report", "r.jsonl", "--json"), ("report", "r.jsonl", "--markdown"), ("compare", "r.jsonl", "r.jsonl"),
        ("diagnose", "r.jsonl"), ("screenshot", "r.jsonl", "-o", "s.svg"), ("screenshot", "r.jsonl", "-o", "s.txt"),
        ("screenshot", "r.jsonl", "-o", "s.ans"), ("export", "--once", "--processes", "--dcgm-names", "legacy"),
    ):  # fmt: skip
        place.run(*arguments)
    for suffix in ("md", "json", "txt"):
        place.run("run", "-o", f"{suffix}.jsonl", "--report", f"report.{suffix}", "--", "true", *ARGUMENTS)
    assert not holds_a_secret(place.seen)
    files = place.files()
    assert {"r.jsonl", "s.svg", "s.txt", "s.ans", "report.md", "report.json", "report.txt"} <= files.keys()
    assert [name for name, data in files.items() if holds_a_secret(data)] == []
    assert all(
        MASK.encode() in read_as(name, files[name]) for name in ("r.jsonl", "report.md", "report.json", "report.txt")
    )


def read_as(name: str, data: bytes) -> bytes:
    """What a reader of the file sees: in Markdown an asterisk that is meant stands behind a backslash."""
    return data.replace(b"\\*", b"*") if name.endswith(".md") else data


@pytest.mark.slow
def test_a_mark_with_a_secret_is_masked_where_it_is_taken_in(place: Place) -> None:
    mark = [sys.executable, "-m", "gputop", "mark", f"login with --token {S}"]
    place.run("run", "-o", "m.jsonl", "--report", "m.md", "--", *mark)
    assert f"login with --token {MASK}".encode() in read_as("m.md", place.files()["m.md"])
    assert not any(map(holds_a_secret, (place.seen, *place.files().values())))


KEYS = (
    ("d", "to see more"), ("\x1b", "GPU-MEM"), ("e", "look like secrets"), ("\x1b", "GPU-MEM"), ("\x1b[20~", "SIGTERM"),
    ("\x1b", "GPU-MEM"), ("R", ".gz"), ("\x1b[19~", ".svg"),
)  # fmt: skip


@pytest.mark.slow
def test_the_screen_and_what_it_writes_hold_no_secret(place: Place) -> None:
    assert not holds_a_secret(place.screen(KEYS) + place.seen)
    assert sorted(name.rsplit(".", 1)[-1] for name in place.files()) == ["gz", "svg"]
    assert not any(map(holds_a_secret, place.files().values()))


@pytest.mark.slow
def test_show_secrets_unmasks_the_screen_alone(place: Place) -> None:
    keys = (("", f"trainer --token {S} 900"), *KEYS[-2:])
    assert holds_a_secret(place.screen(keys, GPUTOP_SHOW_SECRETS="1"))
    assert len(place.files()) == 2
    assert not any(map(holds_a_secret, place.files().values()))


@pytest.mark.parametrize(
    "arguments",
    [
        ("config", "--dcgm-url", f"http://me:{S}@127.0.0.1:9/metrics"), ("once", "--dcgm-url", f"ftp://me:{S}@h"),
        ("replay", f"http://me:{S}@h/x"), ("report", f"/nonexistent/token={S}"), ("once", "--theme", TOKEN), (TOKEN,),
        ("run", "--", f"/nonexistent/{TOKEN}"), ("once", "--filter", f"password={S}"), ("mark", f"password={S}"),
    ],
)  # fmt: skip
def test_messages_about_a_wrong_word_do_not_repeat_a_secret(
    arguments: tuple[str, ...], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Where somebody listens, a mark is sent to them and nothing is said.
    monkeypatch.setattr("gputop.sources.marks.runtime_directories", lambda: [str(tmp_path)])
    with suppress(SystemExit):
        main(arguments)
    shown = capfd.readouterr()
    assert shown.out or shown.err
    assert not holds_a_secret((shown.out + shown.err).encode())


@pytest.mark.slow
def test_a_redacted_screen_and_what_it_writes_name_no_path_and_no_uuid(place: Place) -> None:
    keys = (("d", "to see more"), ("\x1b", "GPU-MEM"), ("e", "not shown with --redact"), *KEYS[-3:])
    shown = place.screen(keys, GPUTOP_REDACT="1", GPUTOP_SHOW_SECRETS="1") + place.seen
    outputs = [shown, *place.files().values()]
    assert len(outputs) == 3
    for data in outputs:
        assert not holds_a_secret(data)
        assert str(place.work.parent).encode() not in data
        assert b"GPU-0" not in data
    assert b'"uuid":"GPU-1"' in b"".join(outputs)
    assert b'"user":"user1"' in b"".join(outputs)
