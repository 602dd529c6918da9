"""A painter that keeps what it can beside one that keeps nothing, on random walks that change one thing a step."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.fabric_window import FabricSignals
from gputop.model.steps import StepPace
from gputop.monitor import Frame, Monitor
from gputop.paint.glyphs import ASCII, COLOUR
from gputop.paint.main_screen import Painter
from gputop.paint.process_columns import DEFAULT
from gputop.paint.process_filter import NO_FILTER, parse
from gputop.paint.process_table import key_of
from gputop.paint.view import View
from gputop.sources.simulation.simulated import snapshot_at
from tests.support.frames import MOMENT
from tests.support.random_frames import random_snapshot

VIEWS: dict[str, tuple[Any, ...]] = {
    "focus": ("processes", "gpus", "counts"), "scroll": (0, 1, 5), "command_at": (0, 1, 3), "inverted": (False, True),
    "sort": ("gpu_mem_bytes", "pid", "command", "tree_cpu_pct"), "tree": ("auto", "all", "none"),
    "columns": (DEFAULT, ("gpu", "pid", "command"), ("pid", "cpu_pct", "why")), "span_s": (60.0, 120.0, 300.0),
    "filter": (NO_FILTER, *map(parse, ("verdict:starved", "verdict:idle", "gpu:0", "cpu>50", "python"))),
    "layout": ("auto", "auto", "list"), "density": ("standard", "standard", "compact"), "glyphs": (COLOUR, ASCII),
    "message": (None, "done"), "utc_offset_s": (0.0, 3600.0), "hint": ((), (("q", "quit", "quit"),)),
}  # fmt: skip
"""What a view's fields change to."""
SIZES = ((160, 50), (80, 24), (300, 100), (100, 18), (180, 60), (70, 40), (160, 90), (240, 60))


@cache
def _pool() -> tuple[Frame, ...]:
    """Frames to begin with and to take other values from: a simulated node, and what nobody would expect."""
    frames: list[Frame] = []
    for seed in (3, 4):
        snapshot, monitor = random_snapshot(seed, MOMENT, gpus=8, processes=12), Monitor()
        frames += [monitor.feed(replace(snapshot, t=MOMENT + second)) for second in range(5)][-1:]
    monitor = Monitor()
    frames += [monitor.feed(snapshot_at(MOMENT + second, started=MOMENT - 600.0)) for second in range(45)][::44]
    return tuple(frames)


def _changed(draw: random.Random, struct: Struct, other: Struct, but: tuple[str, ...] = ()) -> Any:
    """The first with one value of the second, where there is one that differs."""
    names = [name for name in type(struct).__struct_fields__ if name not in but]
    names = [name for name in names if getattr(struct, name) != getattr(other, name)]
    return replace(struct, **{name: getattr(other, name) for name in draw.choices(names)}) if names else struct


def _with(items: tuple[Any, ...], at: int, item: Any) -> tuple[Any, ...]:
    return (*items[:at], item, *items[at + 1 :])


def _other_gpu(draw: random.Random, frame: Frame, other: Frame) -> Frame:
    """One value of one GPU, of what is known of it, or of its diagnosis."""
    now, at = frame.snapshot, draw.randrange(len(frame.snapshot.gpus))
    gpu, from_gpu = now.gpus[at], draw.choice(other.snapshot.gpus)
    kind = draw.randrange(4)
    if kind == 0:
        gpu = _changed(draw, gpu, from_gpu, ("static",))
    elif kind == 1:
        fresh = max(gpu.static.index for gpu in now.gpus) + draw.choice((1, 100))
        static = _changed(draw, gpu.static, replace(from_gpu.static, index=fresh), ("uuid",))
        gpu = replace(gpu, static=static)
    else:
        d = frame.diagnoses[at]
        d = _changed(draw, d, draw.choice(other.diagnoses), ("index", "uuid"))
        return replace(frame, diagnoses=_with(frame.diagnoses, at, d))
    return replace(frame, snapshot=replace(now, gpus=_with(now.gpus, at, gpu)))


