"""Ctrl+C while a command still starts: the end, without a word, whatever was being imported."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.command_line import interrupt
from tests.nvml.stand_in import Scenario
from tests.support.pty_program import ROOT, PtyProgram

INTERRUPTED = 130
SCRIPT = str(ROOT / "tests" / "support" / "interrupted.py")


def _interrupted(at: int, environment: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, SCRIPT, str(at), sys.executable, "-m", "gputop", *arguments]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def environment(nvml_scenario: Callable[..., Scenario], tmp_path: Path) -> dict[str, str]:
    scenario = nvml_scenario(2)
    scenario.write()
    return {**scenario.environment(), "XDG_CONFIG_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}


@pytest.mark.slow
@pytest.mark.nvml
@pytest.mark.parametrize(
    "arguments", [("once", "--json"), ("--help",), ("record", "-o", "run.jsonl.gz")]
)
def test_ctrl_c_at_any_import_of_a_start_ends_it_without_a_word(
    arguments: tuple[str, ...],
    environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ends = [_interrupted(at, environment, *arguments) for at in (1, 2, 3, 5, 10, 15, 25)]
    if arguments != ("--help",):
        ends += [_interrupted(at, environment, *arguments) for at in (50, 75, 100)]
    assert ends == [(INTERRUPTED, "", "")] * len(ends)
    assert not [*tmp_path.glob("run*")]


@pytest.mark.slow
@pytest.mark.nvml
@pytest.mark.parametrize("at", [1, 20, 60, 100, 150, 200, 300])
def test_ctrl_c_at_any_import_of_the_screen_leaves_the_terminal_as_it_was(
    at: int, environment: dict[str, str]
) -> None:
    with PtyProgram(env=environment, within=(sys.executable, SCRIPT, str(at))) as program:
        program.end()
        assert program.status == INTERRUPTED
        assert b"Traceback" not in program.written
        assert b"Exception" not in program.written
        assert program.settings() == program.attributes
        assert program.written.rfind(b"\x1b[?1049l") >= program.written.rfind(b"\x1b[?1049h")


def test_only_pythons_own_way_of_ctrl_c_is_replaced_and_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hook = sys.unraisablehook
    monkeypatch.setattr(sys, "unraisablehook", hook)
    found = signal.getsignal(signal.SIGINT)
    try:
        for somebodys in (signal.SIG_IGN, signal.SIG_DFL, lambda *_: None):
            signal.signal(signal.SIGINT, somebodys)
            interrupt.end_at_once()
            interrupt.raise_again()
            assert signal.getsignal(signal.SIGINT) is somebodys
        assert sys.unraisablehook is hook
        signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupt.end_at_once()
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        interrupt.raise_again()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, found)
