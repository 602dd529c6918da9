"""The benchmark: from few workers to many until it is enough, then more prefetching."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

from msgspec import Struct

from gputop.diagnosis.thresholds import NOTICED_WAIT
from gputop.features.loader_bench.bench_child import Loadable, measured_row
from gputop.features.loader_bench.bench_report import BenchRow, LoaderReport, LoaderSetting, Room, Shares

# Which settings are measured, when it is enough, and which is the answer. Pure.

MOST_WORKERS = 32
PREFETCH = 2
"""PyTorch's own default."""
MORE_PREFETCH = (4, 8)
LEAST_GAIN = 0.05
"""Two doublings that gain less than this together are the end of the climb."""
ENOUGH = 0.8
"""A batch must be ready within this part of a step: loaders and steps vary. Without workers nothing is loaded while the
step runs, and the loop waits for each batch: there ``NOTICED_WAIT`` is the bound."""
WITHIN = 1.05
"""Relative to the best: without a step time the smallest setting this close to it is the answer."""
MOSTLY = 0.5
_TAKE_LESS = "larger batches, and in each a few large tensors rather than many small ones or Python objects"


def doublings(cores: int) -> list[int]:
    """0, 1, 2, 4 … up to twice the cores."""
    most_workers = min(2 * max(1, cores), MOST_WORKERS)
    return [0, *(1 << power for power in range(most_workers.bit_length()))]


def worker_counts(workers: str | int | Iterable[int], cores: int) -> list[int]:
    """The counts that were asked for; ``auto`` are the doublings. Raises ValueError."""
    if workers == "auto":
        return doublings(cores)
    numbers = [workers] if isinstance(workers, int) else workers
    try:
        counts = sorted({int(count) for count in numbers})
    except (TypeError, ValueError):
        raise ValueError(f"workers must be 'auto', a number or several, not {workers!r}") from None
    if not counts or counts[0] < 0 or counts[-1] > 4 * MOST_WORKERS:
        raise ValueError(f"workers must be 0 to {4 * MOST_WORKERS}, not {workers!r}")
    return counts


def setting_of(workers: int, prefetch: int = PREFETCH) -> LoaderSetting:
    """The setting with so many workers, each ``prefetch`` batches ahead."""
    return LoaderSetting(workers, prefetch if workers else None)


def keeps_up(row: BenchRow, need_ms: float | None) -> bool:
    """Whether a job whose batches are needed in ``need_ms`` would not notice this loader."""
    if row.batch_ms is None or need_ms is None:
        return False
    return row.batch_ms <= (need_ms if row.setting.workers else NOTICED_WAIT / ENOUGH * need_ms)


def is_enough(rows: Sequence[BenchRow], need_ms: float | None) -> bool:
    """Whether more workers need not be tried: the need is met, or two doublings have gained too little."""
    measured = [row.batch_ms for row in rows if row.batch_ms is not None]
    if not measured:
        return False
    if keeps_up(rows[-1], need_ms):
        return True
    return len(measured) >= 4 and measured[-1] > (1.0 - LEAST_GAIN) * measured[-3]


def answer(rows: Iterable[BenchRow], need_ms: float | None) -> BenchRow | None:
    """The smallest setting that is fast enough; where none is, or no need is known, the smallest near the best.

    Of those near the best one with workers, if there is any: it loads while the step runs.
    """
    measured = [row for row in rows if row.batch_ms is not None]
    if not measured:
        return None
    enough = [row for row in measured if keeps_up(row, need_ms)]
    if enough:
        return min(enough, key=_size)
    least = min(row.batch_ms or 0.0 for row in measured)
    near = [row for row in measured if (row.batch_ms or 0.0) <= least * WITHIN]
    return min(near, key=lambda row: (row.setting.workers == 0, *_size(row)))


def _size(row: BenchRow) -> tuple[float, ...]:
    setting = row.setting
    return setting.workers, setting.prefetch or 0, row.batch_ms or 0.0


def conclusion_of(best: BenchRow | None, rows: Sequence[BenchRow], step_ms: float | None, need_ms: float | None) -> str:
    """The answer in a sentence."""
    if best is None or best.batch_ms is None:
        reasons = [row.failed for row in rows if row.failed]
        return f"nothing could be measured: {reasons[0]}" if reasons else "nothing could be measured"
    name = f"{best.setting.workers} worker{'' if best.setting.workers == 1 else 's'}"
    if best.setting.prefetch not in (None, PREFETCH):
        name += f" with prefetch_factor={best.setting.prefetch}"
    if need_ms is None or step_ms is None:
        tried = max(row.setting.workers for row in rows if row.batch_ms is not None)
        more_words = "more gain less than 5 %" if best.setting.workers < tried else "the most that was tried"
        return f"{name}: {best.batch_ms:.1f} ms a batch; {more_words}"
    if keeps_up(best, need_ms):
        took = f"{best.batch_ms:.1f} ms a batch, and your step takes {step_ms:.0f} ms"
        return f"{name} {'is' if best.setting.workers == 1 else 'are'} enough: {took}; more gain nothing"
    return (
        f"no setting is fast enough: the best, {name}, takes {best.batch_ms:.1f} ms a batch, and your step "
        f"{step_ms:.0f} ms"
    )


