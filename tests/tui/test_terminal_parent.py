"""The parent of a screen: whatever ends the screen, the terminal is whole and one line says what it was."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from gputop.commands.terminal_parent import _goes_on, hold_terminal
from tests.nvml.stand_in import Scenario
from tests.support.pty_program import SCREEN_TAKEN, PtyProgram
from tests.support.waiting import has_ended, until


def slow(*values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("by", "death", "status", "says"),
    [
        ("kill", signal.SIGKILL, 137, "was ended by SIGKILL: kill -9, or no memory was left: dmesg says which"),
        slow("kill", signal.SIGABRT, 134, "was ended by SIGABRT: a crash in a library, such as the driver's"),
        slow("kill", signal.SIGXCPU, 152, "was ended by SIGXCPU: the limit on CPU time"),
        slow("driver", {"signal": signal.SIGSEGV}, 139, "was ended by SIGSEGV: a crash in a library, such as"),
        slow("driver", {"signal": signal.SIGABRT}, 134, "was ended by SIGABRT: a crash in a library, such as"),
        slow("driver", {"status": 77}, 77, "ended with status 77: it has not left the screen: a crash in a lib"),
    ],
)  # fmt: skip
@pytest.mark.nvml
def test_a_death_that_python_cannot_handle_leaves_the_terminal_whole_and_says_what_it_was(
    nvml_scenario: Callable[..., Scenario], by: str, death: object, status: int, says: str
) -> None:
    scenario = nvml_scenario(2)
    scenario.write()
    with PtyProgram(env=scenario.environment()) as program:
        program.read_until_started("H100")
        assert not program.is_restored()
        if by == "kill":
            os.kill(program.screen_pid, death)  # type: ignore[arg-type]
        else:
            scenario.die("nvmlDeviceGetPowerUsage", **death)  # type: ignore[arg-type]
            scenario.write()
        program.end()
        assert program.status == status
        assert program.is_restored()
        last = program.written[program.written.rindex(b"\x1b[?25h") :].removeprefix(b"\x1b[?25h").decode()
        assert last.startswith(f"gputop: {says}") and last.count("\n") == 1


def test_killed_alone_the_parent_takes_the_screen_with_it() -> None:
    with PtyProgram("demo", "small_kernels") as program:
        program.read_until(SCREEN_TAKEN)
        screen = program.screen_pid
        program.signal(signal.SIGKILL)
        program.end()
        assert program.status == -signal.SIGKILL
        until(lambda: has_ended(screen))
        program.read_for(0.1)
        assert program.is_restored()


@pytest.mark.nvml
def test_what_a_library_prints_does_not_stand_in_the_picture_and_the_screen_goes_on(
    nvml_scenario: Callable[..., Scenario],
) -> None:
    scenario = nvml_scenario(1)
    scenario.write()
    with PtyProgram(env=scenario.environment()) as program:
        program.read_until_started("400 / 700 W")
        scenario.print("nvmlDeviceGetPowerUsage")
        scenario.gpus[0].set(power_w=320)
        scenario.write()
        program.read_screen_until(lambda screen: any("320 / 700 W" in line for line in screen), 160, 48)
        os.kill(program.screen_pid, signal.SIGTERM)
        program.end()
        assert b"words" not in program.written
        assert program.status == 143 and program.is_restored()


def test_it_hears_of_the_end_where_somebody_ignores_that_of_children() -> None:
    ignoring = ("bash", "-c", 'trap "" CHLD; exec "$0" "$@"')
    with PtyProgram("demo", "small_kernels", within=ignoring) as program:
        program.read_until(SCREEN_TAKEN)
        program.press("q")
        program.end()
        assert program.status == 0 and program.is_restored()
        assert b"Traceback" not in program.written


JOBS = 'set -m; "$0" "$@"; echo "stopped: $(jobs %1)"; fg >/dev/null; echo "ended: $?"'


@pytest.mark.slow
def test_a_shell_sees_one_job_that_stops_goes_on_and_ends() -> None:
    with PtyProgram("demo", "small_kernels", within=("bash", "--norc", "-c", JOBS)) as program:
        program.read_until(SCREEN_TAKEN)
        program.written = b""
        program.press("\x1a")
        # And taken again, by fg.
        program.read_until_started("stopped: [1]+  Stopped")
        program.press("q")
        program.end()
        assert b"ended: 0" in program.written


@pytest.mark.parametrize("words", [["once"], ["record"], ["diagnose", "x"], ["run", "--", "true"]])
def test_other_commands_have_no_parent(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda _: True)
    monkeypatch.setattr("termios.tcgetattr", lambda _: [])
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a parent"))
    hold_terminal(words)
    monkeypatch.setattr(os, "isatty", lambda descriptor: descriptor != 1)
    hold_terminal([])


def test_a_stopped_child_that_has_ended_meanwhile_is_not_stopped_for() -> None:
    """A window that is closed as its job is continued: asked of a child that has ended, the kernel knows of none."""
    child = os.spawnlp(os.P_NOWAIT, "true", "true")
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert _goes_on(child)
    assert os.waitpid(child, 0)[1] == 0
