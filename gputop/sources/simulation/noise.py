"""Deterministic noise: a function of seed, series and time."""

from __future__ import annotations

from math import floor

_MASK = (1 << 64) - 1
_FAST_S = 2.0
_SLOW_S = 13.0
_MOST_CYCLES = 8
"""With more cycles in one sample the jitter of single cycles cannot be seen."""


def chance(seed: int, series: int, step: int) -> float:
    """Return an even pseudo-random number in [0, 1) (splitmix64).

    Independent for every (seed, series, step). Nothing here keeps state, so a simulated machine can be read at any
    time, in any order, at any rate, and two readers see the same machine.
    """
    x = (
        seed * 0xD1342543DE82EF95 + series * 0x9E3779B97F4A7C15 + step * 0xDA942042E4DD58B5 + 1
    ) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((x ^ (x >> 31)) >> 11) / 9007199254740992.0


def ripple(seed: int, series: int, t: float, period_s: float = _FAST_S) -> float:
    """Return smooth noise in [-1, 1] that changes within ``period_s``."""
    x = t / period_s
    step = floor(x)
    before = chance(seed, series, step)
    return 2.0 * (before + (chance(seed, series, step + 1) - before) * (x - step)) - 1.0


def drift(seed: int, series: int, t: float) -> float:
    """Return noise in [-1, 1] with a fast and a slow part.

    It looks like a first-order autoregressive process.
    """
    return 0.55 * ripple(seed, series, t) + 0.45 * ripple(seed, ~series, t, _SLOW_S)


def busy_share(
    seed: int, series: int, begin: float, end: float, period_s: float, duty: float
) -> float:
    """Return the busy share of [begin, end] in a repeating cycle.

    A cycle is busy first and idle then. Its busy part lasts ``duty`` of the period, a tenth more or less from cycle to
    cycle, as steps do.
    """
    first, last = floor(begin / period_s), floor(end / period_s)
    if end <= begin or last - first > _MOST_CYCLES:
        return duty
    busy = 0.0
    for cycle in range(first, last + 1):
        start = cycle * period_s
        stop = start + duty * period_s * (0.9 + 0.2 * chance(seed, series, cycle))
        busy += max(0.0, min(end, stop) - max(begin, start))
    return busy / (end - begin)
