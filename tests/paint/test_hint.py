"""The last row says what to look at first, and the few keys that lead to all the others."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gputop.commands.screen import first_view
from gputop.config import Settings
from gputop.diagnosis.summary import LOST_TITLE
from gputop.paint.glyphs import COLOUR, Terminal
from gputop.paint.header import hint_line, hint_of, last_hint
from gputop.paint.keys import KEYS
from gputop.paint.line import cells
from gputop.paint.main_screen import main_screen
from gputop.paint.view import View
from gputop.paint.words import counted_groups
from gputop.tui.node_app import GputopApp
from tests.support.fake_app import playback_on
from tests.support.frames import demo_frame
from tests.support.steady_pilot import shown

TERMINAL = Terminal("truecolor", "dark", COLOUR)


def test_the_hint_can_be_turned_off() -> None:
    assert ("?", "help", "help") in first_view(Settings(), TERMINAL).hint
    assert first_view(Settings(hint=False), TERMINAL).hint == ()


def test_the_hint_names_the_users_own_keys() -> None:
    shown = {words: key for key, words, _ in first_view(Settings(keys={"quit": "x", "palette": ""}), TERMINAL).hint}
    assert shown["quit"] == "x"
    assert "every command" not in shown


@pytest.mark.parametrize("width", [20, 40, 80, 160])
def test_the_line_is_exactly_as_wide_as_the_screen_and_cuts_no_key(width: int) -> None:
    row = hint_line(hint_of(KEYS), width).row(width)
    text = "".join(part for part, _ in row)
    assert cells(text) == width
    assert width < 40 or "? help" in text
    assert set(text.strip().split("   ")) <= {f"{key} {words}" for key, words, _ in hint_of(KEYS)} | {""}


def test_a_low_screen_keeps_its_last_row() -> None:
    view = View(hint=hint_of(KEYS))
    for height, there in ((10, False), (24, True)):
        rows = main_screen(demo_frame(), view, 80, height).rows
        assert len(rows) == height
        assert ("look first: GPU 0, busy, not working for 11 min" in "".join(text for text, _ in rows[-1])) is there


async def test_no_key_takes_the_line_away_and_a_click_on_it_is_its_key() -> None:
    app = GputopApp(View(hint=hint_of(KEYS)), "dark", playback_on(demo_frame()))
    async with shown(app, (120, 40)) as pilot:
        await pilot.pause()
        await pilot.press("down", "up")
        await pilot.pause()
        assert app.view.hint
        await pilot.click(
            offset=("".join(text for text, _ in hint_line(last_hint(demo_frame(), app.view), 120).spans).index("?"), 39)
        )
        await pilot.pause()
        assert type(app.screen).__name__ == "HelpScreen"


def test_a_lost_gpu_that_mig_has_split_is_one_lost_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = demo_frame()
    gpus = [
        replace(gpu, lost_reason="gone", static=replace(gpu.static, mig_parent="GPU-a", mig_instance=str(i)))
        for i, gpu in enumerate(frame.snapshot.gpus)
    ]
    with monkeypatch.context() as patched:
        patched.setattr("gputop.paint.words.group_of", lambda _: LOST_TITLE)
        assert counted_groups(replace(frame.snapshot, gpus=tuple(gpus)), frame.diagnoses) == {LOST_TITLE: 1}
