"""``python -m tests.bench``: gputop and nvitop, measured on the same stand-in GPUs and the same processes.

Both are installed into throw-away environments and compared under every load, 8x8, 1x2 and 16x32 (GPUs x processes of
each), at 0 and 1 ms a call: one table for each, median (lowest–highest). Needs pyte and a C compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import report
from tests.bench.measure import QUICK, Effort, measure
from tests.bench.programs import CannotInstall, Program, gputop, nvitop
from tests.bench.terminal import ProgramEnded
from tests.bench.workload import Load, machine


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="fewer and shorter runs: about 5 minutes for the comparison, not 25")
    add("--json", type=Path, metavar="FILE", help="also write all figures as JSON")
    add("--load", default="8x8,1x2,16x32", type=sizes, metavar="GxP[,…]", help="GPUs x processes of each GPU")
    add("--latency-ms", default="0,1", type=numbers, metavar="MS[,…]", help="added to every NVML call")
    add("--interval", type=float, default=1.0, metavar="S", help="seconds between refreshes (default 1)")
    add("--python", metavar="PATH", help="run gputop from this checkout by an interpreter; else it is installed by pip")
    add("--nvitop", metavar="PATH", help="an installed nvitop")
    return parser.parse_args(words)


def sizes(text: str) -> list[tuple[int, int]]:
    pairs = [part.split("x") for part in text.split(",")]
    return [(int(gpus), int(processes)) for gpus, processes in pairs]


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def loads(options: argparse.Namespace) -> list[Load]:
    """Every size at every latency."""
    return [
        Load(gpus, gpus * processes, latency_ms, options.interval)
        for gpus, processes in options.load
        for latency_ms in options.latency_ms
    ]


@dataclass(frozen=True, slots=True)
class Bench:
    """One run of the benchmark: how much, of which programs, where."""

    options: argparse.Namespace
    effort: Effort
    directory: Path

    def compare(self, programs: list[Program]) -> list[dict[str, Any]]:
        """Print a table as soon as a load is measured."""
        data = []
        for load in loads(self.options):
            with machine(load, self.directory / "machine") as scenario:
                results = measure(programs, scenario, load.interval_s, self.effort, warm=not data)
            print(report.as_table(load, results), end="\n\n", flush=True)
            data.append(report.as_data(load, results))
        return data

    def run(self) -> dict[str, Any]:
        """Everything that was asked for. Raises CannotInstall, ProgramEnded and CalledProcessError."""
        options = self.options
        programs = [gputop(options.python, self.directory), nvitop(options.nvitop, self.directory)]
        versions = {program.name: program.version() for program in programs}
        return {"machine": machine_data(), "versions": versions, "comparison": self.compare(programs)}


def machine_data() -> dict[str, Any]:
    load1 = os.getloadavg()[0]
    return {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version(), "load1": load1}


def main() -> int:
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="gputop-bench-") as name:
        try:
            data = Bench(options, QUICK if options.quick else Effort(), Path(name)).run()
        except (CannotInstall, ProgramEnded, subprocess.CalledProcessError) as failure:
            print(f"the benchmark ends: {failure}", file=sys.stderr)
            return 1
    if options.json:
        options.json.write_text(json.dumps(data, indent=2) + "\n")
    return int(any(p["trouble"] for load in data.get("comparison", ()) for p in load["programs"].values()))


if __name__ == "__main__":
    sys.exit(main())
