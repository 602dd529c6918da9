"""Host activity of one GPU in numbers: of one sample, or as means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import astuple

from gputop.diagnosis.window.host_activity import (
    MOST,
    GpuHostActivity,
    known,
    run_and_queued,
    total,
)
from gputop.model.command_facts import A_COMPILER, COMPILE_WORKER, NEVER
from gputop.model.feeders import MainWaits
from gputop.model.snapshot import ProcessSample


class HostMeans(NamedTuple):
    """Host activity for a GPU, of one sample or as means.

    Shares 0–1, counts, cores and bytes a second.
    """

    main: float | None = None
    """Runnable: on a core, or queued for one."""
    main_queued: float | None = None
    main_disk: float | None = None
    main_network: float | None = None
    main_lock: float | None = None
    main_sleep: float | None = None
    main_poll: float | None = None
    main_pipe: float | None = None
    main_write: float | None = None
    main_other: float | None = None
    main_unread: float | None = None
    main_saves: float | None = None
    """Share of time that the main thread waited for a file write."""
    listens: float | None = None
    workers: float | None = None
    """Mean over loaders of running and queued."""
    running: float | None = None
    queued: float | None = None
    disk: float | None = None
    network: float | None = None
    loaders: float | None = None
    tree: float | None = None
    """Cores that the job's processes used."""
    read: float | None = None
    write: float | None = None
    throttled: float | None = None
    pool: float | None = None
    compiling: float | None = None

    @property
    def waits(self) -> MainWaits | None:
        """Waits of the main thread; None if they cannot be seen."""
        return None if self.main is None else MainWaits(*[share or 0.0 for share in self[2:11]])


def loader_shares(loaders: Sequence[ProcessSample]) -> tuple[float | None, ...]:
    """Mean shares of loaders in one sample: runnable, on a core, queued, waiting for the disk, for the network."""
    times = [run_and_queued(p) for p in loaders if p.run_pct is not None or p.cpu_pct is not None]
    running, queued = _mean([run for run, _ in times]), _mean([queue for _, queue in times])
    return (
        None if running is None or queued is None else running + queued,
        running,
        queued,
        _mean([100.0 * is_on_disk(p) for p in loaders if p.state is not None]),
        _mean([p.feed.network for p in loaders if p.feed.network is not None]),
    )


def loading_of(tick: GpuHostActivity) -> tuple[float | None, ...]:
    """Mean shares of a GPU's loaders, computed once a sample: there may be thousands."""
    if tick.loading is None:
        tick.loading = loader_shares(tick.loaders)
    return tick.loading


def host_second(tick: GpuHostActivity) -> HostMeans:
    """The host's part of one sample."""
    p, loaders, tree = tick.primary, tick.loaders, tick.tree
    main = queued = saves = listens = None
    waits: list[float | None] = [None] * 9
    if p is not None and p.main_run_pct is not None:
        main, queued, saves = (
            _part(p.main_pct),
            (p.main_wait_pct or 0.0) / 100.0,
            saves_pct(p) / 100.0,
        )
        listens = None if p.listens is None else float(p.listens)
        waits = [_part(wait) for wait in astuple(p.main)[:9]]
    if p is not None:
        waits[0] = (
            float(p.state == "D")
            if p.main.disk is None and p.state is not None
            else _part(p.main.disk)
        )
    # Without loaders at this moment none of them ran, and none waited.
    loading = loading_of(tick) if loaders else (None if main is None else 0.0,) * 5
    throttled = [p.throttled_pct for p in tree if p.throttled_pct is not None]
    return HostMeans(  # type: ignore[call-arg] # as many waits as there are fields
        main,
        queued,
        *waits,
        saves,
        listens,
        *loading,
        float(len(loaders)) if loaders else None,
        _part(total([p.run_pct if p.cpu_pct is None else p.cpu_pct for p in tree])),
        known(tick.read_bytes),
        known(tick.write_bytes),
        _part(max(throttled, default=None)),
        _part(total([p.pool_run_pct for p in tick.owners])),
        min(1.0, sum([_compiling(p) for p in tree if p.static.rule == NEVER])),
    )


def _part(percent: float | None) -> float | None:
    return None if percent is None or not percent < MOST else percent / 100.0


def _mean(percents: list[float]) -> float | None:
    return sum(percents) / len(percents) / 100.0 if percents else None


def _compiling(p: ProcessSample) -> float:
    """How much of a sample a process compiled; a compiler lives too short for two readings."""
    if (p.static.why or "").endswith(A_COMPILER):
        return 1.0
    if (p.static.why or "").endswith(COMPILE_WORKER):
        return min(1.0, max(p.run_pct or 0.0, p.feed.run or 0.0) / 100.0)
    return 0.0


def is_on_disk(p: ProcessSample) -> bool:
    """True if a process waits for a disk, by its main wait, else state D."""
    return p.state == "D" if p.waiting_on is None else p.waiting_on == "disk"


def saves_pct(p: ProcessSample | None) -> float:
    """Percent of a sample in which the main thread waited for a write.

    If system calls may not be seen: percent of disk waits while the process wrote to a disk.
    """
    if p is None:
        return 0.0
    on_disk = p.main.disk if p.main.disk is not None else 100.0 if is_on_disk(p) else 0.0
    return max(p.main.saves or 0.0, on_disk if p.write_bytes_per_s else 0.0)
