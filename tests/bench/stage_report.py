"""The stages of gputop's tick beside the whole program's cost: what one takes, and what remains for the event loop."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tests.bench.environments import CHECKOUT
from tests.bench.measure import Effort, Results, Samples, terminal_environment
from tests.bench.programs import Program, python_of
from tests.bench.scaling import at_rest
from tests.bench.spread import Spread
from tests.bench.workload import Load, set_in_motion
from tests.nvml.stand_in import Scenario

ROWS = (
    ("nvml", "collect: the NVML thread"),
    ("proc", "collect: the /proc thread"),
    ("host", "  of it the host, measured apart"),
    ("schedule", "collect: timekeeping and joining"),
    ("looks", "collect: the looks at waiting loaders"),
    ("diagnose", "diagnose"),
    ("derive", "derive and keep history"),
    ("remember", "remember for going back in time"),
    ("paint", "paint"),
    ("diff", "find what changed"),
    ("write", "write"),
    ("stages", "all stages"),
    ("whole", "the program on a terminal"),
    ("rest", "event loop, timers, terminal thread"),
)
PARTS = ("nvml", "proc", "schedule", "looks", "diagnose", "derive", "remember", "paint", "diff", "write")
LABEL, CELL = 38, 28


def completed(stages: Mapping[str, float], whole_ms: float) -> dict[str, float]:
    """All rows of one round from what was measured: milliseconds of CPU a tick.

    Taking a snapshot in was measured whole and its diagnosis alone; ``rest`` is what no stage accounts for.
    """
    rows = {**stages, "derive": stages["feed"] - stages["diagnose"], "whole": whole_ms}
    del rows["feed"]
    rows["stages"] = sum(rows[part] for part in PARTS)
    rows["rest"] = whole_ms - rows["stages"]
    return rows


def _stages(program: Program, scenario: Scenario, interval_s: float, ticks: int) -> dict[str, float]:
    """The stages in a process of their own. Raises CalledProcessError."""
    set_in_motion(scenario, True)
    command = [python_of(program), "-m", "tests.bench.stages", "--interval", f"{interval_s:g}", "--ticks", str(ticks)]
    environment = {**terminal_environment(program, scenario), "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def measure_stages(program: Program, scenario: Scenario, load: Load, effort: Effort) -> dict[str, Spread]:
    """Each row's spread over the rounds; stages and whole program take turns.

    Raises ProgramEnded or CalledProcessError when either fails.
    """
    result, ticks = Results(), round(effort.alone_s / load.interval_s)
    for _ in range(effort.rounds):
        stages = _stages(program, scenario, load.interval_s, ticks)
        whole: Samples = at_rest(program, scenario, load.interval_s, effort)
        for key, value in completed(stages, whole["cpu_ms_per_tick"][0]).items():
            result.samples.setdefault(key, []).append(value)
    return result.figures()


def as_table(loads: Mapping[Load, Mapping[str, Spread]]) -> str:
    """One row for each stage, one column for each load: milliseconds of CPU a tick."""
    heads = [f"{load.gpus} GPUs, {load.processes} proc., {load.latency_ms:g} ms" for load in loads]
    lines = [f"{'CPU ms a tick':{LABEL}}" + "".join(f"{head:>{CELL}}" for head in heads)]
    for key, label in ROWS:
        lines.append(f"{label:{LABEL}}" + "".join(f"{figures[key].text(2):>{CELL}}" for figures in loads.values()))
    return "\n".join(lines)


def as_data(loads: Mapping[Load, Mapping[str, Spread]]) -> list[dict[str, Any]]:
    return [
        {"load": asdict(load), "ms_per_tick": {key: asdict(spread) for key, spread in figures.items()}}
        for load, figures in loads.items()
    ]
