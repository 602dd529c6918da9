"""One setting measured in a forked process, so that a crash costs one row and not the session.

The parent samples the child's processes at the same time: their memory, and what the workers do.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from gputop.features.loader_bench.bench_report import BenchRow, LoaderSetting
from gputop.features.loader_bench.process_tree_meter import ProcessTreeMeter
from gputop.features.loader_bench.timing import BatchTiming, EmptyLoaderError, measure
from gputop.model.clean_text import clean_text, error_text, error_words
from gputop.model.quantity import GIB
from gputop.system.children import die_with_parent, how_it_ended

SAMPLE_S = 0.25
MAX_REASON_CHARS = 200
MEMORY_TIMEOUT_S = 5.0
"""How long the child keeps its workers alive for the measurement of their memory."""
_KEPT = ("collate_fn", "worker_init_fn", "drop_last", "multiprocessing_context", "timeout")


class LoaderFactory:
    """Make loaders for a dataset, or for the dataset of a DataLoader. Raises TypeError for anything else."""

    def __init__(self, data: Any, batch_size: int | None) -> None:
        is_loader = hasattr(data, "dataset") and hasattr(data, "num_workers")
        self.dataset = data.dataset if is_loader else data
        if not (hasattr(self.dataset, "__getitem__") or hasattr(self.dataset, "__iter__")):
            raise TypeError(f"{type(data).__name__} is neither a dataset nor a DataLoader")
        self._loader = data if is_loader else None
        loader_batch_size = data.batch_size if is_loader else 1
        self.batch_size: int | None = loader_batch_size if batch_size is None else batch_size

    def make(self, setting: LoaderSetting, seed: int) -> Any:
        """Return a DataLoader with this setting; each seed reads the samples, and so the disk, in another order."""
        from torch.utils.data import DataLoader, IterableDataset

        arguments: dict[str, Any] = dict(setting.kwargs)
        if self._loader is not None:
            kept = {key: getattr(self._loader, key, None) for key in _KEPT}
            arguments |= {key: value for key, value in kept.items() if value is not None}
        if isinstance(self.dataset, IterableDataset) or not hasattr(self.dataset, "__len__"):
            return DataLoader(self.dataset, batch_size=self.batch_size, **arguments)
        if len(self.dataset) == 0:
            raise ValueError("the dataset is empty")
        sampler = getattr(self._loader, "batch_sampler", None)
        if sampler is not None and type(sampler).__name__ != "BatchSampler":
            # The loader's own way to make batches, which is not PyTorch's.
            arguments.pop("drop_last", None)
            return DataLoader(self.dataset, batch_sampler=sampler, **arguments)
        return DataLoader(
            self.dataset,
            batch_size=self.batch_size,
            sampler=_EndlessSampler(len(self.dataset), seed),
            **arguments,
        )


class _EndlessSampler:
    """Indices in random order, again and again, so that a short dataset does not end the timing."""

    def __init__(self, count: int, seed: int) -> None:
        self._count, self._seed = count, seed

    def __iter__(self) -> Iterator[int]:
        from random import Random

        random = Random(self._seed)
        while True:
            yield from random.sample(range(self._count), self._count)


def measure_setting(
    factory: LoaderFactory,
    setting: LoaderSetting,
    seed: int,
    *,
    limit_s: float,
    max_bytes: float | None,
) -> BenchRow:
    """Measure one setting in a child, which is killed after ``limit_s`` or beyond ``max_bytes`` of memory."""
    context: Any = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(
        target=_child, args=(theirs, factory, setting, seed), name="gputop-loader-bench"
    )
    child.start()
    theirs.close()
    meter = ProcessTreeMeter(child.pid)
    try:
        timing = _follow(ours, child, meter, limit_s, max_bytes)
    finally:
        _kill(child)
        meter.close()
        ours.close()
    if not isinstance(timing, BatchTiming):
        return BenchRow(setting, failed=timing)
    return BenchRow(
        setting,
        1000.0 * timing.batch_s,
        timing.error_pct,
        timing.first_s,
        timing.batches,
        meter.memory_bytes,
        meter.read_bytes_per_s,
        meter.shares(),
    )


def _follow(
    ours: Connection, child: Any, meter: ProcessTreeMeter, limit_s: float, max_bytes: float | None
) -> BatchTiming | str:
    """Return the child's result, or the reason why there is none."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        if ours.poll(SAMPLE_S):
            try:
                message: BatchTiming | str | None = ours.recv()
            except EOFError:
                child.join(1.0)
                by_the_system = ", as the system does when memory runs out" * (
                    child.exitcode == -signal.SIGKILL
                )
                return f"its process {how_it_ended(child.exitcode or 0)}{by_the_system}"
            if message is None:  # the queues are empty: timing begins
                meter.begin()
                continue
            if isinstance(
                message, BatchTiming
            ):  # not before: reading the memory of processes slows them down
                meter.sample(None)
                meter.measure_memory()
            return message
        meter.sample(max_bytes)
        if (
            max_bytes is not None
            and meter.memory_bytes is not None
            and meter.memory_bytes > max_bytes
        ):
            return (
                f"stopped: it took more than the {max_bytes / GIB:.1f} GiB of the free memory that "
                "it may have"
            )
    return f"stopped: no answer within {limit_s:.0f} s"


def _child(theirs: Connection, factory: LoaderFactory, setting: LoaderSetting, seed: int) -> None:
    """Measure in the child; its process group is its own, so that its workers can be killed with it."""
    os.setsid()
    die_with_parent()
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # if memory runs out after all, this is the process to kill
    with suppress(OSError):  # a dataset may print; the terminal is the parent's
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
    try:
        loader = factory.make(setting, seed)
        begin = loader.__iter__
        timing = measure(
            begin,
            setting.workers,
            setting.prefetch or 0,
            time.perf_counter,
            lambda: theirs.send(None),
        )
        theirs.send(timing)
        theirs.poll(
            MEMORY_TIMEOUT_S
        )  # the loader still has its workers; the parent closes the pipe when it is done
    except BaseException as error:  # noqa: BLE001 — the dataset is foreign code: whatever it raises is the answer
        theirs.send(_reason(error))
    theirs.close()
    os.killpg(0, signal.SIGKILL)


def _reason(error: BaseException) -> str:
    if isinstance(error, EmptyLoaderError):
        return "the dataset is empty"
    text = error_text(error)
    if "bus error" in text.lower() or "shared memory" in text.lower():
        return (
            "shared memory ran out: enlarge /dev/shm (docker run --shm-size=8g), or fewer workers"
        )
    if text.startswith("Caught"):
        # A worker's error is a traceback as text, whose last line names the error.
        return clean_text(f"{type(error).__name__}: {text.splitlines()[-1].strip()}")[
            :MAX_REASON_CHARS
        ]
    return error_words(error)[:MAX_REASON_CHARS]


def _kill(child: Any) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if os.getpgid(child.pid) == child.pid:
            os.killpg(child.pid, signal.SIGKILL)
    with suppress(ProcessLookupError, ValueError):
        child.kill()
    child.join(5.0)
