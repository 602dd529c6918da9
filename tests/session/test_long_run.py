"""A long run remembers neither every process, GPU, user and command that it ever saw, nor every tick."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from gputop.model.snapshot import (
    CgroupName,
    Event,
    GpuSample,
    ProcessSample,
    ProcessStatic,
    Snapshot,
)
from gputop.monitor import MOST_GPUS, Monitor
from gputop.paint.main_screen import Painter
from gputop.paint.view import View
from gputop.recording.recent_past import Memory
from gputop.session.frame_events import FrameEvents
from gputop.sources.simulation.simulated import snapshot_at
from tests.support.frames import MOMENT
from tests.support.held import too_large

LIVES = 800
"""Processes and GPUs that come and go, one of each kind a tick."""


def _short_lived(ticks: int) -> Iterator[Snapshot]:
    """One GPU and three processes a tick that were never seen before and are never seen again.

    Beside them is a GPU that stays, lost in every other tick.
    """
    model = snapshot_at(MOMENT, started=MOMENT - 60.0)
    stays, comes = model.gpus[0], model.gpus[1]
    gone = GpuSample(stays.static, lost_reason="GPU is lost", unavailable={"util_pct": "lost"})
    p = next(p for p in model.processes if p.role == "gpu")
    for tick in range(ticks):
        new = replace(
            comes, static=replace(comes.static, uuid=f"MIG-{tick}", index=1), ecc_uncorrected=tick
        )
        processes: list[ProcessSample] = []
        for number, role in enumerate(("gpu", "loader", "helper")):
            static = ProcessStatic(
                f"user{tick}",
                f"python -m job{tick}.{number}",
                f"job{tick}",
                batch_job=CgroupName(str(tick)),
            )
            pid = 1000 + 3 * tick + number
            processes.append(
                replace(p, pid=pid, starttime=tick, role=role, gpu=number % 2, static=static)
            )  # type: ignore[arg-type]
        events = (Event(MOMENT + tick, "mark", f"mark {tick}", None),)
        yield replace(
            model,
            t=MOMENT + tick,
            gpus=(gone if tick % 2 else stays, new),
            processes=tuple(processes),
            events=events,
        )


def test_nothing_that_is_fed_grows_with_the_processes_and_gpus_that_ever_were() -> None:
    monitor, events, memory, painter = Monitor(), FrameEvents(), Memory(), Painter()
    for tick, snapshot in enumerate(_short_lived(LIVES)):
        frame = monitor.feed(snapshot)
        events.events(frame)
        memory.add(snapshot, lambda: b"")
        if tick % 50 == 0:
            painter.paint(frame, View(), 160, 48)
    assert too_large(monitor, events, memory, painter) == []
    # What is there stays known, and of what is gone the newest.
    uuids = [frame.snapshot.gpus[0].static.uuid, *(f"MIG-{life}" for life in range(LIVES))]
    kept = [
        uuid
        for uuid in uuids
        if frame.history.covered_s(uuid) or frame.history.recent(uuid, "util_pct", 9e9)
    ]
    assert len(kept) == MOST_GPUS
    assert {uuids[0], f"MIG-{LIVES - 1}", f"MIG-{LIVES - 60}"} <= set(kept)
