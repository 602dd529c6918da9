"""How much gputop holds: every container below an object with the number of its entries, and the bytes of all."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator

MOST_HELD = 700
"""Entries of any one container: ten minutes and a minute of ticks is what the longest of them holds meanwhile."""
MOST_NAMES = 32
"""Values of one sample, which stand together in an array of floats: it counts as its samples."""

CONTAINERS = (dict, list, deque, set, array)


def held(root: object) -> Iterator[tuple[int, str]]:
    """(entries, where) of every container that gputop's objects below ``root`` hold; frozen values are not entered."""
    seen: set[int] = set()
    waiting: list[tuple[object, str]] = [(root, type(root).__name__)]
    while waiting:
        thing, where = waiting.pop()
        if id(thing) in seen or isinstance(thing, type):
            continue
        seen.add(id(thing))
        if isinstance(thing, CONTAINERS):
            samples = isinstance(thing, array) and thing.typecode == "f"
            yield len(thing) // (MOST_NAMES if samples else 1), where
        if isinstance(thing, dict):
            waiting += [(value, f"{where}[…]") for value in thing.values()]
        elif isinstance(thing, list | deque | tuple):
            waiting += [(value, f"{where}[…]") for value in thing]
        elif type(thing).__module__.startswith("gputop"):
            names = [
                name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())
            ]
            names += getattr(thing, "__dict__", {})
            waiting += [
                (getattr(thing, name), f"{where}.{name}") for name in names if hasattr(thing, name)
            ]


def too_large(*roots: object) -> list[tuple[int, str]]:
    """The largest containers that hold more than ``MOST_HELD`` entries."""
    return sorted(
        {pair for root in roots for pair in held(root) if pair[0] > MOST_HELD}, reverse=True
    )[:5]
