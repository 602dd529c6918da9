"""Learns how often a source renews its values."""

from __future__ import annotations

from collections import deque

_KEPT = 5
"""Intervals remembered: their median survives an idle spell without a change, and soon follows a new setting."""


class UpdateInterval:
    """Learns how often a source renews its values.

    Times are monotonic seconds.
    """

    def __init__(self) -> None:
        self._mark: int | None = None
        self._intervals_s: deque[float] = deque(maxlen=_KEPT)
        self.changed_at: float | None = None
        """When the newest change was seen; None before one was."""

    def see(self, mark: int | None, now: float) -> None:
        """Note the state as a number; None for nothing to watch."""
        before, self._mark = self._mark, mark
        if mark is None or before is None or mark == before:
            return
        if self.changed_at is not None:
            self._intervals_s.append(now - self.changed_at)
        self.changed_at = now

    @property
    def period_s(self) -> float | None:
        """Return the median time between changes, None before two."""
        return sorted(self._intervals_s)[(len(self._intervals_s) - 1) // 2] if self._intervals_s else None
