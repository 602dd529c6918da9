"""Run the experiment: the kernels, and a source beside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from msgspec import Struct

from gputop.features.prove.experiment import Ready, Result, Stage, StageSample, result, stages
from gputop.features.prove.kernel_process import Kernels
from gputop.model.sm import MEASURED
from gputop.model.snapshot import GpuSample, GpuStatic, Snapshot
from gputop.model.source import Source, SourceError, UsageError
from gputop.session.arrivals import Arrivals

STAGE_S = 4.0
SETTLED_S = 1.2
"""NVML's utilisation covers up to the last second: earlier values may still be of the stage before."""
CLEAR_S = 0.1
"""A window of SM activity must begin this long after its stage."""
FIRST_S = 20.0
"""How long the first snapshot may take."""
SM_WAIT_S = 6.0
"""How long SM activity may take to be measured: a source collects first."""


class Watched(Struct):
    """Callbacks for snapshots, stages and results."""

    taken: Callable[[Snapshot], None] = lambda _: None
    marked: Callable[[str], None] = lambda _: None
    on_result: Callable[[Result], None] = lambda _: None


class Proof(Struct, frozen=True):
    """All results.

    ``other_users`` names others on the GPU.
    """

    at_rest: GpuSample
    driver: str | None
    multiprocessors: int
    cuda: int | None
    other_users: tuple[str, ...]
    results: tuple[Result, ...]


class Experiment:
    """One GPU of a source that is started here. ``close`` it."""

    def __init__(self, source: Source, watched: Watched) -> None:
        self._source, self._watched = source, watched
        self._arrivals = Arrivals(source)
        self._kernels: Kernels | None = None
        self._gpu: GpuStatic | None = None

    def look(self, *, force: bool = False) -> Snapshot:
        """Start the source and choose a GPU that is free.

        Raises SourceError, and UsageError for a busy GPU unless forced.
        """
        self._arrivals.start()
        snapshot = self.first()
        statics = (gpu.static for gpu in snapshot.gpus if gpu.lost_reason is None)
        self._gpu = next((static for static in statics if not static.is_split), None)
        if self._gpu is None:
            raise SourceError("no GPU answers: see `gputop doctor`")
        others = self.others(snapshot)
        if others and not force:
            raise UsageError(
                f"GPU {self._gpu.index} is in use by {', '.join(others)}: choose another with --gpus, or --force"
            )
        return snapshot

    def others(self, snapshot: Snapshot) -> list[str]:
        """Other compute processes on the GPU, by name and pid.

        Drawing the desktop does not count.
        """
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

    def start_cuda(self) -> Ready:
        """Load the kernels on the chosen GPU.

        Raises KernelsFailed, also where libcuda is missing.
        """
        assert self._gpu is not None
        self._kernels = Kernels(self._gpu.uuid)
        return self._kernels.ready()

    def run(self, before: Snapshot, cuda: Ready) -> Proof:
        """Run every stage. Raises KernelsFailed."""
        results = []
        for stage in stages(cuda.multiprocessors):
            result = self._stage(stage, cuda.multiprocessors)
            results.append(result)
            self._watched.on_result(result)
        return Proof(
            self.chosen(before),
            before.machine.driver,
            cuda.multiprocessors,
            cuda.cuda,
            tuple(self.others(before)),
            tuple(results),
        )

    def close(self) -> None:
        if self._kernels is not None:
            self._kernels.close()
        self._source.close()

    def first(self) -> Snapshot:
        """A first snapshot with GPUs.

        It waits some seconds for SM activity.
        """
        begun = time.monotonic()
        newest: Snapshot | None = None
        while (spent := time.monotonic() - begun) < FIRST_S:
            for snapshot in self._wait():
                newest = snapshot
            if newest is None:
                continue
            is_complete = bool(newest.gpus) and "proc" not in newest.repeats
            if is_complete and (
                spent > SM_WAIT_S or any(gpu.sm_active_pct is not None for gpu in newest.gpus)
            ):
                return newest
        if newest is None:
            raise SourceError("the driver does not answer: see `gputop doctor`")
        return newest

    def _wait(self) -> Iterator[Snapshot]:
        for snapshot in self._arrivals.wait(0.1):
            self._watched.taken(snapshot)
            yield snapshot

    def _stage(self, stage: Stage, multiprocessors: int) -> Result:
        assert self._kernels is not None and self._gpu is not None
        self._watched.marked(f"prove: {stage.title}")
        self._kernels.begin(stage)
        begun, begun_t = time.monotonic(), time.time()
        samples: list[StageSample] = []
        uuid = self._gpu.uuid
        length_s = STAGE_S
        while time.monotonic() - begun < length_s:
            self._kernels.heard()
            for snapshot in self._wait():
                gpu = next((gpu for gpu in snapshot.gpus if gpu.static.uuid == uuid), None)
                if gpu is None or "nvml" in snapshot.repeats:
                    continue
                # A slow source needs a stage long enough for a whole window of it, and for its delay.
                window_s = gpu.sm_window_s or 0.0
                length_s = max(length_s, 3.0 * window_s + SETTLED_S)
                if snapshot.t >= begun_t + SETTLED_S:
                    samples.append(_sample(snapshot.t, gpu, begun_t))
        return result(stage, samples, multiprocessors)


def _sample(t: float, gpu: GpuSample, begun_t: float) -> StageSample:
    """The sample of this stage.

    SM activity is left out where its window begins before the stage.
    """
    began = t - (gpu.sm_age_s or 0.0) - (gpu.sm_window_s or 0.0)
    counts = gpu.sm_source in MEASURED and began >= begun_t + CLEAR_S
    return StageSample(
        t,
        gpu.util_pct,
        gpu.sm_active_pct if counts else None,
        gpu.sm_source,
        gpu.dram_active_pct if counts else None,
        gpu.power_w,
    )
