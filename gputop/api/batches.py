"""Measure how a loader keeps up with a job."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gputop.api.watch import running_step_s
from gputop.features.loader_bench.bench import MAX_MEMORY, BenchRequest, Progress
from gputop.features.loader_bench.bench import dataloader_bench as bench
from gputop.features.loader_bench.bench_report import LoaderReport


def dataloader_bench(
    data: Any,
    *,
    batch_size: int | None = None,
    workers: str | int | Iterable[int] = "auto",
    step_ms: float | None = None,
    budget_s: float = 60.0,
    max_memory: float = MAX_MEMORY,
    progress: Progress | None = None,
) -> LoaderReport:
    """Find the smallest DataLoader setting that keeps up with the job.

    Use the answer as ``DataLoader(dataset, **report.best.kwargs)``. ``data`` is a PyTorch Dataset or DataLoader.
    ``step_ms`` is how long the job's step takes, by default the step of a running watch; a batch must be there in 80 %
    of it. ``budget_s`` bounds the whole, ``max_memory`` the share of the free memory that a setting may take. Raises
    TypeError and ValueError for what makes no sense.
    """
    if step_ms is None and (step_s := running_step_s()) is not None:
        step_ms = 1000.0 * step_s
    counts = workers if isinstance(workers, (str, int)) else list(workers)
    return bench(data, BenchRequest(batch_size, counts, step_ms, budget_s, max_memory), progress)
