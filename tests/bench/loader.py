"""Whether ``gputop loader`` measures loaders right: ``python -m tests.bench.loader``, on a free machine.

The truth is a loop by hand over the same PyTorch DataLoader, without any of gputop's code: thousands of batches, always
asked for, the first ones left out. It runs in turns with gputop's measurement, so that both find the same machine, and
gputop's figure is compared with the mean of the loops before and after it; the median of the rounds counts. What the
samples cost in a plain loop, divided by the workers, is printed as a lower bound: it knows nothing of pickling, shared
memory and the main process.

Exit 0: right. 1: a row is more than 5 % off. 2: not judged, since the loops by hand differ among themselves by more
than that, as where others use the machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gputop.features.loader_bench.bench import dataloader_bench

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


class Computes(Sleeps):
    """Samples that take a core: as many workers help as there are cores."""

    def __getitem__(self, _i: int) -> float:
        until = time.thread_time() + SAMPLE_S
        while time.thread_time() < until:
            pass
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
    (row,) = dataloader_bench(data, batch_size=BATCH, workers=[workers], budget_s=30.0).rows
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


def bound_ms(data: Any, workers: int, batches: int = 30) -> float:
    """Below this no loader can be: the median of plain loops over the samples of a batch, divided by the workers."""
    times = []
    for number in range(batches):
        begun = time.perf_counter()
        for i in range(BATCH):
            data[number * BATCH + i]
        times.append(time.perf_counter() - begun)
    return 1000.0 * statistics.median(times) / max(1, workers)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--workers", default="0,1,2,4", help="for samples that sleep; computing ones go up to the cores"
    )
    parser.add_argument("--rounds", type=int, default=4, help="4 take about 4 minutes")
    parser.add_argument("--seconds", type=float, default=2.5, help="of each loop by hand")
    given = parser.parse_args()
    # PyTorch's advice on the number of workers: how many there are is what is asked here.
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    counts = [int(count) for count in given.workers.split(",")]
    cores = len(os.sched_getaffinity(0))
    words = []
    for data in (Sleeps(), Computes()):
        chosen = [n for n in counts if not isinstance(data, Computes) or n < max(2, cores)]
        for workers in chosen:
            rounds = rounds_of(data, workers, given.rounds, given.seconds)
            found = judged(rounds)
            words.append(found.word)
            true = statistics.median([rounds[0].before, *(each.after for each in rounds)])
            print(
                f"{type(data).__name__:>8} {workers} workers: {statistics.median(r.measured for r in rounds):6.2f} ms, "
                f"by hand {true:6.2f} ms (quartiles {found.spread_pct:.1f} % apart), off {found.off_pct:+.1f} %: "
                f"{found.word}; without a queue {bound_ms(data, workers):.2f} ms",
                flush=True,
            )
    verdict = "NOT RIGHT" if "wrong" in words else "NOT JUDGED" if "unsure" in words else "RIGHT"
    print(f"{verdict}: {words.count('right')} of {len(words)} rows right")
    return ("RIGHT", "NOT RIGHT", "NOT JUDGED").index(verdict)


if __name__ == "__main__":
    sys.exit(main())
