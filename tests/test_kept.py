"""What a painter takes over from the frame before: parts that show the same, and never one that shows anything else."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.fabric_window import FabricSignals
from gputop.model.history import History
from gputop.model.snapshot import Event, GpuSample, Snapshot
from gputop.model.steps import StepPace, StepRow
from gputop.monitor import Frame, Monitor
from gputop.paint import main_screen, panes, process_table
from gputop.paint.glyphs import ASCII
from gputop.paint.main_screen import Painter
from gputop.paint.process_filter import parse
from gputop.paint.view import View
from gputop.sources.simulation.simulated import snapshot_at
from tests.support.frames import MOMENT
from tests.support.random_frames import T0, random_snapshot

SIZES = ((160, 50), (80, 24), (200, 80), (100, 18))
VIEWS = (View(span_s=60.0), View(layout="list"), View(focus="gpus", gpu="GPU-1"), View(sort="pid", tree="all"),
         View(filter=parse("gpu:0")), View(span_s=300.0, density="compact"))  # fmt: skip


def _same(painter: Painter, frame: Frame, view: View, size: tuple[int, int]) -> None:
    kept, anew = painter.paint(frame, view, *size), Painter().paint(frame, view, *size)
    assert kept.rows == anew.rows
    assert kept.targets == anew.targets


def _one_changed(draw: random.Random, struct: Struct, other: Struct) -> Any:
    name = draw.choice([name for name in type(struct).__struct_fields__ if name not in ("static", "pid", "index")])
    return replace(struct, **{name: getattr(other, name)})


def _next(draw: random.Random, now: Snapshot, other: Snapshot) -> Snapshot:
    """A second later, with one value of one thing changed, or nothing at all."""
    at, p = draw.randrange(len(now.gpus)), draw.randrange(len(now.processes))
    gpus, processes = list(now.gpus), list(now.processes)
    changes: dict[str, Any] = {"t": now.t + 1.0, "events": ()}
    kind = draw.randrange(6)
    if kind == 0:
        gpus[at] = _one_changed(draw, gpus[at], other.gpus[at])
    elif kind == 1:
        processes[p] = _one_changed(draw, processes[p], other.processes[p % len(other.processes)])
    elif kind == 2:
        changes["host"] = _one_changed(draw, now.host, other.host)
    elif kind == 3:
        changes["events"] = (Event(now.t + 1.0, "mark", "here", draw.choice((None, 0))),)
    elif kind == 4:
        changes["steps"] = (
            StepRow(now.processes[0].pid, 0, 0, "train", 10, draw.choice((1.0, 2.0)), 0.1, 0.2, 0.1, 0.2),
        )
    return replace(now, gpus=tuple(gpus), processes=tuple(processes), **changes)


@pytest.mark.parametrize("seed", range(2))
def test_a_painter_shows_of_every_frame_what_a_new_one_shows(seed: int) -> None:
    draw, monitor, painter = random.Random(seed), Monitor(), Painter()
    now = random_snapshot(seed, T0, gpus=2 * seed + 1, processes=6)
    view, size = VIEWS[0], SIZES[0]
    for second in range(30):
        frame = monitor.feed(now)
        if draw.random() < 0.3:
            view, size = draw.choice(VIEWS), draw.choice(SIZES)
        _same(painter, frame, view, size)
        now = _next(draw, now, random_snapshot(1000 * seed + second, T0, gpus=2 * seed + 1, processes=6))


def _each_changed(one: Struct, other: Struct) -> Iterator[Any]:
    """The first with each of its values in turn that of the second."""
    for name in type(one).__struct_fields__:
        if getattr(one, name) != getattr(other, name):
            yield replace(one, **{name: getattr(other, name)})


def _other_views(frame: Frame, view: View) -> Iterator[View]:
    """A view with one thing changed in each."""
    chosen = frozenset({process_table.key_of(frame.snapshot.processes[0])})
    for change in (
        {"gpu": frame.snapshot.gpus[-1].static.uuid}, {"focus": "gpus"}, {"focus": "counts"}, {"utc_offset_s": 3600.0},
        {"span_s": 300.0}, {"command_at": 2}, {"tagged": chosen}, {"glyphs": ASCII}, {"filter": parse("gpu:0")},
        {"sort": "pid"}, {"inverted": True}, {"density": "compact"}, {"layout": "list"}, {"tree": "all"},
        {"columns": ("gpu", "pid", "command")}, {"filter": parse("pid>0")},
    ):  # fmt: skip
        yield replace(view, **change)


def _variants(frame: Frame, other: Frame, view: View) -> Iterator[tuple[Frame, View]]:
    """A frame and a view with one thing changed in each."""
    now, held = frame.snapshot, frame.snapshot.processes[0]
    for d in _each_changed(frame.diagnoses[0], other.diagnoses[0]):
        yield replace(frame, diagnoses=(d, *frame.diagnoses[1:])), view
    snapshots: list[Snapshot] = [
        *(replace(now, host=host) for host in _each_changed(now.host, other.snapshot.host)),
        *(replace(now, gpus=(gpu, *now.gpus[1:])) for gpu in _each_changed(now.gpus[0], other.snapshot.gpus[0])),
        *(replace(now, processes=(p, *now.processes[1:])) for p in _each_changed(held, other.snapshot.processes[0])),
        replace(now, t=now.t + 7.0), replace(now, processes=()),
    ]  # fmt: skip
    yield from ((replace(frame, snapshot=snapshot), view) for snapshot in snapshots)
    fabric = FabricSignals(1e9, 1e9, 5e10, 9, 9, 0, 0, 30.0, 1, 0)
    yield replace(frame, fabric=fabric), view
    yield replace(frame, steps=(StepPace(held.pid, 0, 0, "train", 0.4, None, 0.5, 10),)), view
    yield from ((frame, changed) for changed in _other_views(frame, view))


def _after_a_while(seed: int) -> Frame:
    """A frame of three GPUs, whose first has a history and a process."""
    monitor, snapshot = Monitor(), random_snapshot(seed, gpus=3)
    first = replace(snapshot.gpus[0], lost_reason=None, power_w=300.0)
    held = replace(snapshot.processes[0], role="gpu", gpu=0, gpu_mem_bytes=seed * 2.0**30)
    snapshot = replace(snapshot, processes=(held, *snapshot.processes[1:]))
    for second in range(10):
        busier = replace(first, util_pct=10.0 * second)
        frame = monitor.feed(replace(snapshot, t=T0 + second, gpus=(busier, *snapshot.gpus[1:])))
    return frame


def _of_gpus(frame: Frame, count: int) -> Frame:
    """A frame with its first GPUs alone."""
    return replace(
        frame, snapshot=replace(frame.snapshot, gpus=frame.snapshot.gpus[:count]), diagnoses=frame.diagnoses[:count]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gpus", "base", "size"),
    [(3, View(), (160, 50)), (1, View(), (180, 60)), (3, View(layout="list"), (100, 18)), (3, View(), (160, 90))],
)
def test_whatever_changes_alone_is_painted(gpus: int, base: View, size: tuple[int, int]) -> None:
    one, other, painter = _of_gpus(_after_a_while(3), gpus), _after_a_while(4), Painter()
    for frame, view in _variants(one, other, base):
        painter.paint(one, base, *size)
        _same(painter, frame, view, size)


def _explained() -> Frame:
    """A simulated frame whose first two GPUs starve, with what the host did meanwhile."""
    monitor = Monitor()
    for second in range(45):
        node = snapshot_at(MOMENT + second, started=MOMENT - 600.0)
        gpus = (node.gpus[3], node.gpus[6], node.gpus[0])
        names = {gpu.static.index for gpu in gpus}
        frame = monitor.feed(replace(node, gpus=gpus, processes=tuple(p for p in node.processes if p.gpu in names)))
    assert frame.diagnoses[0].attribution is not None
    assert frame.diagnoses[1].attribution is not None
    return frame


def _hidden_variants(frame: Frame, view: View) -> Iterator[tuple[Frame, View, Frame, View]]:
    """A frame and a view, and the same with one thing changed that shows only because of what else is there."""
    now, gpus = frame.snapshot, frame.snapshot.gpus
    # Orders, trees and commands differ only where there are enough processes, each with a command.
    yield from ((frame, view, frame, changed) for changed in _other_views(frame, view))
    # What the host did is told of a GPU by its label, and of the one that is selected.
    for gpu in gpus[:2]:
        yield frame, view, frame, replace(view, gpu=gpu.static.uuid)
    other = replace(gpus[0], static=replace(gpus[0].static, index=7))
    yield frame, view, replace(frame, snapshot=replace(now, gpus=(other, *gpus[1:]))), view
    # All titles are as wide as the widest name.
    other = replace(gpus[-1], static=replace(gpus[-1].static, name="NVIDIA GeForce RTX 4090"))
    names = replace(
        now, gpus=(*(replace(gpu, static=replace(gpu.static, name="NVIDIA T4")) for gpu in gpus[:-1]), gpus[-1])
    )
    yield (
        replace(frame, snapshot=names),
        view,
        replace(frame, snapshot=replace(names, gpus=(*names.gpus[:-1], other))),
        view,
    )
    # The number of a process is told where it has no name.
    held = replace(now.processes[0], static=replace(now.processes[0].static, name=None), gpu_mem_bytes=2.0**36)
    nameless = replace(now, processes=(held, *now.processes[1:]))
    renumbered = replace(now, processes=(replace(held, pid=held.pid + 1), *now.processes[1:]))
    yield replace(frame, snapshot=nameless), view, replace(frame, snapshot=renumbered), view
    # All rows of a list are as wide as the widest label.
    other = replace(gpus[-1], static=replace(gpus[-1].static, index=113))
    yield frame, view, replace(frame, snapshot=replace(now, gpus=(*gpus[:-1], other))), view
    # A filter asks for the words of a verdict, of which no row of the table shows any.
    asking, renamed = replace(view, filter=parse("verdict:renamed")), replace(frame.diagnoses[0], title="renamed")
    yield frame, asking, replace(frame, diagnoses=(renamed, *frame.diagnoses[1:])), asking
    # Lanes tell the busiest feeder beside the mean, and the mean of as many seconds as the diagnosis knows.
    for change in _each_changed(frame.diagnoses[0], frame.diagnoses[-1]):
        yield frame, view, replace(frame, diagnoses=(change, *frame.diagnoses[1:])), view
    briefly = replace(frame.diagnoses[0], window_s=3.0)
    yield frame, view, replace(frame, diagnoses=(briefly, *frame.diagnoses[1:])), view
    # Without a past every span has the same columns.
    empty = replace(frame, history=History())
    yield empty, view, empty, replace(view, span_s=300.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gpus", "size"), [(3, (160, 50)), (3, (300, 100)), (2, (160, 50)), (1, (180, 60)), (3, (100, 18)), (3, (80, 24))]
)
def test_what_shows_because_of_something_else_is_painted_when_it_changes(gpus: int, size: tuple[int, int]) -> None:
    painter, explained = Painter(), _of_gpus(_explained(), gpus)
    for before, base, frame, view in _hidden_variants(explained, View()):
        painter.paint(before, base, *size)
        _same(painter, frame, view, size)
    # Many widths give the same number of columns to a chart, and many heights the same to a pane.
    for more in range(5):
        _same(painter, explained, View(), (size[0] + more, size[1]))
    for more in (0, 1, 2, 40, 7, 20, -4):
        _same(painter, explained, View(), (size[0], size[1] + more))


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("steady", ["util_pct", "sm_active_pct", None])
def test_what_the_past_shows_moves_on_while_nothing_changes_now(steady: str | None, size: tuple[int, int]) -> None:
    """Charts move, also beside one that is the same all over, and what a lost GPU did becomes too old to be told."""
    for gpus, is_lost in ((3, False), (1, False), (3, True)):
        monitor, painter, still = Monitor(), Painter(), random_snapshot(3, gpus=gpus)
        still = replace(still, events=())
        first = replace(still.gpus[0], lost_reason=None, power_w=300.0, temp_c=50.0)
        for second in range(80):
            values = {name: float(second) for name in ("util_pct", "sm_active_pct") if name != steady}
            monitor.feed(replace(still, t=T0 + second, gpus=(replace(first, **values), *still.gpus[1:])))
        now = GpuSample(first.static, lost_reason="fallen off the bus", lost_since=T0 + 80) if is_lost else first
        # The diagnosis looks back for 30 s: only the charts move once that is over.
        for later in (*range(80, 120), *range(180, 900, 60)):
            frame = monitor.feed(replace(still, t=T0 + later, gpus=(now, *still.gpus[1:])))
            if not 86 <= later < 112:
                _same(painter, frame, VIEWS[0], size)


def test_a_frame_that_shows_the_same_paints_no_pane_and_no_process_again(monkeypatch: pytest.MonkeyPatch) -> None:
    still, monitor, painter = random_snapshot(5, T0, gpus=4), Monitor(), Painter()
    still = replace(still, gpus=tuple(replace(gpu, lost_reason=None) for gpu in still.gpus), events=())
    painted: list[str] = []
    for module, name in (
        (panes, "body"),
        (process_table, "row"),
        (process_table, "shown_rows"),
        (main_screen, "_host"),
    ):
        real = getattr(module, name)

        def counting(*given: Any, _real: Any = real, _name: str = name, **more: Any) -> Any:
            painted.append(_name)
            return _real(*given, **more)

        monkeypatch.setattr(module, name, counting)
    for second in range(140):
        before = len(painted)
        painter.paint(monitor.feed(replace(still, t=T0 + second)), VIEWS[0], 160, 50)
    assert before and painted[before:] == []
