"""The program in a real pseudo-terminal: however it ends, the terminal is left as it was, in time."""

from __future__ import annotations

import os
import pty
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from gputop.command_line.screen import screen_terminal
from gputop.config import Settings
from gputop.model.source import UsageError
from gputop.output.ansi import plain_text
from gputop.paint.glyphs import COLOUR
from gputop.paint.help_rows import help_rows
from gputop.recording.reader import read_snapshots
from gputop.tui.terminal.guard import ENDING, RESTORE
from tests.nvml.stand_in import Process, Scenario
from tests.support.pty_program import ROOT, PtyProgram

READY = "NOT WORKING"
DEMO = ("demo", "small_kernels")
"""One GPU: the past of eight takes half of the start."""


def _started(*arguments: str, **more: object) -> PtyProgram:
    program = PtyProgram(*arguments, **more)  # type: ignore[arg-type]
    program.read_until_started(READY)
    return program


@pytest.mark.slow
@pytest.mark.parametrize("number", ENDING)
def test_a_signal_restores_the_terminal_and_is_told_by_the_exit_code(
    number: signal.Signals,
) -> None:
    with _started(*DEMO) as program:
        program.signal(number)
        program.end_in_time()
        assert program.status == (128 + number)
        assert program.is_restored()


@pytest.mark.slow
def test_a_terminal_that_takes_no_output_does_not_keep_the_program() -> None:
    with _started(*DEMO, "--interval", "0.25", columns=300, rows=100) as program:
        time.sleep(
            3.0
        )  # nobody reads meanwhile: the pseudo-terminal and the screen's queue fill up
        program.signal(signal.SIGTERM)
        program.end_in_time(drain=False)
        assert program.status == 143
        assert program.is_restored()


def _recorded_while_unread(
    folder: Path, seconds: float, *arguments: str, environ: Mapping[str, str]
) -> list[float]:
    """The times of the samples of a recording during which nobody read what the screen wrote for so long."""
    within = ("env", "-C", str(folder))
    with PtyProgram(
        *arguments, "--interval", "0.25", columns=300, rows=100, env=environ, within=within
    ) as program:
        program.read_until_started("GPU")
        program.press("R")
        program.read_until("recording to")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            # Each changes the whole picture, so that pseudo-terminal and queue are soon full.
            program.press("c")
            time.sleep(0.1)
        program.read_for(0.5)
        program.press("R")
        program.read_until("frames to")
        program.press("q")
        program.end_in_time()
    (recording,) = folder.glob("*.gputop.jsonl*")
    return [snapshot.t for snapshot in read_snapshots(str(recording))]


def test_a_terminal_that_is_not_read_costs_no_sample(tmp_path: Path) -> None:
    times = _recorded_while_unread(tmp_path, 3.0, *DEMO, environ={})
    assert times[-1] - times[0] >= 3.0
    # Samples that wait for the terminal miss most of it; a slow machine misses one or two.
    assert max(later - t for t, later in pairwise(times)) < 1.5


@pytest.mark.nvml
@pytest.mark.slow
def test_quitting_while_a_driver_call_hangs(nvml_scenario: Callable[..., Scenario]) -> None:
    scenario = nvml_scenario(gpus=2)
    scenario.write()
    with PtyProgram(env=scenario.environment()) as program:
        program.read_until_started("H100")
        scenario.hang("*", 30.0)
        scenario.write()
        program.read_until("STALE")
        program.press("q")
        program.end_in_time()
        assert program.status == 0
        assert program.is_restored()


@pytest.mark.slow
@pytest.mark.nvml
def test_a_gpu_that_is_lost_while_running_is_named_and_the_other_goes_on(
    nvml_scenario: Callable[..., Scenario],
) -> None:
    scenario = nvml_scenario(gpus=2)
    scenario.gpus[0].processes.append(Process(1, 1 << 30))
    scenario.write()
    with PtyProgram("--interval", "0.25", env=scenario.environment()) as program:
        program.read_until("H100")
        scenario.error("*", 15, gpu=1)
        scenario.gpus[0].set(power_w=333)
        scenario.write()
        program.read_until("LOST")
        # The screen follows the lost one; the other shows its numbers once it is selected.
        program.press("[")
        scenario.gpus[0].set(power_w=220)
        scenario.write()
        program.read_screen_until(
            lambda screen: any("220 / 700 W" in line for line in screen), 160, 48
        )
        program.press("q")
        program.end()
        assert program.status == 0


