"""One setting measured in its own process, so that a crash costs one row and not the session.

The parent reads the child's tree at the same time: memory, and what the workers do.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from math import sqrt
from multiprocessing.connection import Connection
from statistics import fmean, median, stdev
from typing import Any

from msgspec import Struct

from gputop.features.loader_bench.bench_report import BenchRow, LoaderSetting, Shares
from gputop.model.quantity import GIB, clean_text, error_words
from gputop.model.snapshot import ProcessSample
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.processes.collector import ProcessCollector
from gputop.sources.procfs import read_file
from gputop.system.children import die_with_parent, how_it_ended

# How long a batch takes, measured so that it means something.
#
# While no batches are taken, workers fill their queues: the first batches then cost nothing (measured: 13 times too
# fast over the first ten). So the queues are emptied first, and then whole rounds of the workers are timed.

LEAST_BLOCKS = 8
LEAST_S = 0.5
MOST_S = 4.0
ERROR_PCT = 3.0
"""A measurement ends when half of the 95 % interval of the mean, in percent of it, is below this. With fewer blocks, or
in less time, a few that agree by chance would end it."""
_T95 = {3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23, 12: 2.18, 15: 2.13, 20: 2.09, 30: 2.04}
"""Student's t for 95 % by degrees of freedom."""
TAKES = 16
LEAST_TAKES = 4
TAKING_S = 0.5
MOST_TAKING_S = 2.0
"""If a loader is too slow for the fewest takes within this time, the cost of taking is not measured."""
SLACK = 1.5
"""A pause this many times as long as a loader needs for what was taken refills its queue."""


class BatchTiming(Struct, frozen=True):
    """Seconds to the first batch, the mean seconds a batch, half its 95 % interval in percent, and of how many.

    ``take_s`` is what the loop waits for a batch that is ready, in seconds; None where that was not measured.
    """

    first_s: float
    batch_s: float
    error_pct: float
    batches: int
    take_s: float | None = None


class Empty(Exception):
    """The loader gives no batch at all."""


def measure(
    begin: Callable[[], Iterator[Any]],
    workers: int,
    prefetch: int,
    clock: Callable[[], float],
    drained: Callable[[], None] = lambda: None,
    timed: Callable[[], None] = lambda: None,
    pause: Callable[[float], None] | None = None,
) -> BatchTiming:
    """Time a loader; ``begin`` makes a new pass over it. Raises Empty, and what the loader raises.

    ``drained`` is called when the queues are empty and the timing begins, ``timed`` when it is over. Passes that end
    are restarted: their first batches are not part of any block. With ``pause``, which waits so many seconds, the cost
    of taking a batch while the queue is full is then measured as well.
    """
    started = clock()
    batches = _Passes(begin)
    batches.take()
    first_s = clock() - started
    waiting = workers * prefetch + 2
    limit = clock() + max(MOST_S, 2.0 * first_s)
    taken = 0
    while taken < waiting and clock() < limit:
        batches.take()
        taken += 1
    drained()
    size = max(1, workers)
    times: list[float] = []
    begun = clock()
    while not _is_enough(times, clock() - begun):
        times.append(_block(batches, size, clock))
    batch_s = sum(times) / len(times)
    timed()
    take_s = None if pause is None else _taking_s(batches, batch_s, waiting, clock, pause)
    return BatchTiming(first_s, batch_s, _interval(times), len(times) * size, take_s)


def _taking_s(
    batches: _Passes, batch_s: float, waiting: int, clock: Callable[[], float], pause: Callable[[float], None]
) -> float | None:
    """What a loop waits for a batch that is ready: the median over takes after pauses, as after the step of a job,
    that leave the workers more time than they need for one."""
    pause_s = SLACK * batch_s
    if LEAST_TAKES * pause_s > MOST_TAKING_S:
        return None
    pause(min(TAKING_S, pause_s * waiting))
    took = []
    for _ in range(max(LEAST_TAKES, min(TAKES, int(TAKING_S / pause_s) if pause_s > 0.0 else TAKES))):
        pause(pause_s)
        before, begun = batches.passes, clock()
        batches.take()
        if batches.passes == before:
            took.append(clock() - begun)
    return median(took) if len(took) >= LEAST_TAKES else None


def _is_enough(times: list[float], spent_s: float) -> bool:
    """Whether timing ends: precise enough, or out of time. It also ends for batches so slow that a few rounds take four
    times as long as other loaders do in all."""
    if not times or spent_s < LEAST_S:
        return False
    if len(times) < LEAST_BLOCKS:
        return spent_s > 4.0 * MOST_S
    return spent_s >= MOST_S or _interval(times) <= ERROR_PCT


def _block(batches: _Passes, size: int, clock: Callable[[], float]) -> float:
    """Seconds a batch over one round of the workers. One in which a pass ended is timed again."""
    for _ in range(8):
        before, begun = batches.passes, clock()
        for _ in range(size):
            batches.take()
        spent = (clock() - begun) / size
        if batches.passes == before:
            return spent
    # Passes are shorter than a round: their beginning is this loader's normal speed.
    return spent


