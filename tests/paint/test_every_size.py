"""The main screen at any size, of any number of GPUs: exactly as large as asked, drawn without exception."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gputop.paint.cells import cells
from gputop.paint.hint_row import hint_of
from gputop.paint.keys import KEYS
from gputop.paint.main_screen import main_screen
from gputop.paint.view import Replay, View
from tests.paint.test_main_screen import _with_gpus
from tests.support.examples import looks
from tests.support.frames import MOMENT, demo_frame

LIVE = View(hint=hint_of(KEYS))
VIEWS = (
    LIVE,
    replace(LIVE, layout="list", tree="all"),
    replace(LIVE, replay=Replay(MOMENT - 60, MOMENT, MOMENT, False, 1.0, own_past=True)),
)


@looks(40)
@given(st.integers(25, 300), st.integers(6, 100), st.integers(0, 20), st.sampled_from(VIEWS))
def test_any_size_is_filled_exactly(width: int, height: int, gpus: int, view: View) -> None:
    painted = main_screen(_with_gpus(demo_frame(), gpus), view, width, height)
    assert len(painted.rows) == len(painted.targets) == height
    assert {sum(cells(text) for text, _ in row) for row in painted.rows} == {width}
