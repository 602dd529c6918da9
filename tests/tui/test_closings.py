"""However a terminal is closed, and whatever gputop is doing then: it is gone within two seconds, and says why."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.closings import KINDS, PHASES, Phase, ended_right
from tests.nvml.stand_in import Scenario
from tests.support.pty_program import SCREEN_TAKEN, PtyProgram

READY = "NOT WORKING"

pytestmark = pytest.mark.nvml


QUICK = (("pty", "live"), ("sighup", "demo"), ("shell", "loading"))


CASES = [(kind, phase) for kind in KINDS for phase in PHASES if kind != "shell" or not phase.stops]


@pytest.mark.parametrize(
    ("kind", "phase"),
    [
        pytest.param(*case, marks=[pytest.mark.slow] * ((case[0], case[1].name) not in QUICK))
        for case in CASES
    ],
    ids=[f"{kind}-{phase.name}" for kind, phase in CASES],
)
def test_nothing_is_left_behind(
    kind: str, phase: Phase, nvml_scenario: Callable[..., Scenario]
) -> None:
    assert ended_right(kind, phase, nvml_scenario())


def test_stopped_by_another_and_continued_it_takes_the_terminal_again() -> None:
    with PtyProgram("demo", "small_kernels") as program:
        program.read_until(SCREEN_TAKEN)
        taken = program.settings()
        program.signal(signal.SIGSTOP)
        program.wait_for_state("T")
        # What a shell does that gets the terminal back.
        program.set(program.attributes)
        program.read_for(0.1)
        program.written = b""
        program.signal(signal.SIGCONT)
        # What was written before the stop may arrive only now: this comes with the terminal's settings.
        program.read_until("\x1b[?1049h")
        assert program.settings() == taken
        program.read_screen_until(
            lambda screen: (
                screen[0].startswith(" gputop  node-17") and any(READY in line for line in screen)
            ),
            160,
            48,
        )
        program.press("q")
        program.end_in_time()
        assert program.is_restored()


@pytest.mark.slow
def test_suspended_it_is_ended_by_a_signal_and_leaves_the_terminal_alone() -> None:
    with PtyProgram("demo", "small_kernels") as program:
        program.read_until(SCREEN_TAKEN)
        program.press("\x1a")
        program.wait_for_state("T")
        assert program.is_restored()
        program.signal(signal.SIGTERM)
        program.signal(signal.SIGCONT)
        program.end_in_time()
        assert program.status == 128 + signal.SIGTERM
        assert program.is_restored()


@pytest.mark.slow
def test_a_shell_ends_it_while_it_is_suspended_in_the_background() -> None:
    # Whoever changes the terminal from the background is stopped once more, and ended by SIGKILL only.
    script = '"$0" "$@"; p=$(jobs -p); kill %1; while kill -0 $p 2>/dev/null; do sleep 0.1; done'
    within = ("bash", "--norc", "-ic", script)
    with PtyProgram("demo", within=within) as program:
        program.read_until(SCREEN_TAKEN)
        program.press("\x1a")
        program.read_until(f"Exit {128 + signal.SIGTERM}")
        program.end()
