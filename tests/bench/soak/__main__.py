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

from tests.bench.soak.machine import measured
from tests.bench.soak.program import used
from tests.bench.soak.session import scraped, switched_on

PARTS: dict[str, tuple[Callable[[int], dict[str, Any]], int, str]] = {
    "wings": (switched_on, 200_000, "ticks remembered, recorded, judged by alerts and painted, with steps and marks"),
    "export": (scraped, 200_000, "ticks of export, a page for every fifteenth"),
    "program": (used, 100, "rounds through all screens of the whole program in a terminal"),
    "source": (measured, 120, "seconds of the live source on stand-in GPUs, 50 ticks each"),
}
"""Name, what runs, how long, in what."""
MOST_MB_A_DAY = 1.0
LEAST_JUDGED_TICKS = 40_000
"""Below this a page more or less is a slope of megabytes a day."""
LIBRARY = {"threads": 0, "descriptors": 2}
"""What the driver's library itself keeps: the stand-in its log and its counts."""
OPEN = {"screens": 0, "widgets": 4, "tasks": 4, "timers": 4, "threads": 2, "descriptors": 4}
"""The least that lives in a quarter of a run of the whole program is when nothing is open. By so much it may rise."""
MOST_OBJECTS = 1.1


def faults(result: dict[str, Any]) -> list[str]:
    """What was left behind, by the parts of a soak, in one line each; nothing for parts that were left out."""
    found: list[str] = []
    for name in ("wings", "export"):
        part = result.get(name, {})
        if part.get("ticks", 0) >= LEAST_JUDGED_TICKS:
            for key, value in part["growth"].items():
                if key.startswith("rss_slope") and value is not None and value >= MOST_MB_A_DAY:
                    found.append(f"{name}: {key} is {value}, not below {MOST_MB_A_DAY}")
        for gauge in ("descriptors", "threads"):
            before, _, after = part.get(gauge, (0, 0, 0))
            if after > before:
                found.append(f"{name}: {gauge} went from {before} to {after}")
    if source := result.get("source"):
        for gauge, kept in LIBRARY.items():
            early, late = (max(quarter[1] for quarter in source[gauge][i : i + 2]) for i in (0, 2))
            if late > early:
                found.append(f"source: {gauge} went from {early} to {late}")
            before, closed = source["before"][gauge], source["closed"][gauge]
            if closed > before + kept:
                found.append(f"source: {closed} {gauge} after it was closed, {before} before it began")
    for gauge, ranges in result.get("program", {}).get("gauges", {}).items():
        early, late = ranges["second_quarter"][0], ranges["last_quarter"][0]
        if late > (MOST_OBJECTS * early if gauge == "objects" else early + OPEN[gauge]):
            found.append(f"program: {gauge} went from {early} to {late}")
    return found


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
