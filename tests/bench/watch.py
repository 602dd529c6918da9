"""What ``gputop.watch`` takes from the program that it watches: ``python -m tests.bench.watch``, about 5 minutes.

A CPU-bound loop runs on the stand-in driver with and without a watch in turns (``watched_loop``), each pair giving:

- *threads*: the CPU time of all of gputop's threads, from the kernel's account: exact, whoever else is on the machine.
- *cold caches*: the CPU time that the loop's thread takes more in a piece of work in which it had to wait for the
  interpreter's lock, and in the two after it, than in its undisturbed neighbours.
- *waits for the lock*: the time in which the loop's thread neither ran nor waited for a core, less the same without a
  watch. It contains what gputop's threads do while they hold the lock, and every handover.

CPU time is the first two together: what the machine spends. What the loop loses is the last two together: how much
later it ends. They overlap, and are never added. The process's whole CPU time for the same work, the plain comparison,
stands beside: it contains how much faster or slower the machine was in the meantime.

Many short pairs bound a median more closely than a few long ones that take as long: of ten the bound is the second
largest value, of twenty-five the eighteenth. Two seconds hold two ticks in every block.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from math import comb
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.watched_loop import Block
from tests.nvml.stand_in import Process, Scenario, build

ROOT = Path(__file__).parent.parent.parent
MOST_PCT = 0.5
MOST_THREADS_PCT = (0.3, 0.6)
"""Of a core, with one GPU and with eight."""
AIMS = f"threads {MOST_THREADS_PCT[0]} % of a core with 1 GPU, {MOST_THREADS_PCT[1]} % with 8, CPU time {MOST_PCT} %"
STEP = """
import json, time, timeit
from gputop.api.watch import watch
with watch(gpus="all") as w:
    plain = min(timeit.repeat(w.step, number=20000, repeat=9)) / 20000
    named = min(timeit.repeat(lambda: w.step(3, loss=0.5), number=20000, repeat=9)) / 20000
print(json.dumps({"step_ns": plain * 1e9, "step_with_loss_ns": named * 1e9}))
"""

SURE = 5
"""Pairs from which on the sign test gives a bound."""


def run(scenario: Scenario, arguments: Sequence[object]) -> dict[str, Any]:
    environment = {**scenario.environment(), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def scenario_of(folder: Path, library: Path, gpus: int) -> Scenario:
    scenario = Scenario(folder, library, gpus)
    for gpu in scenario.gpus:
        gpu.processes = [Process(os.getpid(), 1 << 30)]
    scenario.write()
    return scenario


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=25, help="25 take about 2½ minutes for each number of GPUs")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each half of a pair")
    parser.add_argument("--gpus", type=int, nargs="*", default=[1, 8])
    parser.add_argument("--cores", help="as 0,1: where the loop and gputop's threads may run")
    given = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as name:
        library = Path(name, "nvml")
        library.mkdir()
        build(library)
        for gpus in given.gpus:
            folder = Path(name, str(gpus))
            folder.mkdir()
            scenario = scenario_of(folder, library, gpus)
            cores = [] if given.cores is None else [given.cores]
            told = run(scenario, ["-m", "tests.bench.watched_loop", given.pairs, given.seconds, *cores])
            pairs = [(Block(**alone), Block(**watched)) for alone, watched in told["pairs"]]
            overhead = overhead_of(pairs)
            print(words(gpus, overhead, len(pairs)), flush=True)
            good = good and is_within(gpus, overhead)
        print(json.dumps(run(scenario, ["-c", STEP])))
    print("within the aims" if good else "NOT within the aims: " + AIMS)
    return 0 if good else 1


class Figure(NamedTuple):
    """The median of the pairs and its one-sided upper 95 % bound."""

    middle: float
    bound: float


def figure(values: Sequence[float]) -> Figure:
    """By the sign test: the bound is the smallest ordered value that less than one in twenty medians would exceed.

    With fewer than five pairs there is none: the largest value stands there, at less than 95 %.
    """
    ordered, n = sorted(values), len(values)
    tail, at = 0.0, n - 1
    for k in range(n - 1, -1, -1):
        # How likely it is that all values from the k-th on lie above the median.
        tail += comb(n, k + 1) / 2.0**n
        if tail > 0.05:
            break
        at = k
    return Figure(statistics.median(ordered), ordered[at])


class Overhead(NamedTuple):
    """In percent of the time: CPU time of gputop's threads, what the loop waited for the lock and was slower after it,
    and what the process took more for the same work; and ms of the longest turn of gputop's thread."""

    threads: Figure
    waited: Figure
    slower: Figure
    cpu: Figure
    lost: Figure
    plain: Figure
    switches_a_s: float
    longest_ms: float


def overhead_of(pairs: Sequence[tuple[Block, Block]]) -> Overhead:
    """What each pair of blocks, without and with a watch, comes to."""
    return Overhead(
        figure([watched.threads_pct for _, watched in pairs]),
        figure([watched.slept_pct - alone.slept_pct for alone, watched in pairs]),
        figure([watched.slower_pct - alone.slower_pct for alone, watched in pairs]),
        figure([watched.threads_pct + watched.slower_pct - alone.slower_pct for alone, watched in pairs]),
        figure(
            [watched.slept_pct - alone.slept_pct + watched.slower_pct - alone.slower_pct for alone, watched in pairs]
        ),
        figure([100.0 * (watched.cpu_s / alone.cpu_s - 1.0) for alone, watched in pairs]),
        statistics.median(watched.switches - alone.switches for alone, watched in pairs),
        max(watched.longest_ms for _, watched in pairs),
    )


def words(gpus: int, found: Overhead, pairs: int) -> str:
    def said(value: Figure) -> str:
        return f"{value.middle:+.2f} % (at most {value.bound:+.2f})"

    return (
        f"{gpus} GPU, {pairs} pairs, medians and {'upper 95 % bounds' if pairs >= SURE else 'the largest'}:\n"
        f"  CPU time      gputop's threads {said(found.threads)} of a core, the loop's own thread {said(found.slower)} "
        f"from cold caches: together {said(found.cpu)}\n"
        f"  the loop      waits for the interpreter's lock {said(found.waited)} of its time: with cold caches it loses "
        f"{said(found.lost)}\n"
        f"  for comparison, the process's CPU time a piece, noise of the machine included: {said(found.plain)}; "
        f"{found.switches_a_s:.0f} waits a block; longest turn {found.longest_ms:.1f} ms"
    )


def is_within(gpus: int, found: Overhead) -> bool:
    """Whether the threads take at most what they may, and with one GPU all of it at most half a percent."""
    threads = MOST_THREADS_PCT[0 if gpus == 1 else 1]
    return found.threads.middle <= threads and (gpus > 1 or found.cpu.bound <= MOST_PCT)


if __name__ == "__main__":
    sys.exit(main())
