"""The measurements of some programs on one machine, taken in turns so that a disturbance meets all alike."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from tests.bench.programs import Program
from tests.bench.terminal import ProgramEnded, Terminal, process_cpu_s
from tests.bench.workload import LAST_GPU_BYTES, LAST_GPU_PATTERN, set_in_motion
from tests.nvml.stand_in import Scenario

ROWS, COLUMNS = 50, 160
DEMO_BYTES, DEMO_PATTERN = b"ipykernel_launcher", "ipykernel_launcher"
"""A process of the demo's last GPU, in the last rows of its picture."""
DOWN, UP = b"\x1b[B", b"\x1b[A"
KEYS_PER_S = 30

Samples = Mapping[str, list[float]]


class OnceFailed(Exception):
    """Printing once ended with an error. The text names the command."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure."""

    starts: int = 7
    start_s: float = 4.0
    """The longest wait for a first frame."""
    rounds: int = 3
    """Runs on a terminal; each has a time at rest, some answers to single keys and a time with a held key."""
    warm_up_s: float = 3.0
    rest_s: float = 12.0
    """A multiple of 2 s: process lists are not read every second."""
    answers: int = 5
    held_s: float = 4.0
    onces: int = 7
    unattended: int = 3
    """Recordings, each with ``warm_up_s`` and ``rest_s``."""


QUICK = Effort(
    starts=3, rounds=2, warm_up_s=2.0, rest_s=2.0, answers=2, held_s=1.0, onces=3, unattended=1
)


@dataclass(frozen=True, slots=True)
class Spread:
    """A noisy figure: median, lowest and highest of ``count`` samples."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """Raises StatisticsError when there are no samples."""
        return cls(statistics.median(samples), min(samples), max(samples), len(samples))

    def text(self, decimals: int) -> str:
        """``12.3 (11.9–14.0)``; the range is left out where there is only one sample."""
        middle = f"{self.median:,.{decimals}f}"
        return (
            middle
            if self.count == 1
            else f"{middle} ({self.low:,.{decimals}f}–{self.high:,.{decimals}f})"
        )


@dataclass(slots=True)
class Results:
    """What was measured of one program, and the trouble that ended the measurements, if any did."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    trouble: str | None = None

    def figures(self) -> dict[str, Spread]:
        """The figures that the program has: not every screen shows its last GPU."""
        return {key: Spread.of(samples) for key, samples in self.samples.items()}


def terminal_environment(program: Program, scenario: Scenario) -> dict[str, str]:
    """A usual colour terminal and no settings of a user: programs must not decide by where the benchmark runs."""
    names = ("LINES", "COLUMNS", "NO_COLOR", "TMUX", "TERM_PROGRAM")
    usual = {
        key: value
        for key, value in scenario.environment().items()
        if key not in names and not key.startswith(("PYTHON", "GPUTOP_", "NVITOP_", "CUDA_"))
    }
    colours = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
    nowhere = {"XDG_CONFIG_HOME": str(scenario.path.parent / "no-settings")}
    return {**usual, **colours, **nowhere, **program.environment()}


def open_terminal(program: Program, scenario: Scenario, interval_s: float) -> Terminal:
    return Terminal(
        program.watch(interval_s), terminal_environment(program, scenario), ROWS, COLUMNS
    )


def first_frame(program: Program, scenario: Scenario, interval_s: float, effort: Effort) -> Samples:
    """Milliseconds from exec to the first frame that shows the last GPU; nothing when none did."""
    set_in_motion(scenario, False)
    terminal = open_terminal(program, scenario, interval_s)
    try:
        shown, end = None, time.monotonic() + effort.start_s
        while shown is None and (left := end - time.monotonic()) > 0:
            # The bytes may have been part of something else, such as a PID.
            terminal.drain_until(LAST_GPU_BYTES, left)
            shown = terminal.first_shown_s(LAST_GPU_PATTERN)
    finally:
        terminal.close()
    return {} if shown is None else {"first_frame_ms": [1000 * shown]}


def demo_picture(program: Program, scenario: Scenario, effort: Effort) -> Samples:
    """Milliseconds from exec to the demo's first picture, whose past is not judged yet."""
    if not program.has_demo:
        return {}
    environment = terminal_environment(program, scenario)
    terminal = Terminal(program.demo(), environment, ROWS, COLUMNS)
    try:
        terminal.drain_until(DEMO_BYTES, effort.start_s)
        shown = terminal.first_shown_s(DEMO_PATTERN)
    finally:
        terminal.close()
    return {} if shown is None else {"demo_ms": [1000 * shown]}


def _rates(
    terminal: Terminal, scenario: Scenario, drain: Callable[[], None]
) -> tuple[float, float, float]:
    """CPU in percent of a core, bytes/s and NVML calls/s while ``drain`` runs."""
    begin = (
        time.monotonic(),
        terminal.cpu_s(),
        terminal.bytes_written(),
        sum(scenario.calls().values()),
    )
    drain()
    end = (
        time.monotonic(),
        terminal.cpu_s(),
        terminal.bytes_written(),
        sum(scenario.calls().values()),
    )
    elapsed, cpu, written, calls = (b - a for a, b in zip(begin, end, strict=True))
    return 100 * cpu / elapsed, written / elapsed, calls / elapsed


