"""The experiment, stage by stage: the kernels on one side, the source that a screen would use on the other."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

from msgspec import Struct

from gputop.features.prove.experiment import Result, Stage, StageSample, result, stages
from gputop.model.quantity import clean_text, numbers
from gputop.model.sm import MEASURED
from gputop.model.snapshot import GpuSample, GpuStatic, Snapshot
from gputop.model.source import Source, SourceError, UsageError
from gputop.session.session import Arrivals
from gputop.sources.own_process import dying_with_parent, running_main

# The parent's side of the child that runs the kernels: starts it on one GPU, gives it stages, kills it if it hangs.

READY_S = 60.0
"""How long CUDA may take to start: it compiles the kernels, and may have to wake the GPU first."""
SILENT_S = 5.0
END_S = 0.3


class KernelsFailed(Exception):
    """CUDA cannot run the kernels, or has stopped. One line of text."""


class Kernels:
    """One GPU's child process. ``close`` it, whatever happens."""

    def __init__(self, uuids: str, program: str = "prove_child") -> None:
        """``uuids`` of the GPUs that it sees, with commas; ``program`` is the module of this folder that it runs."""
        # By UUID: CUDA numbers GPUs in its own order.
        self._process = subprocess.Popen(
            dying_with_parent(sys.executable, running_main(f"{__package__}.{program}")),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
            start_new_session=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": uuids},
        )  # fmt: skip
        self._text = b""
        self._heard = monotonic()

    def ready(self) -> dict[str, Any]:
        """Wait for CUDA; how many multiprocessors there are, and its version. Raises KernelsFailed."""
        deadline = monotonic() + READY_S
        while monotonic() < deadline:
            for line in self._lines(0.2):
                if line.get("t") == "ready" and isinstance(line.get("multiprocessors"), int):
                    return line
        raise KernelsFailed(f"CUDA has not started within {READY_S:.0f} s")

    def begin(self, stage: Stage) -> None:
        """Run this from now on. Raises KernelsFailed."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"kind": stage.kind, "blocks": stage.blocks}).encode() + b"\n")
        except OSError:
            self.check()
            raise KernelsFailed("the program that runs the kernels has ended") from None
        self._heard = monotonic()

    def check(self) -> None:
        """Raises KernelsFailed when the kernels have failed or hang."""
        self._lines(0.0)
        if monotonic() - self._heard > SILENT_S:
            raise KernelsFailed(f"a kernel launch has not ended for {SILENT_S:.0f} s")

    def close(self) -> None:
        """End it, and what it does to the GPU with it."""
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def heard(self, wait_s: float) -> list[dict[str, Any]]:
        """What it has said since it was last asked, waited for so long. Raises KernelsFailed, also where it hangs."""
        messages = self._lines(wait_s)
        if monotonic() - self._heard > SILENT_S:
            raise KernelsFailed(f"a copy has not ended for {SILENT_S:.0f} s")
        return messages

    def _lines(self, wait_s: float) -> list[dict[str, Any]]:
        assert self._process.stdout is not None
        out = self._process.stdout.fileno()
        messages: list[dict[str, Any]] = []
        while select.select([out], [], [], wait_s if not messages else 0.0)[0]:
            piece = os.read(out, 65536)
            *lines, self._text = (self._text + piece).split(b"\n")
            for line in lines:
                try:
                    message = json.loads(line)
                except ValueError:
                    continue
                if isinstance(message, dict):
                    messages.append(message)
                    self._heard = monotonic()
                    if message.get("t") == "error":
                        raise KernelsFailed(clean_text(str(message.get("why")))[:300])
            if not piece:
                status = self._process.wait()
                how = f"signal {-status}" if status < 0 else f"status {status}"
                raise KernelsFailed(f"the program that runs the kernels has ended ({how})")
        return messages


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
    """Callbacks of the experiment: for every snapshot, each stage as it begins, and each result."""

    taken: Callable[[Snapshot], None]
    marked: Callable[[str], None]
    on_result: Callable[[Result], None]


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
        self._arrivals = Arrivals(source)
        self._kernels: Kernels | None = None
        self._gpu: GpuStatic | None = None

    def look(self, *, force: bool = False) -> Snapshot:
        """Start the source, choose the GPU, and see who uses it. Raises SourceError, and UsageError unless forced."""
        self._arrivals.start()
        snapshot = self.first()
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
        other_users = tuple(self.others(before))
        self._kernels = Kernels(gpu.uuid)
        ready = self._kernels.ready()
        n = int(ready["multiprocessors"])
        results = []
        for stage in stages(n):
            result = self._stage(stage, n)
            results.append(result)
            self._watched.on_result(result)
        cuda: Any = ready.get("cuda")
        return Proof(self.chosen(before), before.machine.driver, n, cuda, other_users, tuple(results))

    def close(self) -> None:
        if self._kernels is not None:
            self._kernels.close()
        self._source.close()

    def look_at_all(self, *, force: bool = False) -> Snapshot:
        """Start the source, and see who uses any of its GPUs. Raises SourceError, and UsageError unless forced."""
        self._arrivals.start()
        snapshot = self.first()
        if not snapshot.gpus:
            raise SourceError("no GPU answers: see `gputop doctor`")
        users = sorted({p.gpu for p in snapshot.processes if p.role == "gpu" and p.gpu is not None and p.type != "G"})
        if users and not force:
            raise UsageError(f"GPU {numbers(users)} is in use: choose others with --gpus, or --force")
        return snapshot

    def newest(self, before: Snapshot) -> Snapshot:
        """What the source says by now."""
        for snapshot in self._arrivals.new():
            before = snapshot
        return before

    def first(self) -> Snapshot:
        """A snapshot with GPUs, and with SM activity where it comes within a few seconds."""
        begun = time.monotonic()
        newest: Snapshot | None = None
        while (spent := time.monotonic() - begun) < FIRST_S:
            for snapshot in self._wait():
                newest = snapshot
            if newest is None:
                continue
            is_complete = bool(newest.gpus) and "proc" not in newest.repeats
            if is_complete and (spent > SM_WAIT_S or any(gpu.sm_active_pct is not None for gpu in newest.gpus)):
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
        length_s = self._stage_s
        while time.monotonic() - begun < length_s:
            self._kernels.check()
            for snapshot in self._wait():
                gpu = _of(snapshot, self._gpu.uuid)
                if gpu is None or "nvml" in snapshot.repeats:
                    continue
                # A slow source needs a stage long enough for a whole window of it, and for its delay.
                window_s = gpu.sm_window_s or 0.0
                length_s = max(length_s, 3.0 * window_s + SETTLED_S)
                if snapshot.t >= begun_t + SETTLED_S:
                    samples.append(_sample(snapshot.t, gpu, begun_t))
        return result(stage, samples, multiprocessors)


def _sample(t: float, gpu: GpuSample, begun_t: float) -> StageSample:
    """The sample of this stage alone, without SM activity whose window reaches back before the stage."""
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


def _of(snapshot: Snapshot, uuid: str) -> GpuSample | None:
    return next((gpu for gpu in snapshot.gpus if gpu.static.uuid == uuid), None)


def _is_split(gpu: GpuSample) -> bool:
    return bool(gpu.static.mig_enabled) and gpu.static.mig_parent is None
