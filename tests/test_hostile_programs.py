"""Hostile names through whole programs: command lines of real processes that use a GPU, plain and redacted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.nvml.stand_in import Process, Scenario
from tests.support.hostile import ATTACKS, CONTROLS, FACT, MARK, SECRET
from tests.support.pty_program import ROOT, SCREEN_TAKEN, PtyProgram

pytestmark = [pytest.mark.slow, pytest.mark.nvml]

WORDS, PROGRAMS = (
    [os.fsencode(f"{mark}{i}{attack}".replace("\ud800", "")) for i, attack in enumerate(ATTACKS)]
    for mark in (MARK, FACT)
)
"""Arguments, which redaction takes out, and names of programs, which it leaves."""


class Place:
    """A machine whose GPU is used by processes with such command lines, and a directory to write to."""

    def __init__(self, root: Path, scenario: Scenario) -> None:
        self.work = root / "work"
        (root / "run").mkdir(mode=0o700)
        self.work.mkdir()
        script = root / "train.py"
        script.write_text("import time; time.sleep(900)")
        self.processes = [subprocess.Popen([sys.executable, str(script), word, "--token", SECRET]) for word in WORDS]
        self.processes += [subprocess.Popen([name, "900"], executable="/bin/sleep") for name in PROGRAMS]
        scenario.gpus[0].processes += [Process(process.pid, 1 << 30) for process in self.processes]
        scenario.write()
        self.environment = {
            **scenario.environment(), "PYTHONPATH": str(ROOT), "HOME": str(root), "XDG_RUNTIME_DIR": str(root / "run"),
        }  # fmt: skip

    def run(self, *words: str | bytes) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "gputop", *words], env=self.environment, cwd=self.work, capture_output=True,
            stdin=subprocess.DEVNULL, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stderr
        return (done.stdout + done.stderr).decode()

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def place(tmp_path: Path, nvml_scenario: Callable[..., Scenario]) -> Iterator[Place]:
    there = Place(tmp_path, nvml_scenario(1))
    yield there
    there.close()


@pytest.mark.parametrize("redacted", [False, True], ids=["plain", "redacted"])
def test_command_lines_of_processes_do_nothing_in_what_programs_print_and_write(place: Place, redacted: bool) -> None:
    redact = ["--redact"] * redacted
    shown = {
        "record": place.run("record", "--for", "3s", "-o", "r.jsonl", *redact),
        "export": place.run("export", "--once", "--processes", *redact),
        "run": place.run("run", "-o", "run.jsonl", "--report", "run.md", *redact, "--", "true", *WORDS),
        "report": place.run("report", "r.jsonl", *redact),
    }
    for path in place.work.iterdir():
        shown[path.name] = path.read_text(encoding="utf-8")
    assert {"r.jsonl", "run.md"} <= shown.keys()
    for name, text in shown.items():
        assert not CONTROLS & set(text), (name, sorted(CONTROLS & set(text)))
        assert SECRET not in text, name
        assert not redacted or MARK not in text, (name, text[text.index(MARK) - 200 :][:300])
    assert FACT in shown["export"] and FACT in shown["r.jsonl"]
    assert redacted or (MARK in shown["r.jsonl"] and MARK in shown["run.md"])

    with PtyProgram(
        "replay", str(place.work / "r.jsonl"), *redact, columns=240, rows=50, env=place.environment
    ) as program:
        program.read_until(SCREEN_TAKEN)
        program.read_screen_until(lambda rows: any("train.py" in row or "python" in row for row in rows), 240, 50)
        program.press("q")
        program.end()
    written = program.written.decode()
    assert program.status == 0 and (MARK in written) != redacted
    commands = re.findall(r"\x1b\][^\x07\x1b]*\x07", written)
    assert MARK not in "".join(commands) and "owned" not in "".join(commands) and SECRET not in written
    assert not (CONTROLS - set("\x08\x1b\r")) & set("".join(re.split(r"\x1b\][^\x07\x1b]*\x07", written)))
