"""Whether ``gputop loader`` measures loaders of known cost right: ``python -m tests.bench.loader``, on a free machine.

Two kinds of samples, that sleep and that compute, cost what a plain loop over the dataset says, divided by the workers
that have a core. Then the answer is run: a loop whose step takes as long as was told must not wait for its batches.
Exit 1 where a row is more than 5 % off, or the answer does not keep up.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from typing import Any

from gputop.loader_bench.bench import dataloader_bench
from gputop.loader_bench.report import LoaderReport

SAMPLE_S, BATCH = 0.002, 16
MOST_OFF_PCT = 5.0
WAITS_PCT = 5.0


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


def known_ms(data: Any, batches: int = 40) -> float:
    """What a batch costs without a loader: the median of plain loops over its samples."""
    times = []
    for number in range(batches):
        begun = time.perf_counter()
        for i in range(BATCH):
            data[number * BATCH + i]
        times.append(time.perf_counter() - begun)
    return 1000.0 * statistics.median(times)


def waited_pct(data: Any, report: LoaderReport, step_ms: float, steps: int = 60) -> float:
    """The share of its time in which a loop with the advised loader waits for batches, after the first ones."""
    from torch.utils.data import DataLoader

    assert report.best is not None
    batches = iter(DataLoader(data, batch_size=BATCH, **report.best.kwargs))
    waited = 0.0
    for number in range(steps + 10):
        begun = time.perf_counter()
        next(batches)
        waited += time.perf_counter() - begun if number >= 10 else 0.0
        time.sleep(step_ms / 1000.0)
    return 100.0 * waited / (waited + steps * step_ms / 1000.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--workers", default="0,1,2,4", help="for samples that sleep; computing ones go up to the cores"
    )
    given = parser.parse_args()
    counts = [int(count) for count in given.workers.split(",")]
    cores = len(os.sched_getaffinity(0))
    worst, late = 0.0, 0.0
    for data in (Sleeps(), Computes()):
        one_ms = known_ms(data)
        chosen = [n for n in counts if isinstance(data, Computes) is False or n < max(2, cores)]
        report = dataloader_bench(data, batch_size=BATCH, workers=chosen, budget_s=60.0 * len(chosen))
        print(f"{type(data).__name__}: {one_ms:.1f} ms a batch in a plain loop")
        for row in report.rows:
            true_ms = one_ms / max(1, row.setting.workers)
            if row.batch_ms is None:
                print(f"  {row.setting.name:>3} workers: {row.failed}")
                worst = float("inf")
                continue
            off = 100.0 * (row.batch_ms / true_ms - 1.0)
            worst = max(worst, abs(off))
            print(f"  {row.setting.name:>3} workers: {row.batch_ms:6.2f} ms, true {true_ms:6.2f} ms, off {off:+.1f} %")
        step_ms = 1.5 * one_ms
        report = dataloader_bench(data, batch_size=BATCH, workers=chosen, step_ms=step_ms)
        waits = waited_pct(data, report, step_ms)
        late = max(late, waits)
        print(f"  {report.conclusion}\n  run with it, a loop of {step_ms:.0f} ms steps waits {waits:.1f} % of its time")
        if report.room.is_crowded:
            print(f"  tasks waited for a core {report.room.psi_cpu_pct:.0f} % of the time: not a free machine")
    good = worst <= MOST_OFF_PCT and late <= WAITS_PCT
    print(f"{'right' if good else 'NOT RIGHT'}: at most {worst:.1f} % off, the answer waits at most {late:.1f} %")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