def watched(program: Program, scenario: Scenario, interval_s: float, effort: Effort) -> Samples:
    """One run: at rest, then a key now and then, then a key held down."""
    set_in_motion(scenario, True)
    terminal = open_terminal(program, scenario, interval_s)
    try:
        terminal.drain(effort.warm_up_s + program.settles_s)
        cpu, written, calls = _rates(terminal, scenario, lambda: terminal.drain(effort.rest_s))
        memory = {
            key: value for key, value in asdict(terminal.memory()).items() if key != "peak_mb"
        }
        samples = {"cpu_rest_pct": [cpu], "bytes_per_s": [written], "nvml_calls_per_s": [calls]}
        samples["key_answer_ms"] = []
        for number in range(effort.answers):
            samples["key_answer_ms"].append(1000 * terminal.answer_s(UP if number % 2 else DOWN))
            terminal.drain(0.3)
        held, _, _ = _rates(
            terminal, scenario, lambda: terminal.drain(effort.held_s, DOWN, KEYS_PER_S)
        )
        samples["cpu_key_pct"] = [held]
        memory["peak_mb"] = terminal.memory().peak_mb
    finally:
        terminal.close()
    return samples | {key: [value] for key, value in memory.items() if value is not None}


def printed_once(program: Program, scenario: Scenario) -> Samples:
    """Wall and CPU time of printing once. Raises OnceFailed."""
    set_in_motion(scenario, False)
    command = program.once()
    quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    begin = time.monotonic()
    environment = terminal_environment(program, scenario)
    pid = os.posix_spawnp(command[0], command, environment, file_actions=quiet)
    _, status, usage = os.wait4(pid, 0)
    wall = time.monotonic() - begin
    if code := os.waitstatus_to_exitcode(status):
        raise OnceFailed(f"{' '.join(command)} ended with {code}")
    return {"once_ms": [1000 * wall], "once_cpu_ms": [1000 * (usage.ru_utime + usage.ru_stime)]}


def without_screen(
    program: Program, scenario: Scenario, interval_s: float, effort: Effort
) -> Samples:
    """CPU in percent of a core of recording, where the program can. Raises OnceFailed."""
    if not program.can_record:
        return {}
    set_in_motion(scenario, True)
    with tempfile.TemporaryDirectory(prefix="gputop-bench-") as folder:
        file = f"{folder}/bench.gputop.jsonl.gz"
        command = [*program.executable, "record", "-o", file, "--interval", f"{interval_s:g}"]
        environment, nothing = terminal_environment(program, scenario), subprocess.DEVNULL
        with subprocess.Popen(
            command, env=environment, stdin=nothing, stdout=nothing, stderr=nothing
        ) as running:
            try:
                time.sleep(effort.warm_up_s)
                begin, cpu = time.monotonic(), process_cpu_s(running.pid)
                time.sleep(effort.rest_s)
                spent, elapsed = process_cpu_s(running.pid) - cpu, time.monotonic() - begin
                if running.poll() is not None:
                    raise OnceFailed(f"{' '.join(command)} ended with {running.returncode}")
            finally:
                running.terminate()
    return {"record_pct": [100.0 * spent / elapsed]}


def measure(
    programs: list[Program],
    scenario: Scenario,
    interval_s: float,
    effort: Effort,
    *,
    warm: bool = True,
) -> dict[str, Results]:
    """Everything about each program, by name.

    With ``warm`` the first start and the first print are thrown away: they fill the caches, and compile what runs
    from a source tree.
    """
    results = {program: Results() for program in programs}

    def turns(count: int, step: Callable[[Program], Samples], *, warm: bool = False) -> None:
        """Let every program take its step, so many times over. One that fails leaves with its trouble."""
        for number in range(count + warm):
            for program, result in results.items():
                if result.trouble is not None:
                    continue
                try:
                    samples = step(program)
                except (ProgramEnded, OnceFailed) as failure:
                    result.trouble = str(failure)
                    continue
                if number >= warm:
                    for key, values in samples.items():
                        result.samples.setdefault(key, []).extend(values)

    turns(effort.starts, lambda p: first_frame(p, scenario, interval_s, effort), warm=warm)
    for result in results.values():
        # A median over only those starts that were fast enough would flatter.
        if len(result.samples.get("first_frame_ms", ())) < effort.starts:
            result.samples.pop("first_frame_ms", None)
    turns(effort.starts, lambda p: demo_picture(p, scenario, effort), warm=warm)
    turns(effort.rounds, lambda p: watched(p, scenario, interval_s, effort))
    turns(effort.onces, lambda p: printed_once(p, scenario), warm=warm)
    turns(effort.unattended, lambda p: without_screen(p, scenario, interval_s, effort))
    return {program.name: result for program, result in results.items()}
