"""Two questions about a job's batches: how its loader keeps up with them, and how large they can be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gputop.api.batch_search import BatchReport, search
from gputop.api.watch import running_step_s
from gputop.loader_bench.bench import MAX_MEMORY, Progress
from gputop.loader_bench.bench import dataloader_bench as bench
from gputop.loader_bench.report import LoaderReport


def dataloader_bench(
    data: Any,
    *,
    batch_size: int | None = None,
    workers: str | int | Iterable[int] = "auto",
    step_ms: float | None = None,
    budget_s: float = 60.0,
    max_memory: float = MAX_MEMORY,
    progress: Progress | None = None,
    epochs: int | None = None,
) -> LoaderReport:
    """Find the smallest DataLoader setting that keeps up with the job: ``DataLoader(dataset, **report.best.kwargs)``.

    ``data`` is a PyTorch Dataset or DataLoader. ``step_ms`` is how long the job's step takes, by default that of a
    watch that runs; a batch must be there in 80 % of it. ``budget_s`` bounds the whole, ``max_memory`` the share of the
    free memory that a setting may take. ``epochs`` is how many passes the job makes, which sums up their beginnings.
    Raises TypeError and ValueError for what makes no sense.
    """
    if step_ms is None and (step_s := running_step_s()) is not None:
        step_ms = 1000.0 * step_s
    return bench(
        data,
        batch_size=batch_size,
        workers=workers,
        step_ms=step_ms,
        budget_s=budget_s,
        max_memory=max_memory,
        progress=progress,
        epochs=epochs,
    )


def max_batch(
    make_step: Callable[[], Callable[[int], object]],
    sizes: Iterable[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096),
    *,
    steps: int = 3,
    margin: float = 0.1,
    timeout_s: float = 120.0,
) -> BatchReport:
    """The largest batch that trains: ``make_step`` builds model and optimizer and returns ``step(batch_size)``.

    Each size runs ``steps`` whole steps, backward and optimizer included, in a process of its own that is gone when it
    ends, so an out-of-memory error leaves nothing behind. ``make_step`` must be importable: a function of a module.
    ``sizes`` are searched by halves; ``margin`` of the answer is kept free. Raises ValueError for a ``make_step`` that
    cannot be imported or no sizes, and RuntimeError where this process already holds memory of the GPU.
    """
    return search(make_step, sizes, steps=steps, margin=margin, timeout_s=timeout_s)