def _other_process(draw: random.Random, frame: Frame, other: Frame) -> Frame:
    """One value of one process, or of what is known of it; or one process fewer."""
    now = frame.snapshot
    if not now.processes or not other.snapshot.processes:
        return replace(frame, snapshot=replace(now, processes=other.snapshot.processes))
    at = draw.randrange(len(now.processes))
    process, from_process = now.processes[at], draw.choice(other.snapshot.processes)
    kind = draw.randrange(8)
    if kind == 0:
        processes = now.processes[:at] + now.processes[at + 1 :]
    else:
        static = replace(process, static=_changed(draw, process.static, from_process.static))
        changed = _changed(draw, process, from_process, ("static",))
        processes = _with(now.processes, at, static if kind == 1 else changed)
    return replace(frame, snapshot=replace(now, processes=processes))


def _other_frame(draw: random.Random, frame: Frame, other: Frame) -> Frame:
    """The frame with one thing changed."""
    now = frame.snapshot
    kind = draw.randrange(12)
    if kind < 5:
        return _other_gpu(draw, frame, other)
    if kind < 8:
        return _other_process(draw, frame, other)
    if kind == 8:
        return replace(frame, snapshot=replace(now, host=_changed(draw, now.host, other.snapshot.host)))
    if kind == 9:
        fabric = FabricSignals(1e9, 1e9, 5e10, 9, 9, 0, 0, 30.0, 1, 0)
        return replace(frame, fabric=draw.choice((None, fabric)))
    if kind == 10:
        pid = now.processes[0].pid if now.processes else 1
        return replace(frame, steps=draw.choice(((), (StepPace(pid, 0, 0, "train", 0.4, None, 0.5, 10),))))
    gpu = draw.choice(now.gpus)
    values = {name: draw.uniform(0.0, 100.0) for name in ("util_pct", "sm_active_pct", "idle_pct")}
    frame.history.add(now.t + 1.0, gpu.static.uuid, values)
    return replace(frame, snapshot=replace(now, t=now.t + 1.0))


def _start(draw: random.Random) -> Frame:
    """A frame of one to eight GPUs with a history that no other walk adds to."""
    frame = draw.choice(_pool())
    monitor, count = Monitor(), draw.choice((1, 2, 3, 8))
    gpus = tuple(draw.sample(frame.snapshot.gpus, count))
    for second in range(3):
        begun = monitor.feed(replace(frame.snapshot, gpus=gpus, t=MOMENT + 100.0 + second))
    by_uuid = {d.uuid: d for d in frame.diagnoses}
    return replace(begun, diagnoses=tuple(by_uuid[gpu.static.uuid] for gpu in gpus))


def _walk(draw: random.Random, steps: int) -> Iterator[tuple[Frame, View, tuple[int, int]]]:
    frame, view, size = _start(draw), View(), draw.choice(SIZES)
    for _ in range(steps):
        yield frame, view, size
        kind = draw.randrange(20)
        if kind < 11:
            frame = _other_frame(draw, frame, draw.choice(_pool()))
        elif kind < 16:
            name = draw.choice(list(VIEWS))
            view = replace(view, **{name: draw.choice(VIEWS[name])})
        elif kind == 16:
            view = replace(view, gpu=draw.choice((None, *(gpu.static.uuid for gpu in frame.snapshot.gpus))))
        elif kind == 17 and frame.snapshot.processes:
            some = draw.choices(frame.snapshot.processes, k=2)
            view = replace(view, process=key_of(some[0]), tagged=frozenset(draw.choice(((), map(key_of, some)))))
        elif kind == 18:
            size = (size[0] + draw.choice((-1, 0, 1)), size[1] + draw.choice((-9, -1, 1, 9)))
        else:
            size = draw.choice(SIZES)


def _compare(seed: int, steps: int) -> None:
    draw, painter = random.Random(seed), Painter()
    for step, (frame, view, size) in enumerate(_walk(draw, steps)):
        kept, anew = painter.paint(frame, view, *size), Painter().paint(frame, view, *size)
        assert kept.rows == anew.rows, f"step {step} of walk {seed}"
        assert kept.targets == anew.targets, f"step {step} of walk {seed}"


@pytest.mark.slow
def test_a_painter_shows_of_every_step_what_a_new_one_shows() -> None:
    for seed in range(20):
        _compare(seed, 60)
