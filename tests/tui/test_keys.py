"""The table of keys and the handlers fit together, and the screen is no pile of classes."""

from __future__ import annotations

import pytest

from gputop.config import Settings
from gputop.features.fleet.show.fleet_app import HANDLERS
from gputop.features.fleet.show.fleet_view import FLEET_KEYS
from gputop.paint.glyphs import ASCII, COLOUR, keys_shown
from gputop.paint.help_rows import key_rows
from gputop.paint.keys import KEYS, REPLAY_KEYS
from gputop.paint.view import View
from gputop.paint.view_changes import VIEW_KEYS, after_key
from gputop.tui.keys.time_keys import PLAYER_KEYS
from gputop.tui.node_app import GputopApp
from tests.support.fake_app import app_on, later
from tests.support.frames import demo_frame
from tests.support.steady_pilot import shown


def test_every_key_has_one_handler_and_every_handler_a_key() -> None:
    pressed = [name.removeprefix("press_") for name in dir(GputopApp) if name.startswith("press_")]
    handled = [*pressed, *PLAYER_KEYS, *VIEW_KEYS]
    assert sorted(handled) == sorted(key.id for key in (*KEYS, *REPLAY_KEYS))
    assert sorted(HANDLERS) == sorted(key.id for key in FLEET_KEYS)


@pytest.mark.parametrize(
    ("user_keys", "shows_past", "key", "command"),
    [
        ({}, False, "n", "match_next"), ({}, True, "n", "next_change"), ({}, True, "f3", "match_next"),
        ({"match_next": "x"}, True, "n", "next_change"), ({"match_next": "x"}, False, "n", None),
        ({"match_next": "x", "next_change": "x"}, True, "x", "next_change"), ({"theme": ""}, False, "T", None),
    ],
)  # fmt: skip
async def test_a_key_means_one_command_also_where_the_user_has_moved_another(
    user_keys: dict[str, str], shows_past: bool, key: str, command: str | None
) -> None:
    app, _ = app_on(frame := demo_frame(), settings=Settings(keys=user_keys))
    async with shown(app, (120, 40)) as pilot:
        if shows_past:
            app.deliver(later(frame))
            await pilot.pause()
            await pilot.press("p")
        pressed: list[str] = []
        app.press = pressed.append  # type: ignore[method-assign]
        await pilot.press(key)
        assert pressed == [command] * (command is not None)


@pytest.mark.parametrize("key_id", VIEW_KEYS)
def test_every_key_of_the_view_does_something_to_some_view(key_id: str) -> None:
    frame = demo_frame()
    rows = app_on()[0]._node_view.process_rows(frame, View())
    views = [View(process=None), View(gpu=frame.snapshot.gpus[3].static.uuid, scroll=4)]
    views += [View(command_at=1, sort="pid"), View(layout="list")]
    views += [after_key(View(), move, frame, 10, rows) for move in ("last", "down")]
    assert any(after_key(view, key_id, frame, 10, rows) != view for view in views)


def test_an_ascii_terminal_is_told_the_cursor_keys_by_name() -> None:
    rows = ["".join(text for text, _ in row) for row in key_rows((*KEYS, *REPLAY_KEYS), 100, ASCII)]
    heads = {row[:18].strip() for row in rows}
    assert {"up  k", "down  j", "left  shift+left"} <= heads
    assert not any(arrow in row for row in rows for arrow in "↑↓←→")
    assert keys_shown("↑ ↓", ASCII) == "up down" and keys_shown("↑ ↓", COLOUR) == "↑ ↓"
