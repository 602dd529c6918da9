"""Pausing changes nothing but time: at every size GPUs and host stay where they are."""

from __future__ import annotations

from functools import lru_cache

import pytest
from msgspec.structs import replace

from gputop.diagnosis.types import VerdictChange
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.paint.hint_row import hint_of
from gputop.paint.keys import KEYS
from gputop.paint.main_screen import main_screen
from gputop.paint.view import Replay, View
from gputop.sources.simulation.simulated import snapshot_at
from tests.support.frames import MOMENT

SIZES = ((40, 10), (60, 15), (80, 24), (100, 30), (120, 40), (160, 48), (200, 60), (300, 100))
LIVE = View(hint=hint_of(KEYS))
CHANGES = tuple(
    VerdictChange(MOMENT, gpu, "starved_cpu", None, "yellow", "starved") for gpu in range(8)
)
PAUSED = replace(
    LIVE, replay=Replay(MOMENT - 60, MOMENT + 60, MOMENT + 60, False, 1.0, CHANGES, own_past=True)
)


@lru_cache(maxsize=4)
def node(gpus: int) -> Frame:
    monitor = Monitor()
    for second in range(60):
        frame = monitor.feed(snapshot_at(MOMENT + second, started=MOMENT, gpus=gpus))
    return frame


def rows(frame: Frame, view: View, size: tuple[int, int]) -> list[str]:
    return plain_text(main_screen(frame, view, *size).rows).splitlines()


@pytest.mark.parametrize("gpus", [1, 2, 8])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_pausing_leaves_every_row_above_the_processes_where_it_is(
    gpus: int, size: tuple[int, int]
) -> None:
    live, paused = rows(node(gpus), LIVE, size), rows(node(gpus), PAUSED, size)
    assert len(live) == len(paused) == size[1]
    # The first row says PAUSED; a screen without processes gives its last rows to the time line, full ones its last.
    filled = max(i for i, row in enumerate(live[: size[1] - 1]) if row) + 1
    until = next((i for i, row in enumerate(live) if "processes" in row), min(filled, size[1] - 1))
    assert paused[1:until] == live[1:until]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_past_always_has_its_state_on_screen(size: tuple[int, int]) -> None:
    assert any("this run's past" in row for row in rows(node(8), PAUSED, size))


@pytest.mark.parametrize("gpus", [1, 2, 8])
@pytest.mark.parametrize("size", [size for size in SIZES if size[1] >= 24], ids=str)
def test_a_pause_keeps_five_processes_where_the_live_screen_has_them(
    gpus: int, size: tuple[int, int]
) -> None:
    def processes(view: View) -> int:
        painted = main_screen(node(gpus), view, *size)
        return sum(target is not None and target.kind == "process" for target in painted.targets)

    live = replace(LIVE, tree="all")
    assert processes(replace(PAUSED, tree="all")) >= min(5, processes(live))


def test_a_past_that_is_not_judged_to_its_end_yet_says_how_far() -> None:
    assert PAUSED.replay is not None
    view = replace(PAUSED, replay=replace(PAUSED.replay, judged_pct=42.0))
    assert any("judging 42 %" in row for row in rows(node(8), view, (120, 40)))


def test_what_is_not_judged_yet_has_no_colour_in_the_strips() -> None:
    assert PAUSED.replay is not None
    whole, half = (
        main_screen(
            node(8), replace(PAUSED, replay=replace(PAUSED.replay, judged_pct=pct)), 160, 48
        ).rows
        for pct in (None, 60.0)
    )
    lengths = [
        max(sum(text.count("▆") for text, style in row if style == "level.yellow") for row in rows)
        for rows in (whole, half)
    ]
    assert lengths[1] < 0.4 * lengths[0]
