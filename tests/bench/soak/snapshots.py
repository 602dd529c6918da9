"""Snapshots of a machine on which everything changes: processes come and go, GPUs are lost and found."""

from __future__ import annotations

import random
from collections.abc import Iterator

from msgspec.structs import replace

from gputop.model.snapshot import GpuSample, ProcessSample, ProcessStatic, Snapshot
from gputop.sources.simulation.simulated import snapshot_at

BEGUN = 1_780_000_000.0
RECORDED = 240
"""Simulated snapshots that are made once and then varied: making them would take longer than everything measured."""
LIFE_TICKS = 180
LOST_TICKS = 300
LONGEST_COMMAND = 4000


def ticks(count: int, begun: float = BEGUN) -> Iterator[Snapshot]:
    """One snapshot a second. No two processes have the same command line, hardly two samples the same values."""
    made = [snapshot_at(BEGUN + s, started=BEGUN) for s in range(min(count, RECORDED))]
    draw = random.Random(1)
    commands: dict[int, ProcessStatic] = {}
    for tick in range(count):
        if tick % LIFE_TICKS == 0:
            commands.clear()
        yield _changed(made[tick % RECORDED], tick, begun, draw, commands)


def _changed(
    snapshot: Snapshot, tick: int, begun: float, draw: random.Random, commands: dict[int, ProcessStatic]
) -> Snapshot:
    generation = tick // LIFE_TICKS

    def process(p: ProcessSample) -> ProcessSample:
        pid = 1000 + (p.pid * 31 + generation * 97) % 4_000_000
        static = commands.get(pid)
        if static is None:
            command = f"{p.static.command} --run {generation} {'x' * draw.randrange(LONGEST_COMMAND)}"
            static = commands[pid] = replace(p.static, command=command, job=str(generation), user=f"u{generation % 50}")
        return replace(p, pid=pid, starttime=generation * 100, static=static)

    def gpu(sample: GpuSample) -> GpuSample:
        if (tick // LOST_TICKS + sample.static.index) % 9 == 0:
            return GpuSample(
                sample.static, lost_reason=f"GPU is lost since tick {tick // LOST_TICKS * LOST_TICKS}",
                lost_since=begun, unavailable={"util_pct": "lost"},
            )  # fmt: skip
        if sample.util_pct is None or sample.sm_active_pct is None:
            return sample
        return replace(
            sample,
            util_pct=min(100.0, max(0.0, sample.util_pct + draw.uniform(-4.0, 4.0))),
            sm_active_pct=min(100.0, max(0.0, sample.sm_active_pct + draw.uniform(-2.0, 2.0))),
        )

    kept = tuple(process(p) for p in snapshot.processes if draw.random() > 0.02)
    return replace(snapshot, t=begun + tick, gpus=tuple(gpu(g) for g in snapshot.gpus), processes=kept)