class _Passes:
    """Endless batches."""

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
                    raise Empty from None
                self._iterator, self._in_pass = self._begin(), 0
                self.passes += 1
                continue
            self._in_pass += 1
            return


def _interval(times: list[float]) -> float:
    """Half of the 95 % interval of the mean, in percent of it."""
    n = len(times)
    if n < 2:
        return float("inf")
    t95 = next((t for least_freedom, t in sorted(_T95.items(), reverse=True) if n > least_freedom), 4.3)
    mean = fmean(times)
    return 100.0 * t95 * stdev(times, mean) / sqrt(n) / mean if mean > 0.0 else 0.0


# PyTorch loaders made for a setting, from a dataset or from a loader that the job already has.

_KEPT = ("collate_fn", "worker_init_fn", "drop_last", "multiprocessing_context", "timeout")


class Loadable:
    """The given object, and how to make a loader of it. Raises TypeError for what is neither dataset nor loader."""

    def __init__(self, data: Any, batch_size: int | None) -> None:
        is_loader = hasattr(data, "dataset") and hasattr(data, "num_workers")
        self.dataset = data.dataset if is_loader else data
        if not (hasattr(self.dataset, "__getitem__") or hasattr(self.dataset, "__iter__")):
            raise TypeError(f"{type(data).__name__} is neither a dataset nor a DataLoader")
        self._loader = data if is_loader else None
        loader_batch_size = data.batch_size if is_loader else 1
        self.batch_size: int | None = loader_batch_size if batch_size is None else batch_size

    @property
    def uses_cuda(self) -> bool:
        """Whether this process has initialised CUDA, which does not survive a fork."""
        torch: Any = sys.modules.get("torch")
        return torch is not None and bool(torch.cuda.is_initialized())

    def passes(self, setting: LoaderSetting, seed: int) -> Any:
        """A loader with this setting. Each seed reads the samples in another order, and so other pages first."""
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
            self.dataset, batch_size=self.batch_size, sampler=_Endless(len(self.dataset), seed), **arguments
        )


class _Endless:
    """Every index once in random order, and again without end, so that a short dataset does not end the timing."""

    def __init__(self, count: int, seed: int) -> None:
        self._count, self._seed = count, seed

    def __iter__(self) -> Iterator[int]:
        from random import Random

        random = Random(self._seed)
        while True:
            yield from random.sample(range(self._count), self._count)


# What the loader's processes do while they are measured, by the collector that the screen uses, and what they hold.

WEIGHED_APART = 20.0
"""Measuring memory takes at most a twentieth of a measurement's time."""


class ProcessTreeMeter:
    """Looks at a process and its descendants; ``begin`` forgets what was before the measurement."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._collector = ProcessCollector(clock=time.monotonic)
        self._looks = 0
        self._sums = [0.0, 0.0, 0.0, 0.0]
        self._samples = 0
        self._read = 0.0
        self.memory_bytes: float | None = None
        """The most memory that the whole tree was seen to hold: PSS, which counts shared pages once."""
        self._weigh_next = 0.0

    def begin(self) -> None:
        self._looks = self._samples = 0
        self._sums, self._read = [0.0, 0.0, 0.0, 0.0], 0.0
        self._collect()

    def look(self, alarm_bytes: float | None) -> None:
        """One look: processes and their states; memory only where all resident pages together, the shared ones counted
        in each process, come to more than ``alarm_bytes``."""
        samples = self._collect()
        if (
            alarm_bytes is not None
            and time.monotonic() >= self._weigh_next
            and sum(sample.rss_bytes or 0.0 for sample in samples) > alarm_bytes
        ):
            self._weigh(samples)
        workers = [s for s in samples if s.pid != self._pid and s.run_pct is not None] or [
            s for s in samples if s.run_pct is not None
        ]
        for sample in workers:
            run, queued = ((share or 0.0) / 100.0 for share in (sample.run_pct, sample.wait_pct))
            shares = (run, queued, float(sample.state == "D"), float(sample.waiting_on == "network"))
            self._sums = [total + min(1.0, share) for total, share in zip(self._sums, shares, strict=True)]
        if workers:
            self._samples += len(workers)
            self._looks += 1
            self._read += sum(s.read_bytes_per_s or 0.0 for s in workers)

    def weigh(self) -> None:
        """Measure the tree's memory. Takes several ms per process, during which their page faults wait."""
        self._weigh(self._collect())

    def shares(self) -> Shares | None:
        """The workers' means; None where nothing was seen."""
        return None if not self._samples else Shares(*(total / self._samples for total in self._sums))

    @property
    def read_bytes_per_s(self) -> float | None:
        """What all workers read from storage together."""
        return None if not self._looks else self._read / self._looks

    def close(self) -> None:
        self._collector.close()

    def _weigh(self, samples: Iterable[ProcessSample]) -> None:
        begun = time.monotonic()
        sizes = [size for sample in samples if (size := _pss(sample.pid)) is not None]
        if sizes:
            self.memory_bytes = max(self.memory_bytes or 0.0, sum(sizes))
        ended = time.monotonic()
        self._weigh_next = ended + WEIGHED_APART * (ended - begun)

    def _collect(self) -> tuple[ProcessSample, ...]:
        return self._collector.read(time.monotonic(), [GpuProcess(0, self._pid)])


