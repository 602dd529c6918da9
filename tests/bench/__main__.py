"""``python -m tests.bench``: gputop and nvitop, measured on the same stand-in GPUs and the same processes.

Both are installed into throw-away environments and compared under every load, 1x1, 8x8, 8x64 and 16x32 (GPUs x
processes of each), at 0 and 1 ms a call: one table for each, median (lowest–highest). Needs pyte and a C compiler.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench import report
from tests.bench.measure import QUICK, Effort, measure
from tests.bench.programs import CannotInstall, gputop, nvitop
from tests.bench.terminal import ProgramEnded
from tests.bench.workload import Load, machine


def sizes(text: str) -> list[tuple[int, int]]:
    pairs = [part.split("x") for part in text.split(",")]
    return [(int(gpus), int(processes)) for gpus, processes in pairs]


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--quick",
        action="store_true",
        help="fewer and shorter runs: about 5 minutes for the comparison, not 25",
    )
    add(
        "--load",
        default="1x1,8x8,8x64,16x32",
        type=sizes,
        metavar="GxP[,…]",
        help="GPUs x processes of each GPU",
    )
    add(
        "--latency-ms",
        default="0,1",
        type=numbers,
        metavar="MS[,…]",
        help="added to every NVML call",
    )
    add(
        "--python",
        metavar="PATH",
        help="run gputop from this checkout by an interpreter; else it is installed by pip",
    )
    options = parser.parse_args()
    loads = [
        Load(gpus, gpus * each, latency_ms)
        for gpus, each in options.load
        for latency_ms in options.latency_ms
    ]
    has_trouble = False
    with tempfile.TemporaryDirectory(prefix="gputop-bench-") as name:
        folder = Path(name)
        try:
            programs = [gputop(options.python, folder), nvitop(folder)]
            for number, load in enumerate(loads):
                with machine(load, folder / "machine") as scenario:
                    effort = QUICK if options.quick else Effort()
                    results = measure(programs, scenario, load.interval_s, effort, warm=not number)
                print(report.as_table(load, results), end="\n\n", flush=True)
                has_trouble |= any(result.trouble for result in results.values())
        except (CannotInstall, ProgramEnded, subprocess.CalledProcessError) as failure:
            print(f"the benchmark ends: {failure}", file=sys.stderr)
            return 1
    return int(has_trouble)


if __name__ == "__main__":
    sys.exit(main())
