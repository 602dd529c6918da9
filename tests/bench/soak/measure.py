"""What is left behind: resident memory over ticks as a slope, descriptors and threads of a process."""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
from pathlib import Path

DAY_TICKS = 86_400
LOOKS = 200
"""How often memory is looked at over a run."""
LEAST_TICKS = 20
"""Between two looks, of a run of more than a minute: each takes as long as ten ticks."""
WARM_UP = 10_000
"""Ticks in which what is loaded late, caches, the ten minutes and the findings fill up; at most half of a run."""


def resident_bytes(pid: int | str = "self") -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def descriptors(pid: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def slope(points: list[tuple[int, int]]) -> float:
    """Bytes a tick, by least squares."""
    n = len(points)
    if not n:
        return 0.0
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


class Growth:
    """Resident memory looked at evenly over a run of ``ticks``, after a full collection of garbage each time."""

    def __init__(self, ticks: int) -> None:
        self._every = max(1, ticks // LOOKS, min(LEAST_TICKS, ticks // 4))
        self._warm = min(WARM_UP, ticks // 2)
        self.points: list[tuple[int, int]] = []
        self.blocks: list[tuple[int, int]] = []
        """Blocks of Python's allocator in use: they tell growth from memory that is merely cut into small pieces."""

    def look(self, tick: int) -> None:
        """Called with every tick. Each look is told on stderr, so that a run that is cut short has said something."""
        if tick % self._every == 0:
            gc.collect()
            self.points.append((tick, resident_bytes()))
            self.blocks.append((tick, sys.getallocatedblocks()))
            row = {"tick": tick, "rss": self.points[-1][1], "blocks": self.blocks[-1][1]}
            living = {"threads": threading.active_count(), "descriptors": descriptors()}
            print(json.dumps({**row, **living}), file=sys.stderr, flush=True)

    def account(self) -> dict[str, object]:
        """The slope over all that came after the warm-up and, in a run of more than a day, over what came after that.

        The ring of minutes fills up for a day and then stays: only the second figure is without it.
        """
        warm = [point for point in self.points if point[0] >= self._warm]
        late = [point for point in self.points if point[0] >= DAY_TICKS]
        halves = [warm[: len(warm) // 2], warm[len(warm) // 2 :]]
        blocks = [point for point in self.blocks if point[0] >= self._warm]
        shown = self.points[:: max(1, len(self.points) // 20)]
        return {
            "warm_up_ticks": self._warm,
            "rss_mb": {str(tick): round(size / 1e6, 2) for tick, size in (*shown, self.points[-1])},
            "rss_slope_mb_a_day": day_slope_mb(warm),
            "rss_slope_mb_a_day_after_a_day": day_slope_mb(late) if len(late) >= LOOKS // 4 else None,
            "halves_mb_a_day": [day_slope_mb(half) for half in halves],
            "blocks_a_day": round(slope(blocks) * DAY_TICKS),
        }


def day_slope_mb(points: list[tuple[int, int]]) -> float:
    return round(slope(points) * DAY_TICKS / 1e6, 3)
