"""How often a source renews its values, learned from watching them change."""

from __future__ import annotations

from collections import deque

_KEPT = 5
"""Intervals remembered: their median survives an idle spell without a change, and soon follows a new setting."""


class UpdateInterval:
    """Learns from what was seen and when. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._mark: int | None = None
        self._between: deque[float] = deque(maxlen=_KEPT)
        self.changed_at: float | None = None
        """When the newest change was seen; None before one was."""

    def see(self, mark: int | None, now: float) -> None:
        """Note the present state as a number that changes with it; None when there is nothing to watch."""
        before, self._mark = self._mark, mark
        if mark is None or before is None or mark == before:
            return
        if self.changed_at is not None:
            self._between.append(now - self.changed_at)
        self.changed_at = now

    @property
    def period_s(self) -> float | None:
        """The usual time between two changes, the median of the last ones; None before two were seen."""
        return sorted(self._between)[(len(self._between) - 1) // 2] if self._between else None
