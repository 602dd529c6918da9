"""The process stands beside its verdict, and while nothing happens the screen stands still."""

from __future__ import annotations

import re
from functools import cache

import pytest

from gputop.diagnosis.verdict.gpu_owners import program
from gputop.diagnosis.verdict.summary import summarize
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.paint.hint_row import hint_of
from gputop.paint.keys import KEYS
from gputop.paint.line import Row
from gputop.paint.main_screen import Painter, main_screen
from gputop.paint.panes import STEPS, ShownGpu, pane_axis
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
    "scenario",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SCENARIOS],
)
def test_the_process_of_the_worst_gpu_is_on_the_first_screen_and_in_its_title(
    scenario: str,
) -> None:
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
    assert sum(bool(row.branch) for row in rows) == 8, (
        "loaders are opened for the selected GPU only"
    )


def _cells(row: Row) -> list[tuple[str, str]]:
    return [(char, style) for text, style in row for char in text]


@cache
def _live() -> list[Frame]:
    """Forty seconds of the node; before them as much as its charts show."""
    monitor = Monitor()
    for snapshot in SimulatedSource(None, clock=lambda: MOMENT).past(150):
        monitor.feed(snapshot)
    return [monitor.feed(snapshot_at(MOMENT + second, started=MOMENT)) for second in range(40)]


def test_while_nothing_happens_few_cells_change() -> None:
    painter, changed = Painter(), list[int]()
    before: list[Row] = []
    for frame in _live():
        rows = painter.paint(frame, VIEW, 160, 48).rows
        changed.append(
            sum(
                was != now for old, new in zip(before, rows, strict=False)
                for was, now in zip(_cells(old), _cells(new), strict=True)
            )
        )  # fmt: skip
        before = rows
    # A second in which a column begins adds one to each chart; a step of the charts moves all of them.
    assert sorted(changed)[13] <= 12 and sum(changed) / len(changed) <= 45


@pytest.mark.parametrize("columns", [32, 61, 82, 134])
def test_a_column_fills_in_place_and_the_chart_moves_on_in_steps(columns: int) -> None:
    kept: dict[int, float | None] = {}
    begins = set[float]()
    for frame in _live()[:30]:
        g = ShownGpu(frame, VIEW, 3)
        axis = pane_axis(g, columns)
        begins.add(axis.begin)
        first = axis.last - columns + 1
        # Every column whose time is over stays as it was, wherever it is now.
        now = {
            first + i: v
            for i, v in enumerate(g.columns("util_pct", axis)[: columns - (axis.ahead or 0) - 1])
        }
        assert all(kept[i] == value for i, value in now.items() if i in kept)
        kept |= now
    assert len(begins) <= 30 / 120 * STEPS + 2
