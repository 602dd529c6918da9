"""Heights of the lines of panes, and where a list of GPUs takes their place."""

from __future__ import annotations

import pytest

from gputop.paint.screen_division import forced_panes, pane_heights


@pytest.mark.parametrize(
    ("gpus", "width", "free", "heights"),
    [
        (1, 160, 40, [24]),
        (2, 120, 40, [17, 17]),
        (8, 200, 48, [13, 9, 9, 9]),
        (8, 120, 31, [6, *[3] * 7]),
        (4, 120, 21, [6, 3, 3, 3]),
        (8, 200, 20, [3, 3, 3, 3]),
        (8, 200, 15, []),
        (16, 200, 50, [6, 6, 5, 5, 5, 5, 5, 5]),
        (8, 160, 40, [9, *[3] * 7]),
        (8, 120, 30, [6, *[3] * 7]),
        (8, 120, 29, [12, *[1] * 7]),
        (4, 160, 12, [3, 1, 1, 1]),
        (8, 80, 40, []),
    ],
)
def test_panes_share_the_rows_and_a_list_comes_where_not_even_the_least_fits(
    gpus: int, width: int, free: int, heights: list[int]
) -> None:
    assert pane_heights(gpus, 0, width, free) == heights


def test_forced_panes_scroll_to_the_selected_gpu() -> None:
    assert forced_panes(8, 0, 60) == (0, [6, *[3] * 7]), "all fit"
    assert forced_panes(8, 0, 24) == (0, [6, 3, 3, 3, 3])
    assert forced_panes(8, 5, 24) == (3, [3, 3, 6, 3, 3])
    assert forced_panes(8, 7, 24) == (3, [3, 3, 3, 3, 6])
    assert forced_panes(8, 7, 9) == (7, [3])
