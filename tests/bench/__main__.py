"""``python -m tests.bench``: gputop and its peers, measured on the same stand-in GPUs and the same processes."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench import report, scaling
from tests.bench.measure import QUICK, Effort, measure
from tests.bench.programs import PEERS, Program, gputop, peer
from tests.bench.terminal import ProgramEnded
from tests.bench.workload import Load, machine


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer starts and shorter runs: about 20 s a program")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    parser.add_argument("--peers", default="nvitop", help="comma-separated, of nvitop and gpustat; '' for none")
    parser.add_argument("--without-gputop", action="store_true", help="measure the peers only")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs gputop")
    for name in PEERS:
        parser.add_argument(f"--{name}", metavar="PATH", help=f"an installed {name}; else it is installed by pip")
    parser.add_argument("--load", default="8x8", metavar="GPUSxPROCESSES", help="per GPU, such as 1x2 or 16x32")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="added to every NVML call")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between refreshes")
    parser.add_argument("--scaling", action="store_true", help="only gputop, under growing loads")
    return parser.parse_args()


def programs(options: argparse.Namespace, directory: Path) -> list[Program]:
    own = [] if options.without_gputop else [gputop(options.python)]
    names = [name for name in options.peers.split(",") if name]
    return own + [peer(name, getattr(options, name), directory) for name in names]


def compare(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    gpus, processes = (int(number) for number in options.load.split("x"))
    load = Load(gpus, processes, options.latency_ms, options.interval)
    effort = QUICK if options.quick else Effort()
    with machine(load, directory / "machine") as scenario:
        results = measure(programs(options, directory), scenario, load.interval_s, effort)
    print(report.as_table(load, results))
    return report.as_data(load, results)


def main() -> int:
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="gputop-bench-") as name:
        directory = Path(name)
        try:
            if options.scaling:
                costs = scaling.scale(gputop(options.python), directory, 5.0 if options.quick else 15.0)
                print(scaling.as_table(costs))
                data = scaling.as_data(costs)
            else:
                data = compare(options, directory)
        except ProgramEnded as ended:
            print(f"a program ended before it was told to; its terminal showed:\n{ended}", file=sys.stderr)
            return 1
    if options.json:
        options.json.write_text(json.dumps(data, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
