"""How gputop's cost grows with GPUs, with processes and with the refresh rate: medians, and the line through them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import correlation, linear_regression
from typing import Any

from tests.bench.measure import Effort, Samples, Spread, open_terminal
from tests.bench.programs import Program
from tests.bench.workload import Load, machine, set_in_motion
from tests.nvml.stand_in import Scenario

MORE_GPUS = tuple(Load(gpus, 16) for gpus in (1, 2, 4, 8, 16))
"""The same 16 processes on more and more GPUs."""
MORE_PROCESSES = tuple(Load(16, processes) for processes in (8, 64, 256, 512, 1000))
"""Up to 1,000 processes on the same 16 GPUs."""
FASTER = tuple(replace(Load(), interval_s=interval_s) for interval_s in (1.0, 0.5, 0.25))
LOADS = tuple(dict.fromkeys((*MORE_GPUS, *MORE_PROCESSES, *FASTER)))
FIGURES = (
    ("cpu_ms_per_tick", "CPU ms/tick", 2),
    ("cpu_pct", "CPU %", 2),
    ("rss_mb", "RSS MB", 1),
    ("private_mb", "private MB", 1),
)


@dataclass(frozen=True, slots=True)
class Line:
    """One question: how a figure depends on ``x`` over some loads."""

    name: str
    loads: tuple[Load, ...]
    x: Callable[[Load], float]
    figure: str
    unit: str


LINES = (
    Line("one more GPU", MORE_GPUS, lambda load: load.gpus, "cpu_ms_per_tick", "ms/tick"),
    Line("one more GPU", MORE_GPUS, lambda load: load.gpus, "private_mb", "MB"),
    Line("one more process", MORE_PROCESSES, lambda load: load.processes, "cpu_ms_per_tick", "ms/tick"),
    Line("one more process", MORE_PROCESSES, lambda load: load.processes, "private_mb", "MB"),
    Line("one more tick a second", FASTER, lambda load: 1.0 / load.interval_s, "cpu_pct", "% of a core"),
)


def at_rest(program: Program, scenario: Scenario, interval_s: float, effort: Effort) -> Samples:
    """One run at rest. A tick is one interval. Raises ProgramEnded when the program leaves."""
    set_in_motion(scenario, True)
    terminal = open_terminal(program, scenario, interval_s)
    try:
        terminal.drain(effort.warm_up_s)
        before = terminal.cpu_s()
        terminal.drain(effort.alone_s)
        share = (terminal.cpu_s() - before) / effort.alone_s
        memory = asdict(terminal.memory())
    finally:
        terminal.close()
    samples = {"cpu_ms_per_tick": [1000 * share * interval_s], "cpu_pct": [100 * share]}
    return samples | {key: [value] for key, value in memory.items() if value is not None}


def scale(program: Program, directory: Path, effort: Effort) -> dict[Load, dict[str, Spread]]:
    """The figures of each load; the loads take turns. Raises ProgramEnded when the program leaves."""
    samples: dict[Load, dict[str, list[float]]] = {load: {} for load in LOADS}
    for _ in range(effort.rounds):
        for load, known in samples.items():
            with machine(load, directory) as scenario:
                for key, values in at_rest(program, scenario, load.interval_s, effort).items():
                    known.setdefault(key, []).extend(values)
    return {load: {key: Spread.of(values) for key, values in known.items()} for load, known in samples.items()}


def as_data(costs: Mapping[Load, Mapping[str, Spread]]) -> dict[str, Any]:
    """The figures of each load; of each line its slope, where it begins, and how straight it is (r of Pearson)."""
    lines = []
    for line in LINES:
        x, y = [line.x(load) for load in line.loads], [costs[load][line.figure].median for load in line.loads]
        slope, base = linear_regression(x, y)
        r = correlation(x, y) if len(set(y)) > 1 else None
        lines.append({"per": line.name, "figure": line.figure, "unit": line.unit, "slope": slope, "base": base, "r": r})
    loads = [{"load": asdict(load), "figures": {k: asdict(s) for k, s in f.items()}} for load, f in costs.items()]
    return {"loads": loads, "lines": lines}


def as_table(costs: Mapping[Load, Mapping[str, Spread]]) -> str:
    rows = [f"{'GPUs':>5}{'processes':>11}{'interval s':>12}" + "".join(f"{label:>24}" for _, label, _ in FIGURES)]
    for load, figures in costs.items():
        cells = (figures[key].text(decimals) if key in figures else "—" for key, _, decimals in FIGURES)
        rows.append(f"{load.gpus:>5}{load.processes:>11}{load.interval_s:>12g}" + "".join(f"{c:>24}" for c in cells))
    for line in as_data(costs)["lines"]:
        straight = "flat" if line["r"] is None else f"r {line['r']:.3f}"
        rows.append(f"{line['per']}: {line['slope']:+.4g} {line['unit']} (from {line['base']:.4g}), {straight}")
    return "\n".join(rows)
