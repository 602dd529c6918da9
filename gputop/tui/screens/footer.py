"""The last row of a screen names its keys; a click on one of them is that key."""

from __future__ import annotations

from textual import events
from textual.app import App

from gputop.paint.hint import key_named_at
from gputop.paint.line import Row


def press_named(app: App[object], rows: list[Row], event: events.Click) -> bool:
    """Press the key on which somebody clicked in the last row; whether the click was in it."""
    if event.screen_y != len(rows) - 1:
        return False
    key = key_named_at(rows[-1], event.screen_x)
    if key is not None:
        app.simulate_key(key)
    return True
