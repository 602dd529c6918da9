"""Heights of the lines of panes, and where a list of GPUs takes their place."""

from __future__ import annotations

import pytest

from gputop.paint.screen_division import pane_heights


@pytest.mark.parametrize(
    ("gpus", "width", "free", "heights"),
    [
        (1, 160, 40, [24]),
        (2, 120, 40, [17, 17]),
        (8, 200, 48, [10, 10, 10, 10]),
        (8, 200, 20, [3, 3, 3, 3]),
        (8, 200, 15, []),
        (16, 200, 50, [6, 6, 5, 5, 5, 5, 5, 5]),
        (8, 160, 40, [9, *[3] * 7]),
        (8, 120, 30, [12, *[1] * 7]),
        (4, 160, 12, [3, 1, 1, 1]),
        (8, 80, 40, []),
    ],
)
def test_panes_share_the_rows_and_a_list_comes_where_not_even_the_least_fits(
    gpus: int, width: int, free: int, heights: list[int]
) -> None:
    assert pane_heights(gpus, 0, width, free) == heights
