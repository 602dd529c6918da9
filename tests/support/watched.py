"""Scripted sources for a watch, and a watch that is waited for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import gputop
from gputop.model.snapshot import GpuSample, GpuStatic, HostSample, Machine, ProcessSample, Snapshot
from tests.support.polled import PolledSource

NOW = 1_780_000_000.0
GIB = 2.0**30


def snapshot(
    t: float, *, util: float = 90.0, pid: int | None = None, gpus: int = 1, **more: Any
) -> Snapshot:
    made = tuple(
        GpuSample(
            GpuStatic(i, f"GPU-{i}", "H100"), util_pct=util, sm_active_pct=25.0, sm_source="gpm", sm_window_s=1.0,
            mem_used_bytes=20 * GIB, mem_total_bytes=80 * GIB, power_w=300.0,
        )
        for i in range(gpus)
    )  # fmt: skip
    holders = () if pid is None else (ProcessSample(pid, starttime=7, role="gpu", gpu=0),)
    return Snapshot(t, Machine("host"), made, holders, HostSample(cpu_pct=50.0), **more)


class Scripted(PolledSource):
    """A source that hands out what it is given, when it is given."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__()
        self.failure = failure
        self.waiting: list[Snapshot] = []
        self.started = threading.Event()

    def begin(self, wait_s: float) -> Snapshot | None:
        if self.failure is not None:
            raise self.failure
        self.closed = False
        self.started.set()
        return None

    def poll(self) -> Snapshot | None:
        return self.waiting.pop(0) if self.waiting else None


class Watched:
    """A watch on a scripted source; ``show`` returns when the watch has taken a snapshot in."""

    def __init__(self, **given: Any) -> None:
        self.source = Scripted()
        self._seen = threading.Semaphore(0)
        given.setdefault("gpus", "all")
        self.watch = gputop.watch(
            source=self.source, on_frame=lambda _: self._seen.release(), **given
        )

    def show(self, *snapshots: Snapshot) -> None:
        assert self.source.started.wait(10.0)
        self.source.waiting += snapshots
        for _ in snapshots:
            assert self._seen.acquire(timeout=60.0)


def watched_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A fixture: no launcher's environment, and no watch left running."""
    for name in ("RANK", "LOCAL_RANK", "SLURM_LOCALID", "SLURM_PROCID", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    yield
    from gputop.api.watch import _ONE

    _ONE.end()
