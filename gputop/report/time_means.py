"""Means over time."""

from __future__ import annotations


class TimeMeans:
    """Means by name, weighted by time.

    Where no time has passed, as with a single frame, they are plain means.
    """

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float, float, int]] = {}

    def add(self, name: str, value: float | None, seconds: float) -> None:
        """Count a value for ``seconds``; None is not measured."""
        if value is not None:
            weighted, time, plain, count = self._sums.get(name, (0.0, 0.0, 0.0, 0))
            self._sums[name] = weighted + value * seconds, time + seconds, plain + value, count + 1

    def seconds(self, name: str) -> float:
        """Time over which values were added."""
        return self._sums[name][1] if name in self._sums else 0.0

    def __getitem__(self, name: str) -> float | None:
        """Mean of a name; None without values."""
        if name not in self._sums:
            return None
        weighted, time, plain, count = self._sums[name]
        return weighted / time if time > 0.0 else plain / count
