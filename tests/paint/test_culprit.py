"""The process stands beside its verdict, and while nothing happens the screen stands still."""

from __future__ import annotations

import re
from math import ceil

import pytest

from gputop.diagnosis.summary import program, summarize
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.paint.header import hint_of
from gputop.paint.keys import KEYS
from gputop.paint.line import Row
from gputop.paint.main_screen import Painter, main_screen
from gputop.paint.panes import ShownGpu, chart_width
from gputop.paint.process_table import shown_rows
from gputop.paint.view import View, selected_gpu
from gputop.sources.simulation.scenarios import SCENARIOS
from gputop.sources.simulation.simulated import SimulatedSource, snapshot_at
from tests.support.frames import MOMENT, demo_frame

VIEW = View(hint=hint_of(KEYS))
SIZES = ((80, 24), (120, 40), (160, 48), (200, 60))
QUICK = ("node", "straggler", "dataloader_cpu", "shared_gpu", "mig", "lost_gpu", "container")


def _culprit(frame: Frame) -> tuple[int, str] | None:
    """(pid, name) of the process that holds the GPU to look at first, where that is in trouble and it can be read."""
    told = summarize(frame.diagnoses[selected_gpu(frame, VIEW)])
    if told.role not in ("not_working", "waiting") or told.owner is None or not told.owner.command:
        return None
    return told.owner.pid, program(told.owner.command)


@pytest.mark.parametrize(
    "scenario", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SCENARIOS]
)
def test_the_process_of_the_worst_gpu_is_on_the_first_screen_and_in_its_title(scenario: str) -> None:
    frame = demo_frame(scenario)
    culprit = _culprit(frame)
    for width, height in SIZES:
        text = plain_text(main_screen(frame, VIEW, width, height).rows)
        assert ("look first: GPU" in text) is (frame.look_first is not None)
        if culprit is not None:
            pid, name = culprit
            assert re.search(rf"^ *\d\S* +{pid} ", text, re.MULTILINE), (width, height)
            assert f" · {name[:12]}" in text, (width, height)


def test_the_table_begins_with_the_selected_gpu_then_those_in_trouble_each_by_memory() -> None:
    frame = demo_frame()
    assert [shown.process.gpu for shown in shown_rows(frame, VIEW)] == [0, 4, 6, 3, 7, 5, 1, 2]
    chosen = View(gpu=frame.snapshot.gpus[3].static.uuid)
    rows = shown_rows(frame, chosen)
    assert [row.process.gpu for row in rows if not row.branch] == [3, 4, 0, 6, 7, 5, 1, 2]
    assert sum(bool(row.branch) for row in rows) == 8, "loaders are opened for the selected GPU only"


def _cells(row: Row) -> list[tuple[str, str]]:
    return [(char, style) for text, style in row for char in text]


def test_in_a_quiet_second_almost_nothing_changes() -> None:
    monitor, painter = Monitor(), Painter()
    for snapshot in SimulatedSource(None, clock=lambda: MOMENT).past(150):
        monitor.feed(snapshot)
    frame = monitor.feed(snapshot_at(MOMENT, started=MOMENT))
    before = painter.paint(frame, VIEW, 160, 48).rows
    quiet, verdicts = list[int](), [d.verdict for d in frame.diagnoses]
    for second in range(1, 41):
        frame = monitor.feed(snapshot_at(MOMENT + second, started=MOMENT))
        rows = painter.paint(frame, VIEW, 160, 48).rows
        changed = sum(
            was != now for old, new in zip(before, rows, strict=True)
            for was, now in zip(_cells(old), _cells(new), strict=True)
        )  # fmt: skip
        before = rows
        assert [d.verdict for d in frame.diagnoses] == verdicts
        t, column_s = frame.snapshot.t, VIEW.span_s / chart_width(160)
        if ceil(t / column_s) == ceil((t - 1.0) / column_s):
            quiet.append(changed)
    assert len(quiet) > 15 and sum(quiet) / len(quiet) <= 12


@pytest.mark.parametrize("columns", [32, 61, 82, 134])
def test_a_column_fills_in_place_and_the_chart_shifts_only_when_it_is_full(columns: int) -> None:
    monitor = Monitor()
    for snapshot in SimulatedSource(None, clock=lambda: MOMENT).past(150):
        monitor.feed(snapshot)
    frame = monitor.feed(snapshot_at(MOMENT, started=MOMENT))
    column_s = VIEW.span_s / columns
    before, t = ShownGpu(frame, VIEW, 3).columns("util_pct", columns), frame.snapshot.t
    shifts = 0
    for second in range(1, 21):
        frame = monitor.feed(snapshot_at(MOMENT + second, started=MOMENT))
        after = ShownGpu(frame, VIEW, 3).columns("util_pct", columns)
        by = ceil((MOMENT + second) / column_s) - ceil(t / column_s)
        # Every column whose time was over stays as it was, only further left.
        assert after[: columns - by - 1] == before[by : columns - 1]
        before, t, shifts = after, MOMENT + second, shifts + by
    assert abs(shifts - 20 / column_s) <= 1
