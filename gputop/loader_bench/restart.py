"""What each epoch costs beyond its batches: the wait for its first one, with workers that stay and with new ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from gputop.model.quantity import duration, seconds

MOST_S = 8.0
WORTH_S = 0.05
"""A wait that is shorter than this is not worth the memory that workers hold between epochs."""


class Restart(Struct, frozen=True):
    """Seconds until the first batch of a later epoch: ``kept_s`` with ``persistent_workers=True``, ``anew_s``
    without."""

    kept_s: float
    anew_s: float

    @property
    def saved_s(self) -> float:
        """Seconds that each epoch's beginning is shorter with workers that stay; never below 0."""
        return max(0.0, self.anew_s - self.kept_s)

    @property
    def is_worth_it(self) -> bool:
        """Whether workers should stay."""
        return self.saved_s >= WORTH_S

    def words(self, epochs: int | None) -> str:
        """The result in words; ``epochs`` is how many the job makes, where that is known."""
        said = (
            f"a later epoch's first batch takes {seconds(self.kept_s)} with persistent_workers, {seconds(self.anew_s)} "
            "without"
        )
        if not self.is_worth_it:
            return f"{said}: not worth keeping the workers"
        of = "" if epochs is None else f", {duration(self.saved_s * (epochs - 1))} over {epochs} epochs"
        return f"{said}: {seconds(self.saved_s)} saved an epoch{of}"


def measure_restart(short_pass: Callable[[bool], Iterable[Any]], clock: Callable[[], float]) -> Restart:
    """Time both. ``short_pass`` makes a loader over a few batches, with workers that stay or not."""
    return Restart(_second_first(short_pass(True), clock), _second_first(short_pass(False), clock))


def _second_first(loader: Iterable[Any], clock: Callable[[], float]) -> float:
    """Seconds to the first batch of the second pass: in the first one a dataset opens its files."""
    for _ in loader:
        pass
    begun = clock()
    batches = iter(loader)
    next(batches)
    return clock() - begun
