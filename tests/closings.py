"""Terminals that are closed under a running gputop: how each kind of closing is done, when, and what is left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.nvml.stand_in import Scenario
from tests.support.pty_program import ROOT, SCREEN_TAKEN, PtyProgram, in_time_s

PATIENCE_S = 10.0
"""How long a program that is late is waited for once more, to tell one that is late from one that stays."""
HUNG_UP = 128 + signal.SIGHUP
KINDS = ("pty", "sighup", "shell")
"""A pseudo-terminal closed; a SIGHUP alone; a pseudo-terminal closed under a shell that does not pass the signal on."""
SHELL = ("sh", "-c", 'trap : HUP; "$@"; exit $?', "sh")
"""The kernel tells the first process of a session alone that its terminal is gone."""
RECORDING = str(ROOT / "tests" / "vectors" / "dataloader_cpu.jsonl")


@dataclass(frozen=True)
class Phase:
    """What gputop is doing when its terminal goes: how it is started, what is seen then, and what is done after."""

    name: str
    arguments: Sequence[str] = ()
    seen: str = "H100"
    keys: str = ""
    then_seen: str = ""
    signals: Sequence[int] = ()
    hangs: bool = False

    @property
    def stops(self) -> bool:
        """Whether the program is stopped; one below a shell would have to be found first."""
        return bool(self.signals) or self.name == "suspended"


PHASES = (
    Phase("loading", ("demo", "small_kernels"), seen="gputop"),
    Phase("live"),
    Phase("demo", ("demo", "small_kernels")),
    Phase("paused", keys="p", then_seen="PAUSED"),
    Phase("replay", ("replay", RECORDING, "--loop")),
    Phase("details", keys="D", then_seen="esc back"),
    Phase("palette", keys="\x10", then_seen="earch"),
    Phase("hanging driver", hangs=True, then_seen="STALE"),
    Phase("stopped", signals=(signal.SIGSTOP,)),
    Phase("suspended", keys="\x1a"),
    Phase("continued", signals=(signal.SIGSTOP, signal.SIGCONT)),
)


def ended_right(kind: str, phase: Phase, scenario: Scenario) -> bool:
    """Close the terminal of a gputop in a phase; return whether it ends in time with the status that says why."""
    scenario.write()
    began = time.monotonic()
    with PtyProgram(
        *phase.arguments, env=scenario.environment(), within=SHELL if kind == "shell" else ()
    ) as program:
        for text in (phase.seen, *((SCREEN_TAKEN,) if phase.name != "loading" else ())):
            if text.encode() not in program.written:
                program.read_until(text)
        most_s = in_time_s(time.monotonic() - began)
        if phase.hangs:
            scenario.hang("*", 30.0)
            scenario.write()
        if phase.keys:
            program.press(phase.keys)
        if phase.then_seen:
            program.read_until(phase.then_seen)
        for number in phase.signals:
            program.signal(number)
        if phase.stops and signal.SIGCONT not in phase.signals:
            program.wait_for_state("T")
        begun = time.monotonic()
        if kind == "sighup":
            program.signal(signal.SIGHUP)
            # What a hang-up brings along; a program that is stopped sees the other only then.
            program.signal(signal.SIGCONT)
        else:
            os.close(program.terminal)
            program.terminal = os.open(os.devnull, os.O_RDWR)
        while program.status is None and time.monotonic() - begun < most_s + PATIENCE_S:
            time.sleep(0.01)
            pid, status = os.waitpid(program.pid, os.WNOHANG)
            program.status = os.waitstatus_to_exitcode(status) if pid else None
        took_s = time.monotonic() - begun
    # Until it watches for signals the kernel ends it, which shells also show as 129.
    by_kernel = phase.name == "loading" and program.status == -signal.SIGHUP
    return took_s <= most_s and (program.status == HUNG_UP or by_kernel)