def why_of(best: BenchRow | None, room: Room, need_ms: float | None = None) -> str:
    """What limits the loader, from what its workers did, and, where it is not fast enough, what would help."""
    shares = None if best is None else best.shares
    if shares is None or best is None:
        return ""
    if keeps_up(best, need_ms):
        return _did(shares)
    if best.take_ms is not None and best.batch_ms is not None and best.take_ms >= MOSTLY * best.batch_ms:
        return f"{_did(shares)}: limited by the loop's own thread, which takes the batches: more workers do not help"
    if shares.queued > 0.3 * (shares.run + shares.queued) and shares.run + shares.queued >= MOSTLY:
        return f"{_did(shares)}: not enough cores ({room.cores} here): cheaper transforms, OMP_NUM_THREADS=1"
    if shares.run + shares.queued >= MOSTLY:
        return f"{_did(shares)}: CPU-bound: more workers help up to {room.cores} cores, then cheaper transforms"
    if shares.disk >= max(shares.network, 0.2):
        return f"{_did(shares)}: disk-bound: shard small files, cache on local NVMe, prefetch more"
    if shares.network >= 0.2:
        return f"{_did(shares)}: network-bound: cache locally, more workers, larger reads"
    return f"{_did(shares)}: workers mostly wait for something else, such as a sleep or a lock; more of them help"


def taking_of(best: BenchRow | None, step_ms: float | None) -> str:
    """What it costs the loop to take a ready batch, where that is a large part of its step, or of a batch's time where
    no step is known. Empty elsewhere."""
    if best is None or best.take_ms is None or best.batch_ms is None:
        return ""
    if best.take_ms <= (MOSTLY * best.batch_ms if step_ms is None else NOTICED_WAIT * step_ms):
        return ""
    of = "" if step_ms is None else f" of each step of {step_ms:.0f} ms"
    return (
        f"taking a batch costs the loop {best.take_ms:.1f} ms{of} even when it is ready, and no number of "
        f"workers can avoid that: {_TAKE_LESS}; with a GPU also pin_memory=True, whose thread takes them in advance"
    )


def _did(shares: Shares) -> str:
    parts = (("on a core", shares.run), ("queued", shares.queued), ("disk", shares.disk), ("network", shares.network))
    return "workers " + ", ".join(f"{words} {100 * share:.0f} %" for words, share in parts)


MOST_ROW_S = 30.0
LEAST_ROW_S = 5.0
MAX_MEMORY = 0.7
_UNSURE = "host busy: unsure"

Progress = Callable[[float, str], None]
"""Called with the part of the budget that is spent, and what is being measured."""


class BenchRequest(Struct, frozen=True):
    """What is to be measured. ``step_ms`` is how long the job's step takes: a batch must be there in 80 % of it, and
    without workers in 5 %, since nothing is then loaded while the step runs. ``budget_s`` bounds the whole,
    ``max_memory`` the share of the free memory that a setting may take: one that takes more is ended.
    """

    batch_size: int | None = None
    workers: str | int | list[int] = "auto"
    step_ms: float | None = None
    budget_s: float = 60.0
    max_memory: float = MAX_MEMORY


def dataloader_bench(data: Any, asked: BenchRequest, progress: Progress | None = None) -> LoaderReport:
    """Find the smallest DataLoader setting that keeps up; ``data`` is a PyTorch Dataset or DataLoader.

    Raises TypeError for what cannot be loaded from, ValueError for arguments that make no sense.
    """
    is_no_step = asked.step_ms is not None and asked.step_ms <= 0.0
    if asked.budget_s <= 0.0 or is_no_step or not 0.0 < asked.max_memory <= 1.0:
        raise ValueError("budget_s and step_ms must be above 0, max_memory above 0 and at most 1")
    bench = _Bench(Loadable(data, asked.batch_size), room_here(), asked, progress)
    bench.climb(worker_counts(asked.workers, bench.room.cores))
    if asked.workers == "auto":
        bench.refine()
    return bench.report()


