"""What ``gputop.watch`` takes from the program that it watches: ``python -m tests.bench.watch``.

A CPU-bound loop of fixed length runs with and without a watch in turns, on the stand-in driver, and its CPU time is
compared, gputop's threads included; the bound is that of a sign test on the pairs. The cost of gputop's threads is
read from the kernel's counters, with one GPU and with eight.

On a machine that others use, pairs differ by more than what is looked for. There the second figure counts: the CPU time
of gputop's threads, which the kernel tells exactly, and what each of its ticks makes the loop's own thread slower,
against the rest of the same second.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.nvml.stand_in import Process, Scenario, build

ROOT = Path(__file__).parent.parent.parent
LOOP = """
import json, resource, sys, time
watched, steps, work = sys.argv[1] == "1", int(sys.argv[2]), int(sys.argv[3])
import gputop
from gputop.api.watch import watch
w = watch(gpus="all") if watched else None
if w: w.start()
# The driver is opened and the first readings are made in the beginning: what stays is what is measured.
time.sleep(2)
before = w.cost if w else None
wall, cpu = time.monotonic(), time.process_time()
total = 0
for i in range(steps):
    for j in range(work): total += j * j
    if w: w.step(i)
cpu, wall = time.process_time() - cpu, time.monotonic() - wall
cost = w.cost if w else None
share = 100 * (cost.cpu_s - before.cpu_s) / wall if w else None
if w: w.stop()
print(json.dumps({"cpu_s": cpu, "wall_s": wall, "gputop_pct": share,
    "longest_ms": 1000 * cost.longest_s if cost else None,
    "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""
TICKS = """
import json, sys, threading, time
ticks, work = int(sys.argv[1]), int(sys.argv[2])
from gputop.api.watch import watch
at = []
w = watch(gpus="all", on_frame=lambda _: at.append(time.perf_counter())).start()
time.sleep(3)
before, begun = w.cost, time.perf_counter()
del at[:]
chunks, total = [], 0
clock, cpu = time.perf_counter, time.thread_time
while len(at) < ticks:
    t, c = clock(), cpu()
    for j in range(work): total += j * j
    w.step()
    chunks.append((t, clock(), cpu() - c))
cost, wall = w.cost, time.perf_counter() - begun
w.stop()
excess, spent = [], sum(c for _, _, c in chunks)
for tick in at[1:-1]:
    # gputop's threads run shortly before a frame is handed out; caches are cold for a moment after.
    near = [c for a, b, c in chunks if b > tick - 0.12 and a < tick + 0.06]
    far = sorted(c for a, b, c in chunks if 0.15 < a - tick < 0.6)
    if near and len(far) >= 5:
        excess.append(sum(near) - len(near) * sum(far) / len(far))
print(json.dumps({"threads_pct": 100 * (cost.cpu_s - before.cpu_s) / wall, "excess_ms": [1000 * e for e in excess],
    "seconds": wall, "loop_s": spent}))
"""
STEP = """
import json, time, timeit
from gputop.api.watch import watch
with watch(gpus="all") as w:
    plain = min(timeit.repeat(w.step, number=20000, repeat=9)) / 20000
    named = min(timeit.repeat(lambda: w.step(3, loss=0.5), number=20000, repeat=9)) / 20000
print(json.dumps({"step_ns": plain * 1e9, "step_with_loss_ns": named * 1e9}))
"""


def run(scenario: Scenario, code: str, *arguments: object) -> dict[str, Any]:
    environment = {**scenario.environment(), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, *map(str, arguments)]
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--work", type=int, default=100_000)
    parser.add_argument("--gpus", type=int, nargs="*", default=[1, 8])
    parser.add_argument("--ticks", type=int, default=90)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        library = Path(name, "nvml")
        library.mkdir()
        build(library)
        for gpus in given.gpus:
            folder = Path(name, str(gpus))
            folder.mkdir()
            scenario = scenario_of(folder, library, gpus)
            pairs = []
            for number in range(given.pairs):
                order = (0, 1) if number % 2 else (1, 0)
                found = {which: run(scenario, LOOP, which, given.steps, given.work) for which in order}
                pairs.append((found[0], found[1]))
            report(gpus, pairs)
            report_ticks(gpus, run(scenario, TICKS, given.ticks, 20_000))
        print(json.dumps(run(scenario, STEP)))
    return 0


def report_ticks(gpus: int, found: dict[str, Any]) -> None:
    """Both parts of the overhead in percent of a core; the second with its one-sided 95 % bound, by the median and the
    spread between the quartiles, which single ticks in which a neighbour ran do not move."""
    excess = found["excess_ms"]
    middle = statistics.median(excess)
    low, _, high = statistics.quantiles(excess, n=4)
    # The standard error of a median of a normal sample is 1.2533 times that of its mean.
    bound = middle + 1.645 * 1.2533 * (high - low) / 1.349 / len(excess) ** 0.5
    threads = found["threads_pct"]
    print(
        f"{gpus} GPU: threads {threads:.2f} % of a core; the loop's own thread is {middle:+.2f} ms slower a tick "
        f"(upper bound {bound:+.2f} ms, {len(excess)} ticks): together {threads + middle / 10:.2f} %, upper bound "
        f"{threads + bound / 10:.2f} %"
    )


def report(gpus: int, pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    more = sorted(100.0 * (watched["cpu_s"] / alone["cpu_s"] - 1.0) for alone, watched in pairs)
    # Of ten pairs the ninth difference is above the median with 98.9 % (binomial): the upper 95 % bound.
    upper = more[min(len(more) - 1, round(0.8 * len(more)))]
    cost = statistics.median(watched["gputop_pct"] for _, watched in pairs)
    longest = max(watched["longest_ms"] for _, watched in pairs)
    rss = statistics.median(watched["rss_mb"] - alone["rss_mb"] for alone, watched in pairs)
    print(
        f"{gpus} GPU: CPU time of the loop {statistics.median(more):+.2f} % (median of {len(pairs)} pairs, upper bound "
        f"{upper:+.2f} %), gputop's threads {cost:.2f} % of a core, longest turn {longest:.1f} ms, +{rss:.0f} MB"
    )


if __name__ == "__main__":
    sys.exit(main())
