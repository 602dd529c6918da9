"""Measure how a loader keeps up with a job."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from gputop.api.watch import running_step_s
from gputop.features.loader_bench.bench import (
    CUDA_WORDS,
    MAX_MEMORY,
    BenchRequest,
    Progress,
    checked,
    measure_loader,
)
from gputop.features.loader_bench.bench_report import LoaderReport
from gputop.features.loader_bench.job_process import in_fork
from gputop.features.loader_bench.job_side import LoaderFactory, is_cuda_in_use


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
    asked = checked(BenchRequest(batch_size, counts, step_ms, budget_s, max_memory))
    factory = LoaderFactory(data, batch_size)
    if is_cuda_in_use():
        raise TypeError(CUDA_WORDS)
    job = in_fork(factory)
    try:
        # Its first event says that it has the dataset.
        job.next_event(budget_s)
        return measure_loader(job, sys.executable, factory.batch_size, asked, progress)
    finally:
        job.close()
