"""Device memory of each process over ten minutes and more: a leak grows and never stops, a warm-up ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise

from gputop.diagnosis.signals import Leak
from gputop.model.snapshot import ProcessSample

POINT_S = 20.0
"""A point stands for the time since the one before it."""
MOST_POINTS = 60
LEAST_SPAN_S = 600.0
LEAST_SLOPE = 20e6
"""Bytes per minute [judged]."""
LEAST_R2 = 0.9
LEAST_RISES = 3
"""In each third of the points: a leak does not stop, a plateau does."""
MOST_DROP = 0.05
FULL_WITHIN_S = 24 * 3600.0
MOST_PROCESSES = 64

Points = Sequence[tuple[float, float]]


class MemoryTrend:
    """Memory of each process on one GPU, a point every 20 s.

    The slope is judged only when memory has grown at all.
    """

    def __init__(self) -> None:
        self._points: dict[int, deque[tuple[float, float]]] = {}
        self._t = float("-inf")
        self.leak: Leak | None = None

    def observe(self, t: float, owners: Iterable[ProcessSample], free_bytes: float | None) -> None:
        """Take a point when one is due, and judge the trend."""
        if t - self._t < POINT_S - 0.5:
            return
        self._t = t
        points: dict[int, deque[tuple[float, float]]] = {}
        leak: Leak | None = None
        for p in owners:
            if p.gpu_mem_bytes is None or len(points) >= MOST_PROCESSES:
                continue
            track = points[p.pid] = self._points.get(p.pid) or deque(maxlen=MOST_POINTS)
            track.append((t, p.gpu_mem_bytes))
            slope = growth(track)
            if slope is not None and (leak is None or slope[0] > leak.bytes_per_min):
                per_min, r2 = slope
                full = None if free_bytes is None else max(0.0, free_bytes) / per_min * 60.0
                if full is None or full < FULL_WITHIN_S:
                    leak = Leak(
                        p.pid, p.static.name or "process", per_min, t - track[0][0], r2, full
                    )
        self._points = points
        self.leak = leak


def growth(points: Points) -> tuple[float, float] | None:
    """Growth of steadily growing memory, or None.

    (bytes per minute, R²) by Theil and Sen's slope: steps do not fool it.
    """
    if len(points) < 3 * (LEAST_RISES + 1) or points[-1][0] - points[0][0] + POINT_S < LEAST_SPAN_S:
        return None
    span_min = (points[-1][0] - points[0][0]) / 60.0
    if points[-1][1] - points[0][1] < 0.5 * LEAST_SLOPE * span_min:
        return None
    values = [value for _, value in points]
    if any(after < before * (1.0 - MOST_DROP) for before, after in pairwise(values)):
        return None
    rises = [after > before for before, after in pairwise(values)]
    third = len(rises) / 3.0
    if any(sum(rises[round(i * third) : round((i + 1) * third)]) < LEAST_RISES for i in range(3)):
        return None
    # Imported only where a leak is suspected: the module imports fractions and decimal.
    from statistics import correlation, median

    slope = 60.0 * median((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2))
    # The share of the variance that a straight line explains.
    r2 = correlation([t for t, _ in points], values) ** 2
    return (slope, r2) if slope >= LEAST_SLOPE and r2 >= LEAST_R2 else None
