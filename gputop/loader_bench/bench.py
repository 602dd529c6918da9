"""The benchmark: from few workers to many until it is enough, then the neighbours and more prefetching."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from multiprocessing.reduction import ForkingPickler
from typing import Any

from msgspec.structs import replace

from gputop.loader_bench import plan
from gputop.loader_bench.child import measured_restart, measured_row, row_here
from gputop.loader_bench.loaders import Loadable
from gputop.loader_bench.report import LoaderReport
from gputop.loader_bench.restart import Restart
from gputop.loader_bench.rows import Room, Row, Setting

MOST_ROW_S = 30.0
LEAST_ROW_S = 5.0
MAX_MEMORY = 0.7
_UNSURE = "host busy: unsure"

Progress = Callable[[float, str], None]
"""Called with the part of the budget that is spent, and what is being measured."""


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
    """Find the smallest DataLoader setting that keeps up.

    ``data`` is a PyTorch Dataset or DataLoader. ``step_ms`` is how long the job's step takes: a batch must be there in
    80 % of it, without workers in 5 %, since nothing is then loaded while the step runs. ``budget_s`` bounds the whole,
    ``max_memory`` the share of the free memory that a setting may take.
    ``epochs`` is how many passes the job makes, for the total cost of their beginnings.
    Raises TypeError for what cannot be loaded from, ValueError for arguments that make no sense.
    """
    if budget_s <= 0.0 or not 0.0 < max_memory <= 1.0 or (step_ms is not None and step_ms <= 0.0):
        raise ValueError("budget_s and step_ms must be above 0, max_memory above 0 and at most 1")
    if epochs is not None and epochs < 1:
        raise ValueError(f"epochs must be 1 or more, not {epochs}")
    loadable = Loadable(data, batch_size)
    room = room_here()
    bench = _Bench(loadable, room, plan.ENOUGH * step_ms if step_ms else None, budget_s, max_memory, progress)
    bench.climb(plan.worker_counts(workers, room.cores))
    if workers == "auto":
        bench.refine()
    bench.finish()
    return bench.report(step_ms, epochs)


class _Bench:
    def __init__(
        self,
        loadable: Loadable,
        room: Room,
        need_ms: float | None,
        budget_s: float,
        max_memory: float,
        progress: Progress | None,
    ) -> None:
        self.loadable, self.room, self.need_ms = loadable, room, need_ms
        self.max_memory, self.progress = max_memory, progress
        self.rows: list[Row] = []
        self.notes: list[str] = []
        self.budget_s = budget_s
        self.begun = time.monotonic()
        self.best: Row | None = None
        self.restart: Restart | None = None
        self.method = "forkserver" if loadable.uses_cuda else "fork"
        self.in_child = True
        if self.method != "fork":
            try:
                ForkingPickler.dumps(loadable)
            except Exception as error:  # noqa: BLE001 — whatever a dataset's pickling raises
                self.in_child = False
                self.notes.append(
                    f"measured in this process: CUDA is in use here and the dataset cannot be handed to another one "
                    f"({type(error).__name__})"
                )

    @property
    def left_s(self) -> float:
        return self.budget_s - (time.monotonic() - self.begun)

    def climb(self, counts: list[int]) -> None:
        """Measure these counts in order, until it is enough."""
        for count in counts:
            if not self.measure(plan.setting_of(count)):
                return
            if len(counts) > 1 and plan.is_enough(self.rows, self.need_ms):
                return
            if len(self.rows) >= 2 and all(row.failed for row in self.rows[-2:]):
                # The dataset itself fails, and would with more workers as well.
                return

    def refine(self) -> None:
        """Measure the neighbours of the best, more prefetching, and the two best again, as far as the budget goes."""
        for count in plan.knee(self.rows, self.need_ms):
            self.measure(plan.setting_of(count))
        best = plan.answer(self.rows, self.need_ms)
        if best is None or plan.keeps_up(best, self.need_ms):
            return
        if best.setting.workers:
            for prefetch in plan.MORE_PREFETCH:
                before = best.batch_ms or 0.0
                self.measure(plan.setting_of(best.setting.workers, prefetch))
                now = self.rows[-1].batch_ms
                if now is None or now > (1.0 - plan.LEAST_GAIN) * before:
                    break
        self._again()

    def finish(self) -> None:
        """Find the answer, and measure only for it: pinned memory where there is CUDA, and an epoch's beginning."""
        best = self.best = plan.answer(self.rows, self.need_ms)
        if best is None or best.batch_ms is None:
            return
        if self.loadable.may_pin and self.measure(replace(best.setting, pin_memory=True)):
            self._choose_pinned(best, self.rows[-1])
        if best.setting.workers and self.in_child and self.left_s >= LEAST_ROW_S:
            self.restart = measured_restart(
                self.loadable,
                best.setting,
                limit_s=min(MOST_ROW_S, self.left_s),
                free_bytes=self.room.free_bytes,
                method=self.method,
            )
            if self.restart is not None and not self.restart.is_worth_it:
                kept = self.best or best
                self.best = replace(kept, setting=replace(kept.setting, persistent=False))

    def _choose_pinned(self, plain: Row, pinned: Row) -> None:
        if pinned.batch_ms is None or plain.batch_ms is None:
            self.notes.append(f"pin_memory=True could not be measured: {pinned.failed}")
        elif plan.keeps_up(pinned, self.need_ms) or pinned.batch_ms <= plan.WITHIN * plain.batch_ms:
            self.best = pinned
            self.notes.append("pin_memory=True costs no time here; with non_blocking=True copies then overlap the step")
        else:
            self.notes.append(
                f"pin_memory=True makes a batch slower here, {plain.batch_ms:.1f} → {pinned.batch_ms:.1f} ms: left out"
            )

    def _again(self) -> None:
        """Measure the two best again, alternating: the first measurements had the colder pages."""
        known = sorted((row for row in self.rows if row.batch_ms is not None), key=lambda r: r.batch_ms or 0.0)[:2]
        if len(known) < 2:
            return
        for row in known:
            if self.left_s < LEAST_ROW_S:
                return
            more = self._row(row.setting, 1000 + len(self.rows))
            if more.batch_ms is not None and row.batch_ms is not None:
                both = row.batches + more.batches
                mean = (row.batch_ms * row.batches + more.batch_ms * more.batches) / both
                error = max(
                    row.error_pct or 0.0, more.error_pct or 0.0, 50.0 * abs(row.batch_ms - more.batch_ms) / mean
                )
                at = self.rows.index(row)
                self.rows[at] = replace(row, batch_ms=mean, batches=both, error_pct=error)

    def measure(self, setting: Setting) -> bool:
        """Measure one setting; False where the budget is spent."""
        if self.rows and self.left_s < LEAST_ROW_S:
            self.notes.append(f"the budget of {self.budget_s:.0f} s was spent before {setting.name} workers")
            return False
        free, need = self.room.free_bytes, plan.memory_of(self.rows, setting.workers)
        if free is not None and need is not None and need > self.max_memory * free:
            self.rows.append(Row(setting, failed=plan.too_much(need, free, self.max_memory)))
            return False
        self.rows.append(self._row(setting, len(self.rows)))
        return True

    def _row(self, setting: Setting, seed: int) -> Row:
        if self.progress is not None:
            self.progress(min(1.0, 1.0 - self.left_s / self.budget_s), f"{setting.name} workers")
        if not self.in_child:
            return row_here(self.loadable, setting, seed)
        limit = max(LEAST_ROW_S, min(MOST_ROW_S, self.left_s))
        return measured_row(
            self.loadable, setting, seed, limit_s=limit, free_bytes=self.room.free_bytes, method=self.method
        )

    def report(self, step_ms: float | None, epochs: int | None) -> LoaderReport:
        rows, best = self.rows, self.best
        crowded = self.room.is_crowded
        said = plan.conclusion_of(best, rows, step_ms, self.need_ms)
        if crowded:
            said = f"{said} ({_UNSURE})"
            self.notes.append(
                f"tasks waited for a core {self.room.psi_cpu_pct:.0f} % of the time before this began: more processes "
                "take a larger share from the neighbours, which is not what they gain on a free machine"
            )
        shm = self.room.shm_bytes
        if shm is not None and shm < 1 << 28:
            self.notes.append(f"/dev/shm has {shm / 2**20:.0f} MiB free, through which batches pass")
        error = None if best is None else best.error_pct
        confidence = "low" if crowded or error is None or error > 15.0 else "high" if error <= 5.0 else "medium"
        why = plan.why_of(best, self.room, self.need_ms)
        return LoaderReport(
            tuple(rows), best, said, why, self.loadable.batch_size, step_ms, self.need_ms,
            self.room, confidence, tuple(self.notes), time.monotonic() - self.begun, self.restart, epochs,
            plan.taking_of(best, step_ms),
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
        found = os.statvfs("/dev/shm")
    except OSError:
        return None
    return float(found.f_bavail * found.f_frsize)


def _pressure() -> float | None:
    """The kernel's own mean CPU pressure over ten seconds, percent (Documentation/accounting/psi.rst)."""
    try:
        with open("/proc/pressure/cpu", encoding="ascii") as file:
            some = file.readline().split()
        return float(some[1].partition("=")[2])
    except (OSError, IndexError, ValueError):
        return None
