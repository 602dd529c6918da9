"""The part of a loader benchmark that runs in the job's Python, where its dataset lives.

This file needs the standard library and PyTorch alone, from Python 3.8 on: ``gputop loader`` starts it as a program in
a Python that knows nothing of gputop. It calls the job's function once, and then measures each asked setting in a fork.
It reads one line of JSON for each setting, and writes one for each event::

    ← {"event": "made", "batch_size": 64, "cuda": false}
    → {"workers": 4, "prefetch": 2, "seed": 1}
    ← {"event": "started", "pid": 4711}
    ← {"event": "drained"}                                    the queues are empty: timing begins
    ← {"event": "timed", "first_s": 0.4, "batch_s": 0.017, "error_pct": 1.2, "batches": 64}
    → stop                                                    its memory was read
    ← {"event": "ended", "status": -9}

Time of each batch is measured with empty queues. While no batches are taken, workers fill their queues, and the first
batches then cost nothing (measured: 13 times too fast over the first ten). So the queues are emptied first, and then
whole rounds of the workers are timed.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from math import sqrt
from random import Random
from statistics import mean as mean_of
from statistics import stdev
from typing import Any, NamedTuple

MIN_BLOCKS = 8
MIN_S = 0.5
MAX_S = 4.0
ERROR_PCT = 3.0
"""A measurement ends when half of the 95 % interval of the mean, in percent of the mean, is below this.

Fewer blocks, or less time, could agree by chance.
"""
_T95 = {
    3: 3.18,
    4: 2.78,
    5: 2.57,
    6: 2.45,
    7: 2.36,
    8: 2.31,
    9: 2.26,
    10: 2.23,
    12: 2.18,
    15: 2.13,
    20: 2.09,
    30: 2.04,
}
"""Student's t for 95 % by degrees of freedom."""


class BatchTiming(NamedTuple):
    """Seconds to the first batch, mean seconds per batch, half of its 95 % interval in percent, number of batches."""

    first_s: float
    batch_s: float
    error_pct: float
    batches: int


class EmptyLoaderError(Exception):
    """The loader yields no batch at all."""


def measure(
    begin: Callable[[], Iterator[Any]],
    workers: int,
    prefetch: int,
    clock: Callable[[], float],
    drained: Callable[[], None] = lambda: None,
) -> BatchTiming:
    """Time a loader; ``begin`` starts a new pass over its batches.

    ``drained`` is called when the queues are empty and timing begins. A pass that ends is restarted; its first batches
    are not part of any block. Raises EmptyLoaderError, and whatever the loader raises.
    """
    started = clock()
    batches = _EndlessPasses(begin)
    batches.take()
    first_s = clock() - started
    limit = clock() + max(MAX_S, 2.0 * first_s)
    for _ in range(workers * prefetch + 2):
        if clock() >= limit:
            break
        batches.take()
    drained()
    size = max(1, workers)
    times: list[float] = []
    begun = clock()
    while not _is_enough(times, clock() - begun):
        times.append(_block_s(batches, size, clock))
    return BatchTiming(first_s, mean_of(times), _interval_pct(times), len(times) * size)


def _is_enough(times: list[float], spent_s: float) -> bool:
    """True if the mean is precise enough, or time is up; slow batches get four times as long for the first blocks."""
    if not times or spent_s < MIN_S:
        return False
    if len(times) < MIN_BLOCKS:
        return spent_s > 4.0 * MAX_S
    return spent_s >= MAX_S or _interval_pct(times) <= ERROR_PCT


def _block_s(batches: _EndlessPasses, size: int, clock: Callable[[], float]) -> float:
    """Return seconds per batch over one round of the workers; a round in which a pass ended is repeated."""
    for _ in range(8):
        before, begun = batches.passes, clock()
        for _ in range(size):
            batches.take()
        spent = (clock() - begun) / size
        if batches.passes == before:
            return spent
    # Passes are shorter than a round: their beginning is this loader's normal speed.
    return spent