@pytest.mark.slow
def test_a_resize_storm_and_a_tiny_terminal_are_survived() -> None:
    with _started(*DEMO) as program:
        for size in [(1, 1), (5, 3), (300, 100), (40, 10), (80, 24)] * 3:
            program.resize(*size)
            program.signal(signal.SIGWINCH)
            time.sleep(0.02)
        program.resize(100, 30)
        program.signal(signal.SIGWINCH)
        program.read_until("processes")
        program.press("q")
        program.end_in_time()
        assert program.status == 0


@pytest.mark.slow
def test_a_size_in_the_environment_does_not_hold_while_the_window_is_resized() -> None:
    with _started(*DEMO, columns=120, rows=40, env={"COLUMNS": "80", "LINES": "24"}) as program:
        program.read_for(0.1)
        program.written = b""
        program.resize(130, 45)
        program.signal(signal.SIGWINCH)
        # The picture of the old size may still be under way, complete as it is.
        program.read_screen_until(
            lambda screen: (
                len(screen[0]) > 120 and screen[0].endswith("? help") and screen[44] != ""
            ),
            130,
            45,
        )
        program.press("q")
        program.end_in_time()
        assert program.is_restored()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "wanted", "unwanted"),
    [
        ({"NO_COLOR": "1"}, b"NOT WORKING", rb"[;\[][34]8;[25];"),
        ({"TERM": "xterm", "COLORTERM": ""}, b"NOT WORKING", rb"[;\[][34]8;[25];"),
        ({"COLORTERM": ""}, b";38;5;", rb"[;\[][34]8;2;"),
        ({"COLORTERM": "truecolor"}, b";38;2;", rb"[;\[][34]8;5;"),
    ],
    ids=["no colour", "16", "256", "truecolor"],
)
def test_no_more_colours_than_the_terminal_has(
    env: dict[str, str], wanted: bytes, unwanted: bytes
) -> None:
    with _started(*DEMO, env=env) as program:
        program.press("jjj?")
        program.read_until("keys")
        program.press("\x03")
        program.end()
        assert wanted in program.written
        assert re.search(unwanted + rb"[0-9;]*m", program.written) is None


@pytest.mark.slow
def test_ascii_means_ascii() -> None:
    with _started(*DEMO, "--ascii") as program:
        program.press("?")
        program.read_until("UTIL is the share")
        program.press("\x03")
        program.end()
        assert program.written.isascii()


@pytest.mark.slow
def test_a_screen_above_is_not_written_into_and_the_one_below_comes_back_whole() -> None:
    with _started("demo", "--interval", "0.25", columns=120, rows=40) as program:
        program.press("?")
        wanted = [line.rstrip() for line in plain_text(help_rows(COLOUR, 120)[:39]).splitlines()]
        program.read_screen_until(lambda screen: screen[:39] == wanted, 120, 40)
        program.read_for(1.0)
        assert program.screen(120, 40)[:39] == wanted
        program.press("q")
        program.read_screen_until(
            lambda below: (
                below[0].startswith(" gputop  node-17") and not set(wanted) & set(below) - {""}
            ),
            120,
            40,
        )
        program.press("q")
        program.end_in_time()


@pytest.mark.parametrize(
    ("kind", "said"), [(None, "TERM is not set"), ("", "TERM is not set"), ("dumb", "TERM=dumb")]
)
def test_a_terminal_of_unknown_kind_is_called_what_it_is(
    kind: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, SimpleNamespace(isatty=lambda: True))
    monkeypatch.delenv("TERM", raising=False)
    if kind is not None:
        monkeypatch.setenv("TERM", kind)
    with pytest.raises(UsageError, match=f"^{said}.*`gputop once`"):
        screen_terminal(Settings())


WRITES_ON = """
import os
from gputop.tui.terminal.guard import TerminalGuard
guard = TerminalGuard()
os.write(2, b"before")
guard.restore()
os.write(2, b"a picture of another thread")
"""


def test_what_is_written_after_the_terminal_was_restored_does_not_reach_it() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(
            sys.executable,
            [sys.executable, "-c", WRITES_ON],
            {**os.environ, "PYTHONPATH": str(ROOT)},
        )
    written = b""
    with suppress(OSError):
        # At the end the terminal has no other side.
        while data := os.read(terminal, 65536):
            written += data
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert status == 0
    assert written.endswith(RESTORE)
