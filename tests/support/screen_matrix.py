"""Frames and views for every size of machine and terminal: what the matrix test paints and the contact sheet shows."""

from __future__ import annotations

from functools import cache

from msgspec.structs import replace

from gputop.model.snapshot import CgroupName, ProcessSample, Snapshot
from gputop.monitor import Frame, Monitor
from gputop.sources.simulation.simulated import SimulatedSource
from tests.support.frames import MOMENT
from tests.support.kept import kept

SIZES = ((40, 10), (80, 24), (100, 30), (160, 48), (200, 60), (300, 100))
GPUS = (1, 2, 4, 8, 16)
PROCESSES = (0, 5, 500)
PAST_S = 130.0
"""As much as the default charts show, at the full rate."""
CROWD_S = 40.0
"""For how long the many processes have been there: longer than any rule looks back on processes, and sooner made."""
HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07 python train.py",
    "訓練 " * 40,
    "e\u0301\u202eevil\u2066 [red]markup[/red]\nnew line\ttab",
    "x" * 4096,
    "",
)
"""What a process can be called: escape sequences, wide, combining, right-to-left, markup, long, nothing."""


@cache
def matrix_frame(gpus: int, processes: int) -> Frame:
    """The demo node with so many GPUs and so many processes that hold them, after two minutes."""
    return kept(f"matrix-{gpus}-{processes}", lambda: _matrix_frame(gpus, processes))


def _matrix_frame(gpus: int, processes: int) -> Frame:
    monitor = Monitor()
    for snapshot in SimulatedSource(gpus=gpus, clock=lambda: MOMENT).past(PAST_S):
        crowded = snapshot.t > MOMENT - CROWD_S
        frame = monitor.feed(_with_processes(snapshot, processes if crowded else min(processes, 5)))
    return frame


def _with_processes(snapshot: Snapshot, count: int) -> Snapshot:
    """So many GPU processes: those of the node, then copies of them with hostile names, spread over the GPUs."""
    own = [p for p in snapshot.processes if p.role == "gpu"]
    if count <= len(own):
        kept = {p.pid for p in own[:count]}
        return replace(
            snapshot,
            processes=tuple(p for p in snapshot.processes if p.pid in kept or p.ppid in kept),
        )
    copies = [_copy(own[i % len(own)], i, snapshot) for i in range(count - len(own))]
    return replace(snapshot, processes=(*snapshot.processes, *copies))


def _copy(process: ProcessSample, number: int, snapshot: Snapshot) -> ProcessSample:
    name = HOSTILE[number % len(HOSTILE)]
    return replace(
        process,
        pid=1_000_000 + number,
        gpu=snapshot.gpus[number % len(snapshot.gpus)].static.index,
        gpu_mem_bytes=number * 3e6,
        static=replace(
            process.static,
            command=name,
            user=name[:40],
            batch_job=None,
            contained_in=CgroupName(name[:20]),
        ),
    )