class _EndlessPasses:
    """Batches without end: a new pass begins where one ends."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin
        self._iterator = begin()
        self._in_pass = 0
        self.passes = 0

    def take(self) -> None:
        while True:
            try:
                next(self._iterator)
            except StopIteration:
                if not self._in_pass:
                    raise EmptyLoaderError from None
                self._iterator, self._in_pass = self._begin(), 0
                self.passes += 1
                continue
            self._in_pass += 1
            return


def _interval_pct(times: list[float]) -> float:
    """Return half of the 95 % interval of the mean, in percent of the mean."""
    n = len(times)
    if n < 2:
        return float("inf")
    t95 = next((t for freedom, t in sorted(_T95.items(), reverse=True) if n > freedom), 4.3)
    mean = mean_of(times)
    return 100.0 * t95 * stdev(times, mean) / sqrt(n) / mean if mean > 0.0 else 0.0


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

    def make(self, workers: int, prefetch: int | None, seed: int) -> Any:
        """Return a DataLoader with this setting; each seed reads the samples, and so the disk, in another order."""
        from torch.utils.data import DataLoader, IterableDataset

        arguments: dict[str, Any] = {"num_workers": workers}
        if workers:
            arguments.update(prefetch_factor=prefetch, persistent_workers=True)
        if self._loader is not None:
            kept = {key: getattr(self._loader, key, None) for key in _KEPT}
            arguments.update({key: value for key, value in kept.items() if value is not None})
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
        random = Random(self._seed)
        while True:
            yield from random.sample(range(self._count), self._count)


STOP = b"stop\n"
MEMORY_TIMEOUT_S = 5.0
"""How long a fork keeps its workers alive for the measurement of their memory."""
_LOOK_S = 0.05
"""How often a fork's end is looked for; its last word comes before."""


def is_cuda_in_use() -> bool:
    """True if this process holds a CUDA context, which does not survive a fork."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def die_with_parent(parent: int) -> None:
    """Let this process be killed when the thread that started it ends (PR_SET_PDEATHSIG in linux/prctl.h)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(126)


def tell(out: int, event: str, **values: Any) -> None:
    """Write one event as a line; a line this short is written in one piece (pipe(7))."""
    os.write(out, json.dumps({"event": event, **values}).encode() + b"\n")


def serve(factory: LoaderFactory, asked: int, out: int) -> None:
    """Measure each setting that is asked for, until nobody asks any more."""
    tell(out, "made", batch_size=_whole_number(factory.batch_size), cuda=is_cuda_in_use())
    while True:
        line = _line(asked)
        if not line:
            return
        if line == STOP:
            # It came when the fork had ended by itself.
            continue
        _measure_in_fork(factory, json.loads(line), asked, out)


def _whole_number(batch_size: Any) -> int | None:
    return batch_size if isinstance(batch_size, int) else None


