"""How the cost grows: GPUs, processes, refresh rate. Only gputop; its CPU time a tick, from which the parts follow."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.bench.measure import WARM_UP_S, open_terminal
from tests.bench.programs import Program
from tests.bench.workload import Load, machine, set_in_motion

ONE_GPU = Load(gpus=1, processes_per_gpu=16)
SPREAD = Load(gpus=16, processes_per_gpu=1)
CROWDED = Load(gpus=16, processes_per_gpu=32)
LOADS = (
    Load(gpus=1, processes_per_gpu=8),
    ONE_GPU,
    Load(),
    SPREAD,
    CROWDED,
    replace(Load(), interval_s=0.5),
    replace(Load(), interval_s=0.25),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one load. A tick is one interval."""

    load: Load
    cpu_ms_per_tick: float
    cpu_pct: float
    peak_rss_mb: float


def scale(program: Program, directory: Path, seconds: float) -> list[Cost]:
    """Run the program at rest under each load. Raises ProgramEnded when it leaves."""
    costs = []
    for number, load in enumerate(LOADS):
        with machine(load, directory / f"scaling-{number}") as scenario:
            set_in_motion(scenario, True)
            terminal = open_terminal(program, scenario, load.interval_s)
            try:
                terminal.drain(WARM_UP_S)
                before = terminal.cpu_s()
                terminal.drain(seconds)
                share = (terminal.cpu_s() - before) / seconds
                costs.append(Cost(load, 1000 * share * load.interval_s, 100 * share, terminal.peak_rss_bytes() / 1e6))
            finally:
                terminal.close()
    return costs


def parts(costs: list[Cost]) -> dict[str, float]:
    """Milliseconds of CPU a tick for one more GPU (same processes) and one more process (same GPUs)."""
    by_load = {cost.load: cost.cpu_ms_per_tick for cost in costs}
    processes = CROWDED.gpus * CROWDED.processes_per_gpu - SPREAD.gpus * SPREAD.processes_per_gpu
    return {
        "ms_per_gpu": (by_load[SPREAD] - by_load[ONE_GPU]) / (SPREAD.gpus - ONE_GPU.gpus),
        "ms_per_process": (by_load[CROWDED] - by_load[SPREAD]) / processes,
    }


def as_table(costs: list[Cost]) -> str:
    head = f"{'GPUs':>6}{'processes':>11}{'interval s':>12}{'ms/tick':>10}{'CPU %':>8}{'RSS MB':>8}"
    rows = [
        f"{c.load.gpus:>6}{c.load.gpus * c.load.processes_per_gpu:>11}{c.load.interval_s:>12g}"
        f"{c.cpu_ms_per_tick:>10.2f}{c.cpu_pct:>8.2f}{c.peak_rss_mb:>8.1f}"
        for c in costs
    ]
    each = parts(costs)
    last = f"one more GPU {each['ms_per_gpu']:.3f} ms/tick, one more process {each['ms_per_process']:.4f} ms/tick"
    return "\n".join([head, *rows, last])


def as_data(costs: list[Cost]) -> dict[str, object]:
    return {"scaling": [asdict(cost) for cost in costs], **parts(costs)}
