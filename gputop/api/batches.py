"""Measure how a loader keeps up with a job, and the largest batch."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, Literal

from msgspec import Struct

from gputop.api.watch import running_step_s
from gputop.features.loader_bench.bench import MAX_MEMORY, BenchRequest, Progress
from gputop.features.loader_bench.bench import dataloader_bench as bench
from gputop.features.loader_bench.bench_report import LoaderReport
from gputop.model.quantity import error_words

# The largest batch size that trains, found by trying: one fresh process per size, so that nothing is left behind.

Fate = Literal["fits", "out of memory", "failed"]
MOST_WORDS = 200
CHILD_NAME = "gputop-max-batch"
UNGUARDED = 97
"""The exit status of a fresh process that came to the same call of max_batch while it imported the program."""
MOST_FAILURES = 4
"""Sizes in a row that fail for another reason than memory, until the search ends: each takes a fresh process."""
_MEMORY_WORDS = ("out of memory", "resource_exhausted", "cudnn_status_alloc_failed", "std::bad_alloc")
"""The words for out of memory of PyTorch, TensorFlow and JAX, cuDNN, C++."""


class Tried(Struct, frozen=True):
    """The result of one batch size.

    ``step_s`` is the mean step in seconds without the first; ``reason`` says why the size does not fit.
    """

    size: int
    fate: Fate
    step_s: float | None = None
    reason: str = ""

    @property
    def more(self) -> str:
        """The step's time, or the reason."""
        if self.step_s is not None:
            return f", {1000.0 * self.step_s:.0f} ms a step"
        return f": {self.reason}" if self.reason else ""


class BatchReport(Struct, frozen=True):
    """The largest batch size that trained, and the advised size.

    ``advised`` is ``best`` less the margin; both are None where no size trained.
    """

    best: int | None
    advised: int | None
    tried: tuple[Tried, ...]

    def __str__(self) -> str:
        lines = [f"  {tried.size:>8}  {tried.fate}{tried.more}" for tried in sorted(self.tried, key=lambda t: t.size)]
        advice = f"largest batch that trains: {self.best}; use {self.advised}"
        return "\n".join([*lines, "no size trains" if self.best is None else advice]) + "\n"


def _largest(sizes: list[int], fate_of: Callable[[int], Fate]) -> int | None:
    """The largest size that fits, by halves.

    A size that fails for another reason than memory, as where a model wants multiples of 16, says nothing of the
    others: the search goes on without it. It ends where as many fail in a row as it takes to see that all do.
    """
    best, candidates, failures = None, list(sizes), 0
    while candidates and failures < MOST_FAILURES:
        # The smallest first: what is wrong with every size is wrong with this one, and found in a moment.
        at = 0 if best is None else len(candidates) // 2
        fate = fate_of(candidates[at])
        failures = failures + 1 if fate == "failed" else 0
        if fate == "fits":
            best, candidates = candidates[at], candidates[at + 1 :]
        elif fate == "failed":
            candidates.pop(at)
        else:
            candidates = candidates[:at]
    return best


def _check_importable(make_step: object) -> None:
    """Raises ValueError for what a fresh process cannot import."""
    try:
        ForkingPickler.dumps(make_step)
    except Exception as error:
        raise ValueError(
            f"make_step must be a function of a module: a fresh process imports it ({type(error).__name__}: {error})"
        ) from error
    if getattr(make_step, "__module__", None) == "__main__" and not hasattr(sys.modules["__main__"], "__file__"):
        raise ValueError("make_step must be in a file: a fresh process cannot import what was typed at a prompt")


def _check_memory_free() -> None:
    """Raises RuntimeError where this process holds GPU memory, which every size would lack."""
    if (torch := _torch_on_gpu()) is None:
        return
    held = sum(torch.cuda.memory_reserved(device) for device in range(torch.cuda.device_count()))
    if held:
        raise RuntimeError(
            f"this process holds {held / 2**20:.0f} MiB of GPU memory, which every size would lack: run max_batch in a "
            "program of its own"
        )


def _try(make_step: Callable[[], Callable[[int], object]], size: int, steps: int, timeout_s: float) -> Tried:
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(theirs, make_step, size, steps), name=CHILD_NAME)
    child.start()
    theirs.close()
    try:
        late = Tried(size, "failed", reason=f"no answer within {timeout_s:g} s")
        return ours.recv() if ours.poll(timeout_s) else late
    except EOFError:
        child.join(5.0)
        if child.exitcode == UNGUARDED:
            raise RuntimeError(
                'put the call of max_batch under `if __name__ == "__main__":`, because the fresh process for each size '
                "imports this file"
            ) from None
        if child.exitcode == -signal.SIGKILL:
            return Tried(size, "out of memory", reason="killed, as by the system when memory runs out")
        return Tried(size, "failed", reason=f"the process ended with {child.exitcode}")
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        child.join(5.0)
        ours.close()


def _child(theirs: Connection, make_step: Callable[[], Callable[[int], object]], size: int, steps: int) -> None:
    with suppress(OSError):
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
    try:
        step = make_step()
        times = []
        for _ in range(steps + 1):
            begun = time.perf_counter()
            step(size)
            if (torch := _torch_on_gpu()) is not None:
                # A kernel's errors are only raised then.
                torch.cuda.synchronize()
            times.append(time.perf_counter() - begun)
        # The first step allocates and chooses kernels.
        theirs.send(Tried(size, "fits", sum(times[1:]) / steps))
    except BaseException as error:  # noqa: BLE001 — somebody else's training: whatever it raises is the answer
        fate: Fate = "out of memory" if is_out_of_memory(error) else "failed"
        theirs.send(Tried(size, fate, reason=error_words(error)[:MOST_WORDS]))


def _torch_on_gpu() -> Any:
    """Return PyTorch if it uses a GPU in this process, else None."""
    torch: Any = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_initialized() else None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a framework's error says that memory ran out."""
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
        return True
    return any(words in str(error).lower() for words in _MEMORY_WORDS)


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
    from multiprocessing.process import current_process

    if current_process().name == CHILD_NAME:
        # The fresh process imports the program's file, and nothing guards the call there. Python would refuse with a
        # page of its own for each size.
        os._exit(UNGUARDED)
    ordered = sorted({int(size) for size in sizes})
    if not ordered or ordered[0] < 1 or steps < 1 or not 0.0 <= margin < 1.0 or timeout_s <= 0.0:
        raise ValueError("sizes must be whole numbers from 1, steps at least 1, margin 0 to below 1, timeout_s above 0")
    _check_importable(make_step)
    _check_memory_free()
    tried: dict[int, Tried] = {}

    def fate_of(size: int) -> Fate:
        tried[size] = _try(make_step, size, steps, timeout_s)
        return tried[size].fate

    best = _largest(ordered, fate_of)
    return BatchReport(best, None if best is None else max(1, int(best * (1.0 - margin))), tuple(tried.values()))
