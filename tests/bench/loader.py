"""Whether ``gputop loader`` measures loaders right, on a free machine.

The truth is a loop by hand over the same PyTorch DataLoader, without any of gputop's code: thousands of batches, always
asked for, the first ones left out. It runs in turns with gputop's measurement, so that both find the same machine, and
gputop's figure is compared with the mean of the loops before and after it; the median of the rounds counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gputop.features.loader_bench.bench import BenchRequest, dataloader_bench

SAMPLE_S, BATCH = 0.001, 16
MOST_OFF_PCT = 5.0
LEFT_OUT = 4
"""Rounds of the workers before the loop by hand is timed: more than its queue holds."""


class Sleeps:
    """Samples that wait, as for a disk: as many workers as there are help."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, _i: int) -> float:
        time.sleep(SAMPLE_S)
        return 0.0


class Round(NamedTuple):
    """Milliseconds a batch: by hand before, by gputop, by hand after."""

    before: float
    measured: float
    after: float

    @property
    def off_pct(self) -> float:
        return 100.0 * (2.0 * self.measured / (self.before + self.after) - 1.0)


class Judged(NamedTuple):
    """The median of the rounds, how much the loops by hand differ (the span between their quartiles), in percent."""

    off_pct: float
    spread_pct: float

    @property
    def word(self) -> str:
        """``right``, ``wrong``, or ``unsure`` where the truth itself varies by more than what is looked for."""
        if abs(self.off_pct) <= MOST_OFF_PCT:
            return "right" if self.spread_pct <= 2.0 * MOST_OFF_PCT else "unsure"
        leeway = 0.0 if self.spread_pct <= MOST_OFF_PCT else 2.0 * self.spread_pct
        return "wrong" if abs(self.off_pct) > MOST_OFF_PCT + leeway else "unsure"


def judged(rounds: Sequence[Round]) -> Judged:
    by_hand = [rounds[0].before, *(each.after for each in rounds)]
    low, middle, high = statistics.quantiles(by_hand, n=4, method="inclusive")
    return Judged(statistics.median(each.off_pct for each in rounds), 100.0 * (high - low) / middle)


class InTurn:
    """Every index, and again, without an end."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        while True:
            yield from range(self.count)


def by_hand_ms(data: Any, workers: int, seconds: float) -> float:
    """What a batch takes in a loop that does nothing else, after the first rounds of the workers."""
    from torch.utils.data import DataLoader

    loader: Any = DataLoader(data, batch_size=BATCH, num_workers=workers, sampler=InTurn(len(data)))  # type: ignore[arg-type]
    batches = iter(loader)
    for _ in range(LEFT_OUT * max(1, workers)):
        next(batches)
    taken, begun = 0, time.perf_counter()
    while (now := time.perf_counter()) - begun < seconds:
        # Whole rounds: within one, batches come together.
        for _ in range(max(1, workers)):
            next(batches)
            taken += 1
    return 1000.0 * (now - begun) / taken


def measured_ms(data: Any, workers: int) -> float:
    """What gputop says. Raises RuntimeError where it has no figure."""
    (row,) = dataloader_bench(data, BenchRequest(BATCH, [workers], budget_s=30.0)).rows
    if row.batch_ms is None:
        raise RuntimeError(f"{workers} workers: {row.failed}")
    return row.batch_ms


def rounds_of(data: Any, workers: int, count: int, seconds: float) -> list[Round]:
    """By hand, measured, by hand, measured … by hand."""
    found, before = [], by_hand_ms(data, workers, seconds)
    for _ in range(count):
        measured = measured_ms(data, workers)
        after = by_hand_ms(data, workers, seconds)
        found.append(Round(before, measured, after))
        before = after
    return found
