"""gputop.paint.replay_bar: a column of the time line shows the most urgent level of its time."""

from __future__ import annotations

import pytest

from gputop.diagnosis.types import VerdictChange
from gputop.paint.replay_bar import _strip
from gputop.paint.view import Replay, View

COLUMNS = 10


def change(t: float, level: str, gpu: int = 0) -> VerdictChange:
    return VerdictChange(t, gpu, "working", None, level, level)  # type: ignore[arg-type]


def levels(changes: tuple[VerdictChange, ...]) -> list[str]:
    """Level of each column of a bar of 100 s in ten columns."""
    replay = Replay(0.0, 100.0, 50.0, playing=False, speed=1.0, changes=changes)
    return [
        (style or "level.").removeprefix("level.")
        for text, style in _strip(replay, 0, COLUMNS, View().glyphs)
        for _ in text
    ]


@pytest.mark.parametrize(
    ("inside", "shown"),
    [(("green", "red", "green"), "red"), (("red", "yellow"), "red"), (("info", "green"), "info")],
)
def test_the_most_urgent_level_of_a_column_is_shown(inside: tuple[str, ...], shown: str) -> None:
    changes = tuple(change(21.0 + 2 * at, level) for at, level in enumerate(inside))
    assert levels((change(0.0, "grey"), *changes))[2] == shown


def test_a_level_lasts_until_the_next_change_and_other_gpus_have_their_own() -> None:
    bar = levels((change(0.0, "green"), change(45.0, "red"), change(55.0, "yellow", gpu=1)))
    assert bar == ["green"] * 4 + ["red"] * 6
