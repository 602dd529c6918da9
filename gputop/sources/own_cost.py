"""What this process itself takes."""

from __future__ import annotations

import os
from time import monotonic, process_time

from gputop.model.snapshot import OwnCost


class OwnCostMeter:
    """CPU time and memory of this process from one snapshot to the next."""

    def __init__(self) -> None:
        self._cpu_s = self._at = 0.0
        self._page = os.sysconf("SC_PAGESIZE")

    def read(self) -> OwnCost:
        """CPU in percent of one core since the last call (None at the first), resident memory in bytes."""
        cpu_s, now = process_time(), monotonic()
        share = 100.0 * (cpu_s - self._cpu_s) / (now - self._at) if self._at and now > self._at else None
        self._cpu_s, self._at = cpu_s, now
        return OwnCost(share, self._rss())

    def _rss(self) -> float | None:
        try:
            with open("/proc/self/statm", "rb", buffering=0) as file:
                return float(int(file.read(128).split()[1]) * self._page)
        except (OSError, ValueError, IndexError):
            return None
