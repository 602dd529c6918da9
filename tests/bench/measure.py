"""The measurements of one program on one machine."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.bench.programs import Program
from tests.bench.terminal import Terminal
from tests.bench.workload import LAST_GPU_PATTERN, set_in_motion
from tests.nvml.stand_in import Scenario

ROWS, COLUMNS = 50, 160
DOWN, UP = b"\x1b[B", b"\x1b[A"
KEYS_PER_S = 30
WARM_UP_S = 3.0


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure: repeated starts, seconds of each watch, seconds at rest, seconds of a held key."""

    starts: int = 7
    start_s: float = 2.5
    rest_s: float = 20.0
    held_s: float = 8.0
    answers: int = 10
    onces: int = 7


QUICK = Effort(starts=3, start_s=2.0, rest_s=5.0, held_s=3.0, answers=5, onces=3)


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured; None where the program has no such thing or never showed it."""

    first_frame_ms: float | None = None
    first_frame_low_ms: float | None = None
    first_frame_high_ms: float | None = None
    cpu_rest_pct: float | None = None
    cpu_key_pct: float | None = None
    key_answer_ms: float | None = None
    key_answer_worst_ms: float | None = None
    bytes_per_s: float | None = None
    peak_rss_mb: float | None = None
    nvml_calls_per_s: float | None = None
    once_ms: float | None = None
    once_cpu_ms: float | None = None


def terminal_environment(scenario: Scenario) -> dict[str, str]:
    """A usual colour terminal: programs must not decide by what the benchmark itself runs in."""
    names = ("LINES", "COLUMNS", "NO_COLOR", "TMUX", "TERM_PROGRAM")
    environment = {key: value for key, value in scenario.environment().items() if key not in names}
    return {**environment, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}


def open_terminal(program: Program, scenario: Scenario, interval_s: float) -> Terminal:
    return Terminal(program.watch(interval_s), terminal_environment(scenario), ROWS, COLUMNS)


def first_frame_ms(program: Program, scenario: Scenario, interval_s: float, effort: Effort) -> float | None:
    """Milliseconds from exec to the first frame that shows the last GPU; None when none did."""
    set_in_motion(scenario, False)
    terminal = open_terminal(program, scenario, interval_s)
    try:
        terminal.drain(effort.start_s)
        shown = terminal.first_shown_s(LAST_GPU_PATTERN)
    finally:
        terminal.close()
    return None if shown is None else 1000 * shown


def _rate(window_s: float, terminal: Terminal, scenario: Scenario, drain: Callable[[], None]) -> tuple[float, ...]:
    """CPU in percent of a core, bytes/s and NVML calls/s while ``drain`` runs."""
    begin = (time.monotonic(), terminal.cpu_s(), terminal.bytes_written(), sum(scenario.calls().values()))
    drain()
    end = (time.monotonic(), terminal.cpu_s(), terminal.bytes_written(), sum(scenario.calls().values()))
    elapsed, *amounts = (b - a for a, b in zip(begin, end, strict=True))
    assert elapsed >= window_s
    cpu, written, calls = (amount / elapsed for amount in amounts)
    return 100 * cpu, written, calls


def watch_figures(program: Program, scenario: Scenario, interval_s: float, effort: Effort) -> dict[str, float]:
    """One long run: at rest, then a key now and then, then a key held down."""
    set_in_motion(scenario, True)
    terminal = open_terminal(program, scenario, interval_s)
    try:
        terminal.drain(WARM_UP_S)
        rest = _rate(effort.rest_s, terminal, scenario, lambda: terminal.drain(effort.rest_s))
        answers = []
        for number in range(effort.answers):
            answers.append(1000 * terminal.answer_s(UP if number % 2 else DOWN))
            terminal.drain(0.3)
        held = _rate(effort.held_s, terminal, scenario, lambda: terminal.drain(effort.held_s, DOWN, KEYS_PER_S))
        peak = terminal.peak_rss_bytes()
    finally:
        terminal.close()
    return {
        "cpu_rest_pct": rest[0],
        "bytes_per_s": rest[1],
        "nvml_calls_per_s": rest[2],
        "cpu_key_pct": held[0],
        "key_answer_ms": statistics.median(answers),
        "key_answer_worst_ms": max(answers),
        "peak_rss_mb": peak / 1e6,
    }


def once_figures(program: Program, scenario: Scenario, effort: Effort) -> dict[str, float]:
    """Wall and CPU time of printing once, medians; a first run warms the caches."""
    set_in_motion(scenario, False)
    environment = terminal_environment(scenario)
    rows = [_run_once(program.once(), environment) for _ in range(effort.onces + 1)][1:]
    wall, cpu = (statistics.median(column) for column in zip(*rows, strict=True))
    return {"once_ms": 1000 * wall, "once_cpu_ms": 1000 * cpu}


def _run_once(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    begin = time.monotonic()
    pid = os.posix_spawnp(command[0], command, environment, file_actions=quiet)
    _, status, usage = os.wait4(pid, 0)
    wall = time.monotonic() - begin
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return wall, usage.ru_utime + usage.ru_stime


def measure(programs: list[Program], scenario: Scenario, interval_s: float, effort: Effort) -> dict[str, Figures]:
    """Everything about each program. The starts take turns, so that a disturbance of the machine meets all alike.

    Raises ProgramEnded when one leaves, RuntimeError when printing once fails.
    """
    watchers = [program for program in programs if program.watches]
    starts: dict[str, list[float | None]] = {program.name: [] for program in watchers}
    for _ in range(effort.starts + 1):
        for program in watchers:
            starts[program.name].append(first_frame_ms(program, scenario, interval_s, effort))
    results = {}
    for program in programs:
        shown = [moment for moment in starts.get(program.name, [])[1:] if moment is not None]
        frames = (statistics.median(shown), min(shown), max(shown)) if len(shown) == effort.starts else (None,) * 3
        watch = watch_figures(program, scenario, interval_s, effort) if program.watches else {}
        results[program.name] = Figures(*frames, **watch, **once_figures(program, scenario, effort))
    return results