class _Bench:
    def __init__(self, loadable: Loadable, room: Room, asked: BenchRequest, progress: Progress | None) -> None:
        self.loadable, self.room, self.asked, self.progress = loadable, room, asked, progress
        self.need_ms = ENOUGH * asked.step_ms if asked.step_ms else None
        self.most_bytes = None if room.free_bytes is None else asked.max_memory * room.free_bytes
        self.rows: list[BenchRow] = []
        self.notes: list[str] = []
        self.begun = time.monotonic()
        self.method = "forkserver" if loadable.uses_cuda else "fork"
        if self.method != "fork":
            try:
                ForkingPickler.dumps(loadable)
            except Exception as error:
                raise TypeError(
                    "CUDA is in use here, and the dataset cannot be handed to another process "
                    f"({type(error).__name__}): `gputop loader MODULE:FUNCTION` makes it there"
                ) from error

    @property
    def left_s(self) -> float:
        return self.asked.budget_s - (time.monotonic() - self.begun)

    def climb(self, counts: list[int]) -> None:
        """Measure these counts in order, until it is enough."""
        for count in counts:
            if not self.measure(setting_of(count)):
                return
            if len(counts) > 1 and is_enough(self.rows, self.need_ms):
                return
            if len(self.rows) >= 2 and all(row.failed for row in self.rows[-2:]):
                # The dataset itself fails, and would with more workers as well.
                return

    def refine(self) -> None:
        """Measure the best with more prefetching where it is not enough, as far as the budget goes."""
        best = answer(self.rows, self.need_ms)
        if best is None or best.batch_ms is None or not best.setting.workers or keeps_up(best, self.need_ms):
            return
        for prefetch in MORE_PREFETCH:
            self.measure(setting_of(best.setting.workers, prefetch))
            now = self.rows[-1].batch_ms
            if now is None or now > (1.0 - LEAST_GAIN) * best.batch_ms:
                break

    def measure(self, setting: LoaderSetting) -> bool:
        """Measure one setting; False where the budget is spent."""
        if self.rows and self.left_s < LEAST_ROW_S:
            self.notes.append(f"the budget of {self.asked.budget_s:.0f} s was spent before {setting.name} workers")
            return False
        if self.progress is not None:
            self.progress(min(1.0, 1.0 - self.left_s / self.asked.budget_s), f"{setting.name} workers")
        limit_s = max(LEAST_ROW_S, min(MOST_ROW_S, self.left_s))
        self.rows.append(
            measured_row(
                self.loadable, setting, len(self.rows), limit_s=limit_s, most_bytes=self.most_bytes, method=self.method
            )
        )
        return True

    def report(self) -> LoaderReport:
        rows, step_ms = self.rows, self.asked.step_ms
        best = answer(rows, self.need_ms)
        crowded = self.room.is_crowded
        conclusion = conclusion_of(best, rows, step_ms, self.need_ms)
        if crowded:
            conclusion = f"{conclusion} ({_UNSURE})"
            self.notes.append(
                f"tasks waited for a core {self.room.psi_cpu_pct:.0f} % of the time before this began: more processes "
                "take a larger share from the neighbours, which is not what they gain on a free machine"
            )
        shm = self.room.shm_bytes
        if shm is not None and shm < 1 << 28:
            self.notes.append(f"/dev/shm has {shm / 2**20:.0f} MiB free, through which batches pass")
        error = None if best is None else best.error_pct
        confidence = "low" if crowded or error is None or error > 15.0 else "high" if error <= 5.0 else "medium"
        why = why_of(best, self.room, self.need_ms)
        return LoaderReport(
            tuple(rows), best, conclusion, why, self.loadable.batch_size, step_ms, self.need_ms,
            self.room, confidence, tuple(self.notes), time.monotonic() - self.begun, taking_of(best, step_ms),
        )  # fmt: skip


def room_here() -> Room:
    """What this machine, or this container, has to offer a loader."""
    from gputop.sources.host import HostCollector

    host = HostCollector("/proc").read(time.monotonic())
    cores = len(os.sched_getaffinity(0))
    if host.cpu_count is not None:
        cores = min(cores, max(1, round(host.cpu_count)))
    free = None
    if host.mem_total_bytes is not None and host.mem_used_bytes is not None:
        free = host.mem_total_bytes - host.mem_used_bytes
    return Room(cores, free, _shm(), _pressure())


def _shm() -> float | None:
    try:
        status = os.statvfs("/dev/shm")
    except OSError:
        return None
    return float(status.f_bavail * status.f_frsize)


def _pressure() -> float | None:
    """The kernel's own mean CPU pressure over ten seconds, percent (Documentation/accounting/psi.rst)."""
    try:
        with open("/proc/pressure/cpu", encoding="ascii") as file:
            words = file.readline().split()
        return float(words[1].partition("=")[2])
    except (OSError, IndexError, ValueError):
        return None
