"""The last row says what to look at first, and the few keys that lead to all the others."""

from __future__ import annotations

import pytest

from gputop.command_line.screen import first_view
from gputop.config import Settings
from gputop.monitor import Monitor
from gputop.paint.cells import cells
from gputop.paint.glyphs import COLOUR
from gputop.paint.hint_row import hint_line, hint_of, look_first_words
from gputop.paint.keys import KEYS
from gputop.paint.terminal_kind import Terminal
from gputop.paint.words import count_words
from tests.support.scenes import gpu, snap, train

TERMINAL = Terminal("truecolor", "dark", COLOUR)


def test_the_hint_gives_the_age_of_the_error_and_not_of_the_work_before_it() -> None:
    monitor = Monitor()
    for tick in range(60):
        monitor.feed(snap(tick, gpu(), [train()]))
    for tick in range(60, 63):
        frame = monitor.feed(snap(tick, gpu(ecc_uncorrected=3), [train()]))
    assert look_first_words(frame) == "GPU 0, hardware error for 2 s"
    counts = count_words(frame.snapshot, frame.diagnoses, 80)
    assert counts == [("■ 1 hardware error", "level.red", "hardware error")]


def test_the_hint_can_be_turned_off() -> None:
    assert ("?", "help", "help") in first_view(Settings(), TERMINAL).hint
    assert first_view(Settings(hint=False), TERMINAL).hint == ()


def test_the_hint_names_the_users_own_keys() -> None:
    shown = {
        words: key
        for key, words, _ in first_view(Settings(keys={"quit": "x", "palette": ""}), TERMINAL).hint
    }
    assert shown["quit"] == "x"
    assert "every command" not in shown


@pytest.mark.parametrize("width", [20, 40, 80, 160])
def test_the_line_is_exactly_as_wide_as_the_screen_and_cuts_no_key(width: int) -> None:
    row = hint_line(hint_of(KEYS), width).row(width)
    text = "".join(part for part, _ in row)
    assert cells(text) == width
    assert width < 40 or "? help" in text
    assert set(text.strip().split("   ")) <= {
        f"{key} {words}" for key, words, _ in hint_of(KEYS)
    } | {""}
