"""``python -m tests.bench.soak``: two days' ticks and more at full speed, and what they leave behind, as one JSON.

Every part runs in a process of its own, so that the memory that one gives back does not hide what another takes. A
part of 0 is left out. Ends with 1 when something was left behind.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Callable
from typing import Any

from tests.bench.soak.judge import faults
from tests.bench.soak.machine import measured
from tests.bench.soak.program import used, watched
from tests.bench.soak.screen import drawn
from tests.bench.soak.typist import typed
from tests.bench.soak.wings import scraped, switched_on

PARTS: dict[str, tuple[Callable[[int], dict[str, Any]], int, str]] = {
    "screen": (drawn, 200_000, "ticks of monitor, memory of the past and painted screens"),
    "wings": (switched_on, 200_000, "ticks remembered, recorded and judged by alerts, with steps and marks"),
    "export": (scraped, 200_000, "ticks of export, a page for every fifteenth"),
    "program": (used, 100, "rounds through all screens of the whole program in a terminal"),
    "typist": (typed, 60, "seconds of keys in any order, in bursts, into the whole program"),
    "live": (watched, 50, "rounds through all screens of gputop on stand-in GPUs"),
    "source": (measured, 120, "seconds of the live source on stand-in GPUs, 50 ticks each"),
}
"""Name, what runs, how long, in what."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak", description=__doc__)
    for name, (_, default, unit) in PARTS.items():
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{unit} (default {default})")
    options = vars(parser.parse_args())
    result = {}
    for name, (part, _, _) in PARTS.items():
        if options[name] > 0:
            print(f"{name} …", file=sys.stderr)
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                result[name] = pool.apply(part, (options[name],))
    left = faults(result)
    print(json.dumps({**result, "faults": left}, indent=2))
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
