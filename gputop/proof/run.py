"""The experiment, stage by stage: the kernels on one side, the source that a screen would use on the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from gputop.model.sm import MEASURED
from gputop.model.snapshot import GpuSample, GpuStatic, Snapshot
from gputop.model.source import Source, SourceError, UsageError
from gputop.proof.experiment import Result, Sample, Stage, result, stages
from gputop.proof.kernels import Kernels

STAGE_S = 4.0
SETTLED_S = 1.2
"""NVML's utilisation covers up to the last second: earlier values may still be of the stage before."""
CLEAR_S = 0.1
"""A window of SM activity must begin this long after its stage."""
FIRST_S = 20.0
"""How long the first snapshot may take."""
SM_WAIT_S = 6.0
"""How long SM activity may take to be measured: a rung collects first."""


class Watched(Struct):
    """Callbacks of the experiment: for every snapshot, each stage as it begins, and each result."""

    taken: Callable[[Snapshot], None]
    marked: Callable[[str], None]
    told: Callable[[Result], None]


class Proof(Struct, frozen=True):
    """All that was found. ``before`` is the GPU as it was, ``beside`` names who else was on it."""

    before: GpuSample
    driver: str | None
    multiprocessors: int
    cuda: int | None
    beside: tuple[str, ...]
    results: tuple[Result, ...]


class Experiment:
    """One GPU of a source that is started here. ``close`` it."""

    def __init__(self, source: Source, watched: Watched, stage_s: float = STAGE_S) -> None:
        self._source, self._watched, self._stage_s = source, watched, stage_s
        self._fresh = threading.Event()
        self._kernels: Kernels | None = None
        self._gpu: GpuStatic | None = None

    def look(self, *, force: bool = False) -> Snapshot:
        """Start the source, choose the GPU, and see who uses it. Raises SourceError, and UsageError unless forced."""
        self._source.start(self._fresh.set)
        snapshot = self._first()
        self._gpu = next((gpu.static for gpu in snapshot.gpus if gpu.lost_reason is None and not _is_split(gpu)), None)
        if self._gpu is None:
            raise SourceError("no GPU answers: see `gputop doctor`")
        others = self.others(snapshot)
        if others and not force:
            raise UsageError(
                f"GPU {self._gpu.index} is in use by {', '.join(others)}: choose another with --gpus, or --force"
            )
        return snapshot

    def others(self, snapshot: Snapshot) -> list[str]:
        """Other compute processes on the GPU, by name and pid. Drawing the desktop does not count."""
        assert self._gpu is not None
        return [
            f"{p.static.name or 'a process'} ({p.pid})"
            for p in snapshot.processes
            if p.role == "gpu" and p.gpu == self._gpu.index and (p.type or "C") != "G"
        ]

    def chosen(self, snapshot: Snapshot) -> GpuSample:
        """The GPU of the experiment, in a snapshot that ``look`` gave."""
        assert self._gpu is not None
        return next(gpu for gpu in snapshot.gpus if gpu.static.uuid == self._gpu.uuid)

    def run(self, before: Snapshot) -> Proof:
        """Every stage. Raises KernelsFailed."""
        gpu = self._gpu
        assert gpu is not None
        beside = tuple(self.others(before))
        self._kernels = Kernels(gpu.uuid)
        ready = self._kernels.ready()
        n = int(ready["multiprocessors"])
        results = []
        for stage in stages(n):
            found = self._stage(stage, n)
            results.append(found)
            self._watched.told(found)
        cuda: Any = ready.get("cuda")
        return Proof(self.chosen(before), before.machine.driver, n, cuda, beside, tuple(results))

    def close(self) -> None:
        if self._kernels is not None:
            self._kernels.close()
        self._source.close()

    def _first(self) -> Snapshot:
        """A snapshot with GPUs, and with SM activity where it comes within a few seconds."""
        begun = time.monotonic()
        newest: Snapshot | None = None
        while (spent := time.monotonic() - begun) < FIRST_S:
            snapshot = self._poll()
            if snapshot is not None:
                newest = snapshot
            if newest is None:
                continue
            known = bool(newest.gpus) and "proc" not in newest.repeats
            if known and (spent > SM_WAIT_S or any(gpu.sm_active_pct is not None for gpu in newest.gpus)):
                return newest
        if newest is None:
            raise SourceError("the driver does not answer: see `gputop doctor`")
        return newest

    def _poll(self) -> Snapshot | None:
        self._fresh.wait(0.1)
        self._fresh.clear()
        snapshot = self._source.poll()
        if snapshot is not None:
            self._watched.taken(snapshot)
        return snapshot

    def _stage(self, stage: Stage, multiprocessors: int) -> Result:
        assert self._kernels is not None and self._gpu is not None
        self._watched.marked(f"prove: {stage.title}")
        self._kernels.begin(stage)
        begun, begun_t = time.monotonic(), time.time()
        samples: list[Sample] = []
        length_s = self._stage_s
        while time.monotonic() - begun < length_s:
            self._kernels.check()
            snapshot = self._poll()
            gpu = None if snapshot is None else _of(snapshot, self._gpu.uuid)
            if snapshot is None or gpu is None or "nvml" in snapshot.repeats:
                continue
            # A slow source needs a stage long enough for a whole window of it, and for its delay.
            window_s = gpu.sm_window_s or 0.0
            length_s = max(length_s, 3.0 * window_s + SETTLED_S)
            if snapshot.t >= begun_t + SETTLED_S:
                samples.append(_sample(snapshot.t, gpu, begun_t))
        return result(stage, samples, multiprocessors)


def _sample(t: float, gpu: GpuSample, begun_t: float) -> Sample:
    """The sample of this stage alone, without SM activity whose window reaches back before the stage."""
    began = t - (gpu.sm_age_s or 0.0) - (gpu.sm_window_s or 0.0)
    counts = gpu.sm_source in MEASURED and began >= begun_t + CLEAR_S
    return Sample(
        t,
        gpu.util_pct,
        gpu.sm_active_pct if counts else None,
        gpu.sm_source,
        gpu.dram_active_pct if counts else None,
        gpu.power_w,
    )


def _of(snapshot: Snapshot, uuid: str) -> GpuSample | None:
    return next((gpu for gpu in snapshot.gpus if gpu.static.uuid == uuid), None)


def _is_split(gpu: GpuSample) -> bool:
    return bool(gpu.static.mig_enabled) and gpu.static.mig_parent is None
