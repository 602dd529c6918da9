"""The cost of this process itself, and of its helper."""

from __future__ import annotations

from time import monotonic, process_time
from typing import TYPE_CHECKING

from gputop.model.snapshot import OwnCost

if TYPE_CHECKING:
    import psutil


class OwnCostMeter:
    """CPU time and memory of this process from one snapshot to the next."""

    def __init__(self) -> None:
        self._cpu_s = self._at = 0.0
        self._process: psutil.Process | None = None

    def read(self, helper: tuple[float, float] | None = None) -> OwnCost:
        """CPU in percent of one core since the last call, resident memory in bytes; the first call has neither.

        ``helper`` is what a helper reports of itself: CPU in percent of one core and resident memory in bytes.

        psutil is imported at the second one: the first picture does not wait for it.
        """
        cpu_s, now = process_time(), monotonic()
        first, elapsed = not self._at, now - self._at
        share = 100.0 * (cpu_s - self._cpu_s) / elapsed if not first and elapsed > 0.0 else None
        self._cpu_s, self._at = cpu_s, now
        return OwnCost(share, None if first else self._rss(), *(helper or ()))

    def _rss(self) -> float | None:
        import psutil

        try:
            if self._process is None:
                self._process = psutil.Process()
            return float(self._process.memory_info().rss)
        except (psutil.Error, OSError):
            return None
