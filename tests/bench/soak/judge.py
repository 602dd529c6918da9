"""What a soak must not have left behind, in one line each."""

from __future__ import annotations

from itertools import product
from typing import Any

MOST_MB_A_DAY = 1.0
LEAST_JUDGED_TICKS = 40_000
"""Below this a page more or less is a slope of megabytes a day."""
OPEN = {"screens": 0, "widgets": 4, "tasks": 4, "timers": 4, "threads": 2, "descriptors": 4}
"""The least that lives in a quarter of a run of the whole program is when nothing is open. By so much it may rise."""
MOST_OBJECTS = 1.1
LIBRARY = {"threads": 0, "descriptors": 2}
"""What the driver's library itself keeps: the stand-in its log and its counts."""


def faults(result: dict[str, Any]) -> list[str]:
    """What is wrong with the result of a soak, by its parts; nothing for parts that were left out."""
    found: list[str] = []
    for part_name in ("screen", "wings", "export"):
        part = result.get(part_name)
        if part is not None and part["ticks"] >= LEAST_JUDGED_TICKS:
            for name, value in part["growth"].items():
                if name.startswith("rss_slope") and value is not None and value >= MOST_MB_A_DAY:
                    found.append(f"{part_name}: {name} is {value}, not below {MOST_MB_A_DAY}")
    for name, gauge in product(("wings", "export"), ("descriptors", "threads")):
        part = result.get(name)
        if part is not None and part[gauge][2] > part[gauge][0]:
            found.append(f"{name}: {gauge} went from {part[gauge][0]} to {part[gauge][2]}")
    if (source := result.get("source")) is not None:
        for gauge in ("threads", "descriptors"):
            early, late = (max(quarter[1] for quarter in source[gauge][i : i + 2]) for i in (0, 2))
            if late > early:
                found.append(f"source: {gauge} went from {early} to {late}")
            before, closed = source["before"][gauge], source["closed"][gauge]
            if closed > before + LIBRARY[gauge]:
                found.append(f"source: {closed} {gauge} after it was closed, {before} before it began")
    if (typist := result.get("typist")) is not None and typist["ended"] is not None:
        found.append(f"typist: the program ended after {typist['bursts']} bursts")
    for name in ("program", "live"):
        part = result.get(name)
        for gauge, slack in OPEN.items():
            if part is not None and gauge in part:
                early, late = part[gauge]["second_quarter"][0], part[gauge]["last_quarter"][0]
                if late > early + slack:
                    found.append(f"{name}: {gauge} went from {early} to {late}")
    if (program := result.get("program")) is not None:
        early, late = program["objects"]["second_quarter"][0], program["objects"]["last_quarter"][0]
        if late > MOST_OBJECTS * early:
            found.append(f"program: objects went from {early} to {late}")
    return found
