"""How fast this machine is, now: a fixed piece of work in plain Python, to be timed beside what is judged."""

from __future__ import annotations

from time import process_time

ROUNDS = 4800
"""Of the fixed piece of work: about a millisecond where the bounds of the tests were set."""


def _work() -> float:
    seen: dict[int, float] = {}
    for number in range(ROUNDS):
        seen[number % 97] = seen.get(number % 97, 0.0) + number / 3.0
        if seen[number % 97] > 1e9:
            seen.clear()
    return sum(sorted(seen.values()))


def slowness() -> float:
    """How many times slower this machine is, now, than the one where bounds in seconds of CPU were set; at least 1."""
    spent = []
    for _ in range(20):
        begun = process_time()
        _work()
        spent.append(process_time() - begun)
    return max(1.0, 1e3 * min(spent))
