"""Snapshots of a machine on which everything changes: processes, jobs and users come and go, GPUs are lost and found.

Whatever has a name gets a new one that never comes back: what remembers by name and never forgets grows with every
tick.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from msgspec.structs import replace

from gputop.model.snapshot import CgroupName, GpuSample, GpuStatic, ProcessSample, ProcessStatic, Snapshot
from gputop.sources.simulation.life import slurm
from gputop.sources.simulation.simulated import snapshot_at

BEGUN = 1_780_000_000.0
GPUS = 4
"""A small machine: what grows does so with every name, and ticks are what a soak needs."""
RECORDED = 240
"""Simulated snapshots that are made once and then varied: making them would take longer than everything measured."""
LIFE_TICKS, EPOCH_TICKS = 180, 45
"""Lives of a job and of its dataloader workers. Those of different GPUs begin at different times."""
LOST_TICKS = 300
REMADE, REMADE_TICKS = 3, 100
"""The GPU that is a MIG instance, made anew, with another UUID, every so many ticks."""
LONGEST_COMMAND = 4000
MOST_PIDS = 4_194_304


def ticks(count: int, begun: float = BEGUN) -> Iterator[Snapshot]:
    """One snapshot a second. No two processes have the same command line, hardly two samples the same values."""
    made = [snapshot_at(BEGUN + s, started=BEGUN, gpus=GPUS) for s in range(min(count, RECORDED))]
    world = _World()
    for tick in range(count):
        yield world.changed(made[tick % RECORDED], tick, begun)


class _World:
    """Gives what lives its names of the moment."""

    def __init__(self) -> None:
        self._draw = random.Random(1)
        self._facts: dict[tuple[int, int | None], tuple[tuple[int, int], ProcessStatic]] = {}
        """By simulated pid and GPU the newest life and its facts."""
        self._remade = -1
        self._instance: GpuStatic | None = None

    def changed(self, snapshot: Snapshot, tick: int, begun: float) -> Snapshot:
        """The simulated snapshot, lived by others."""
        # The driver has a process out of sight now and then.
        kept = tuple([self._process(p, tick) for p in snapshot.processes if self._draw.random() > 0.02])
        gpus = tuple([self._gpu(g, tick, begun) for g in snapshot.gpus])
        return replace(snapshot, t=begun + tick, gpus=gpus, processes=kept)

    def _process(self, p: ProcessSample, tick: int) -> ProcessSample:
        since = tick + 41 * (p.gpu or 0)
        job, epoch = since // LIFE_TICKS, 0 if p.role == "gpu" else since // EPOCH_TICKS
        known = self._facts.get((p.pid, p.gpu))
        if known is None or known[0] != (job, epoch):
            known = self._facts[p.pid, p.gpu] = (job, epoch), self._static(p, job, epoch)
        parent = None if p.ppid is None else _pid(p.ppid, job, 0)
        return replace(
            p, pid=_pid(p.pid, job, epoch), ppid=parent, starttime=100 * (job + epoch) + p.pid % 100, static=known[1]
        )

    def _static(self, p: ProcessSample, job: int, epoch: int) -> ProcessStatic:
        number = 100 * job + (p.gpu or 0)
        command = f"{p.static.command} --run {number}.{epoch} {'x' * self._draw.randrange(LONGEST_COMMAND)}"
        return replace(
            p.static, command=command, batch_job=slurm(number), user=f"user{number}", job_key=f"{number:012x}",
            contained_in=CgroupName("docker", f"{number:064x}"),
        )  # fmt: skip

    def _gpu(self, sample: GpuSample, tick: int, begun: float) -> GpuSample:
        static = self._remade_static(sample.static, tick) if sample.static.index == REMADE else sample.static
        if (tick // LOST_TICKS + static.index) % 9 == 0:
            return GpuSample(
                static, lost_reason=f"GPU is lost since tick {tick // LOST_TICKS * LOST_TICKS}", lost_since=begun,
                unavailable={"util_pct": "lost"},
            )  # fmt: skip
        if sample.util_pct is None or sample.sm_active_pct is None:
            return replace(sample, static=static)
        return replace(
            sample,
            static=static,
            util_pct=min(100.0, max(0.0, sample.util_pct + self._draw.uniform(-4.0, 4.0))),
            sm_active_pct=min(100.0, max(0.0, sample.sm_active_pct + self._draw.uniform(-2.0, 2.0))),
        )

    def _remade_static(self, static: GpuStatic, tick: int) -> GpuStatic:
        if self._instance is None or self._remade != tick // REMADE_TICKS:
            self._remade = tick // REMADE_TICKS
            uuid = f"MIG-{self._remade:08x}-0000-4000-8000-{self._remade:012x}"
            self._instance = replace(static, uuid=uuid, mig_parent=static.uuid, mig_instance="1/0")
        return self._instance


def _pid(simulated: int, job: int, epoch: int) -> int:
    """The pid of one life."""
    return 1000 + (simulated * 31 + job * 7919 + epoch * 104_729) % MOST_PIDS
