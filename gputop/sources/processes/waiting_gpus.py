"""Which GPUs wait: their mean utilisation over some seconds, so that one quiet sample does not cost a close look."""

from __future__ import annotations

from collections.abc import Mapping

WAITS_BELOW_UTIL = 85.0
"""Below this mean utilisation a GPU's feeders are watched closely: starvation begins at 80."""
MEAN_S = 10.0


class WaitingGpus:
    """The means by the GPUs' indices."""

    def __init__(self) -> None:
        self._means: dict[int, float] = {}
        self.at: float | None = None
        """Monotonic time of the latest values."""

    def observe(self, now: float, util: Mapping[int, float | None]) -> None:
        """Add the utilisation of each GPU, percent."""
        weight = 1.0 if self.at is None else min(1.0, max(0.0, (now - self.at) / MEAN_S))
        self.at = now
        for gpu, value in util.items():
            if value is not None:
                before = self._means.get(gpu, value)
                self._means[gpu] = before + weight * (value - before)

    def waits(self, gpu: int, *, unknown: bool) -> bool:
        """Whether a GPU waits; ``unknown`` where its utilisation has never been known."""
        mean = self._means.get(gpu)
        return unknown if mean is None else mean < WAITS_BELOW_UTIL

    def busy(self, gpu: int) -> float:
        """Mean utilisation as a share; 0 where it is unknown."""
        return self._means.get(gpu, 0.0) / 100.0