def _line(asked: int) -> bytes:
    """Return the next line with its end; empty where nobody asks any more."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(asked, 1)
        if not piece:
            return b""
        line += piece
    return line


def _measure_in_fork(factory: LoaderFactory, setting: dict[str, Any], asked: int, out: int) -> None:
    """Measure one setting in a fork, so that a crash costs one row; a word or the end of ``asked`` ends it."""
    us = os.getpid()
    pid = os.fork()
    if pid == 0:
        _time_and_exit(factory, setting, us, out)
    tell(out, "started", pid=pid)
    status = None
    while status is None:
        ready, _, _ = select.select([asked], [], [], _LOOK_S)
        if ready:
            _line(asked)
            _kill_group(pid)
            status = os.waitpid(pid, 0)[1]
            break
        ended, its_status = os.waitpid(pid, os.WNOHANG)
        if ended:
            status = its_status
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    tell(out, "ended", status=code)


def _kill_group(pid: int) -> None:
    """Kill a fork with its workers."""
    with contextlib.suppress(OSError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def _time_and_exit(factory: LoaderFactory, setting: dict[str, Any], parent: int, out: int) -> None:
    """Time a setting in the fork; its process group is its own, so that its workers can be killed with it."""
    try:
        os.setsid()
        die_with_parent(parent)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            # If memory runs out after all, this is the process to kill.
            file.write("1000")
        _silence()
        workers, prefetch = setting["workers"], setting["prefetch"]
        loader = factory.make(workers, prefetch, setting["seed"])
        timing = measure(
            loader.__iter__, workers, prefetch or 0, time.perf_counter, lambda: tell(out, "drained")
        )
        tell(out, "timed", **timing._asdict())
        # The loader still has its workers, whose memory is being read.
        time.sleep(MEMORY_TIMEOUT_S)
    except BaseException as error:  # noqa: BLE001 - the dataset is foreign code: whatever it raises is the answer
        tell(out, "failed", **error_parts(error))
    finally:
        os.killpg(0, signal.SIGKILL)


def _silence() -> None:
    """Let what a dataset prints vanish: the terminal is the parent's."""
    with contextlib.suppress(OSError):
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)


_MOST_CHARS = 300
"""Longest line of an error that is told: an event passes through the pipe in one piece (4,096 bytes, pipe(7))."""


def error_parts(error: BaseException) -> dict[str, Any]:
    """Return an error's type, the first and the last line of its text, and whether shared memory ran out."""
    if isinstance(error, EmptyLoaderError):
        return {"kind": "", "first": "the dataset is empty", "last": "", "no_shm": False}
    try:
        text = str(error).strip()
    except BaseException:  # noqa: BLE001 - the text is somebody else's code
        text = ""
    lines = text.splitlines() or [""]
    lower = text.lower()
    return {
        "kind": type(error).__name__[:_MOST_CHARS],
        "first": lines[0][:_MOST_CHARS],
        "last": lines[-1].strip()[:_MOST_CHARS],
        "no_shm": "bus error" in lower or "shared memory" in lower,
    }


class Unusable(Exception):
    """The job's function gives nothing to measure; ``step`` says where it failed."""

    def __init__(self, step: str, error: BaseException | None = None) -> None:
        super().__init__(step)
        self.step, self.error = step, error


def make_data(module: str, name: str) -> Any:
    """Return what the job's function makes. Raises Unusable."""
    try:
        function = getattr(importlib.import_module(module), name, None)
    except BaseException as error:  # noqa: BLE001 - foreign code
        raise Unusable("import", error) from None
    if not callable(function):
        raise Unusable("function")
    try:
        return function()
    except BaseException as error:  # noqa: BLE001 - foreign code
        raise Unusable("call", error) from None


def main(words: list[str]) -> None:
    """Serve ``MODULE FUNCTION BATCH_SIZE OUT PARENT``; settings are asked for on stdin.

    ``BATCH_SIZE`` is 0 for the DataLoader's own, ``OUT`` the descriptor for events, ``PARENT`` the pid of who asks.
    """
    module, name = words[:2]
    batch_size, out, parent = (int(word) for word in words[2:])
    die_with_parent(parent)
    os.set_inheritable(out, False)
    asked = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    # What the job prints is no part of gputop's answer.
    os.dup2(2, 1)
    # The job's folder in place of this file's: as for `python train.py` there.
    sys.path[0] = os.getcwd()
    sys.argv[:] = [module]
    try:
        factory = LoaderFactory(make_data(module, name), batch_size or None)
    except Unusable as unusable:
        parts = {} if unusable.error is None else error_parts(unusable.error)
        tell(out, "unusable", step=unusable.step, **parts)
    except BaseException as error:  # noqa: BLE001 - the data answers for its attributes with foreign code
        tell(out, "unusable", step="data", **error_parts(error))
    else:
        serve(factory, asked, out)
    # Threads and exit functions of the job have no more to do.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