def _pss(pid: int) -> float | None:
    """Proportional set size in bytes, from /proc/PID/smaps_rollup (proc(5)); None where it cannot be read."""
    try:
        lines = read_file(f"/proc/{pid}/smaps_rollup").splitlines()
    except OSError:
        return None
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith(b"Pss:")), None)


# The child, followed by its parent.

LOOK_S = 0.25
MOST_WORDS = 200
TAKING_LIMIT_S = 5.0 * MOST_TAKING_S
"""How long a child may take after its loader was timed, as on a crowded machine."""
WEIGHED_S = 5.0
"""How long a child whose loader is paused waits for its memory to be measured."""


def measured_row(
    loadable: Loadable, setting: LoaderSetting, seed: int, *, limit_s: float, most_bytes: float | None, method: str
) -> BenchRow:
    """Measure one setting. ``limit_s`` ends it; ``method`` is multiprocessing's way to start the child."""
    import multiprocessing

    context: Any = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    child = context.Process(target=_child, args=(theirs, loadable, setting, seed), name="gputop-loader-bench")
    child.start()
    theirs.close()
    tree = ProcessTreeMeter(child.pid)
    try:
        timing = _followed(ours, child, tree, limit_s, most_bytes)
    finally:
        _kill(child)
        tree.close()
        ours.close()
    if not isinstance(timing, BatchTiming):
        return BenchRow(setting, failed=timing)
    take_ms = None if timing.take_s is None else 1000.0 * timing.take_s
    return BenchRow(
        setting, 1000.0 * timing.batch_s, timing.error_pct, timing.first_s, timing.batches,
        tree.memory_bytes, tree.read_bytes_per_s, tree.shares(), take_ms=take_ms,
    )  # fmt: skip


def _followed(
    ours: Connection, child: Any, tree: ProcessTreeMeter, limit_s: float, most_bytes: float | None
) -> BatchTiming | str:
    """The child's result, or why there is none, in words."""
    until = time.monotonic() + limit_s
    timed = False
    while True:
        if ours.poll(LOOK_S):
            try:
                kind, answer = ours.recv()
            except EOFError:
                child.join(1.0)
                by_the_system = ", as the system does when memory runs out" * (child.exitcode == -signal.SIGKILL)
                return f"its process {how_it_ended(child.exitcode or 0)}{by_the_system}"
            if kind == "drained":
                tree.begin()
                continue
            if kind == "timed":
                # Not before: reading processes' memory slows them down.
                tree.look(None)
                tree.weigh()
                with suppress(OSError):
                    ours.send(None)
                timed, until = True, max(until, time.monotonic() + TAKING_LIMIT_S)
                continue
            result: BatchTiming | str = answer
            return result
        if not timed:
            # After the timing the workers only do what the pauses need.
            tree.look(most_bytes)
        if most_bytes is not None and tree.memory_bytes is not None and tree.memory_bytes > most_bytes:
            return f"stopped: it took more than the {most_bytes / GIB:.1f} GiB of the free memory that it may have"
        if time.monotonic() > until:
            return f"stopped: no answer within {limit_s:.0f} s"


def _child(theirs: Connection, loadable: Loadable, setting: LoaderSetting, seed: int) -> None:
    """In the child. Its group is its own, so that its workers can be ended with it."""
    os.setsid()
    die_with_parent()
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        # If memory runs out after all, this is the process to kill.
        file.write("1000")
    # A dataset may print; the terminal is the parent's.
    with suppress(OSError):
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)

    def tell(kind: str) -> None:
        theirs.send((kind, None))
        if kind == "timed":
            theirs.poll(WEIGHED_S)

    try:
        loader = loadable.passes(setting, seed)
        timing = measure(
            lambda: iter(loader),
            setting.workers,
            setting.prefetch or 0,
            time.perf_counter,
            lambda: tell("drained"),
            # The loader still has its workers.
            timed=lambda: tell("timed"),
            pause=time.sleep if setting.workers else None,
        )
        theirs.send(("done", timing))
    except BaseException as error:  # noqa: BLE001 — likewise, an exit included
        theirs.send(("failed", _words(error)))
    theirs.close()
    os.killpg(0, signal.SIGKILL)


def _words(error: BaseException) -> str:
    if isinstance(error, Empty):
        return "the dataset is empty"
    text = str(error).strip()
    if "bus error" in text.lower() or "shared memory" in text.lower():
        return "shared memory ran out: enlarge /dev/shm (docker run --shm-size=8g), or fewer workers"
    if text.startswith("Caught"):
        # A worker's error is a traceback as text, whose last line names the error.
        return clean_text(f"{type(error).__name__}: {text.splitlines()[-1].strip()}")[:MOST_WORDS]
    return error_words(error)[:MOST_WORDS]


def _kill(child: Any) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if os.getpgid(child.pid) == child.pid:
            os.killpg(child.pid, signal.SIGKILL)
    with suppress(ProcessLookupError, ValueError):
        child.kill()
    child.join(5.0)
