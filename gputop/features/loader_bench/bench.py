"""Benchmark of loader settings: from few workers to many until it is enough, then more prefetching."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from gputop.features.loader_bench.bench_report import BenchRow, LoaderReport, LoaderSetting, Room
from gputop.features.loader_bench.job_process import JobProcess
from gputop.features.loader_bench.measure_setting import measure_setting
from gputop.features.loader_bench.plan import (
    ENOUGH,
    MIN_GAIN,
    MORE_PREFETCH,
    choose,
    conclusion_of,
    is_enough,
    keeps_up,
    limit_of,
    setting_of,
    worker_counts,
)

MAX_ROW_S = 30.0
MIN_ROW_S = 5.0
MAX_MEMORY = 0.7
_UNSURE = "host busy: unsure"

Progress = Callable[[float, str], None]
"""Called with the spent share of the budget, 0 to 1, and the name of the setting being measured."""


class BenchRequest(Struct, frozen=True):
    """Options of a benchmark.

    ``step_ms`` is the duration of the job's step: a batch must be ready within 80 % of it, and without workers within
    5 %, since nothing is then loaded while the step runs. ``budget_s`` bounds the whole benchmark, ``max_memory`` the
    share of free memory that a setting may take before it is stopped.
    """

    batch_size: int | None = None
    workers: str | int | list[int] = "auto"
    step_ms: float | None = None
    budget_s: float = 60.0
    max_memory: float = MAX_MEMORY


CUDA_WORDS = (
    "CUDA is in use in this process and does not survive a fork: measure before the model is on the GPU, "
    "or with `gputop loader MODULE:FUNCTION`"
)


def checked(asked: BenchRequest) -> BenchRequest:
    """Return the request. Raises ValueError for options that make no sense."""
    is_no_step = asked.step_ms is not None and asked.step_ms <= 0.0
    if asked.budget_s <= 0.0 or is_no_step or not 0.0 < asked.max_memory <= 1.0:
        raise ValueError("budget_s and step_ms must be above 0, max_memory above 0 and at most 1")
    worker_counts(asked.workers, 1)
    return asked


def measure_loader(
    job: JobProcess,
    python: str,
    batch_size: int | None,
    asked: BenchRequest,
    progress: Progress | None = None,
) -> LoaderReport:
    """Find the smallest setting that keeps up, for the dataset that ``job`` has; ``python`` runs it."""
    bench = _Bench(job, room_here(), asked, progress)
    bench.climb(worker_counts(asked.workers, bench.room.cores))
    if asked.workers == "auto":
        bench.refine()
    return bench.report(batch_size, python)


class _Bench:
    def __init__(
        self, job: JobProcess, room: Room, asked: BenchRequest, progress: Progress | None
    ) -> None:
        self.job, self.room, self.asked, self.progress = job, room, asked, progress
        self.need_ms = ENOUGH * asked.step_ms if asked.step_ms else None
        self.max_bytes = None if room.free_bytes is None else asked.max_memory * room.free_bytes
        self.rows: list[BenchRow] = []
        self.notes: list[str] = []
        self.begun = time.monotonic()

    @property
    def left_s(self) -> float:
        return self.asked.budget_s - (time.monotonic() - self.begun)

    def climb(self, counts: list[int]) -> None:
        """Measure these counts in order until one is enough."""
        for count in counts:
            if not self.measure(setting_of(count)):
                return
            if len(counts) > 1 and is_enough(self.rows, self.need_ms):
                return
            if len(self.rows) >= 2 and all(row.failed for row in self.rows[-2:]):
                # The dataset itself fails, and would with more workers as well.
                return

    def refine(self) -> None:
        """Try more prefetching if the best setting is not enough."""
        best = choose(self.rows, self.need_ms)
        if (
            best is None
            or best.batch_ms is None
            or not best.setting.workers
            or keeps_up(best, self.need_ms)
        ):
            return
        for prefetch in MORE_PREFETCH:
            self.measure(setting_of(best.setting.workers, prefetch))
            now = self.rows[-1].batch_ms
            if now is None or now > (1.0 - MIN_GAIN) * best.batch_ms:
                break

    def measure(self, setting: LoaderSetting) -> bool:
        """Measure one setting; return False if the budget is spent."""
        if self.rows and self.left_s < MIN_ROW_S:
            self.notes.append(
                f"the budget of {self.asked.budget_s:.0f} s was spent before {setting.name} workers"
            )
            return False
        if self.progress is not None:
            self.progress(
                min(1.0, 1.0 - self.left_s / self.asked.budget_s), f"{setting.name} workers"
            )
        limit_s = max(MIN_ROW_S, min(MAX_ROW_S, self.left_s))
        self.rows.append(
            measure_setting(
                self.job, setting, len(self.rows), limit_s=limit_s, max_bytes=self.max_bytes
            )
        )
        return True

    def report(self, batch_size: int | None, python: str) -> LoaderReport:
        """Return the settings, the one to use, and why."""
        rows, step_ms = self.rows, self.asked.step_ms
        best = choose(rows, self.need_ms)
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
            self.notes.append(
                f"/dev/shm has {shm / 2**20:.0f} MiB free, through which batches pass"
            )
        return LoaderReport(
            tuple(rows),
            best,
            conclusion,
            limit_of(best, self.room, self.need_ms),
            batch_size,
            step_ms,
            self.need_ms,
            self.room,
            _confidence(best, is_crowded=crowded),
            tuple(self.notes),
            time.monotonic() - self.begun,
            python,
        )


def _confidence(best: BenchRow | None, *, is_crowded: bool) -> str:
    error = None if best is None else best.error_pct
    if is_crowded or error is None or error > 15.0:
        return "low"
    return "high" if error <= 5.0 else "medium"


def room_here() -> Room:
    """Return the cores and memory that this machine or container offers a loader."""
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
    with suppress(OSError):
        status = os.statvfs("/dev/shm")
        return float(status.f_bavail * status.f_frsize)
    return None


def _pressure() -> float | None:
    """Return the kernel's mean CPU pressure over ten seconds, percent (Documentation/accounting/psi.rst)."""
    with (
        suppress(OSError, IndexError, ValueError),
        open("/proc/pressure/cpu", encoding="ascii") as file,
    ):
        return float(file.readline().split()[1].partition("=")[2])
    return None
