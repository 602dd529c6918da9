"""The table of keys and the handlers fit together, and the screen is no pile of classes."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module
from typing import Any

import pytest

from gputop.features.fleet.fleet_app import FleetApp
from gputop.paint.glyphs import ASCII, COLOUR, keys_shown
from gputop.paint.help_rows import key_rows
from gputop.paint.keys import KEYS, REPLAY_KEYS, Key
from gputop.paint.view import View
from gputop.paint.view_changes import VIEW_KEYS, after_key
from gputop.tui import screens
from gputop.tui.keys import key_handlers, process_keys
from gputop.tui.keys.key_handlers import KeyTable, KeyTableError, check
from gputop.tui.node_app import GputopApp
from gputop.tui.painted_app import PaintedApp
from gputop.tui.screens.detail_screens import DetailsScreen
from gputop.tui.screens.scrolling import ListScreen, RowsScreen
from tests.support.fake_app import app_on
from tests.support.frames import demo_frame

ALL = (*KEYS, *REPLAY_KEYS)
HANDLED = tuple(key.id for key in ALL)
MOST_METHODS, MOST_SHARED = 22, 28
NEW = Key("teleport", "x", "nothing yet", "everywhere")


@pytest.mark.parametrize(
    ("keys", "handled", "named"),
    [
        ((*ALL, NEW), HANDLED, "without a handler: ['teleport']"),
        (ALL, (*HANDLED, "teleport"), "without a key: ['teleport']"),
        (ALL, (*HANDLED, "filter"), "twice: ['filter']"),
    ],
)
def test_a_key_or_a_handler_too_many_is_named_when_the_screen_is_made(
    keys: tuple[Key, ...], handled: tuple[str, ...], named: str
) -> None:
    check(ALL, HANDLED)
    with pytest.raises(KeyTableError) as caught:
        check(keys, handled)
    assert named in str(caught.value)


@pytest.mark.parametrize("key_id", VIEW_KEYS)
def test_every_key_of_the_view_does_something_to_some_view(key_id: str) -> None:
    frame = demo_frame()
    rows = app_on()[0]._node_view.process_rows(frame, View())
    views = [View(process=None), View(gpu=frame.snapshot.gpus[3].static.uuid, scroll=4)]
    views += [View(command_at=1, sort="pid"), View(layout="list"), View(focus="gpus")]
    views += [after_key(View(), move, frame, 10, rows) for move in ("last", "down")]
    assert any(after_key(view, key_id, frame, 10, rows) != view for view in views)


def test_a_key_that_the_view_does_not_know_is_an_error_and_not_silence() -> None:
    with pytest.raises(KeyError):
        after_key(View(), "teleport", demo_frame(), 10, [])


@pytest.mark.parametrize("group", [key_handlers, process_keys])
def test_the_handlers_are_plain_classes_that_are_handed_the_screen(group: Any) -> None:
    classes = [c for _, c in inspect.getmembers(group, inspect.isclass) if c.__module__ == group.__name__]
    assert {c.__bases__ for c in classes} - {(Exception,)} == {(object,)}
    app, _ = app_on()
    assert isinstance(app._keys, KeyTable) and {*app._keys._handlers} == {*HANDLED}


def test_each_app_is_one_class_of_few_methods_over_what_both_share() -> None:
    assert GputopApp.__bases__ == FleetApp.__bases__ == (PaintedApp,)
    for app, most in ((PaintedApp, MOST_SHARED), (GputopApp, MOST_METHODS), (FleetApp, MOST_METHODS)):
        methods = [n for n, value in vars(app).items() if inspect.isfunction(value) or isinstance(value, property)]
        assert len(methods) <= most, methods


def test_what_both_apps_do_is_said_once() -> None:
    shared = {"see", "say", "check_action", "action_act", "action_command_palette", "get_system_commands"}
    assert shared <= set(vars(PaintedApp))
    assert not shared & (set(vars(GputopApp)) | set(vars(FleetApp)))


def test_every_screen_that_opens_has_what_its_base_leaves_open() -> None:
    for module in pkgutil.iter_modules(screens.__path__, f"{screens.__name__}."):
        import_module(module.name)
    bases = (DetailsScreen, ListScreen, RowsScreen)
    opened = [c for base in bases for c in base.__subclasses__() if c not in bases]
    assert len(opened) >= 9
    for screen in opened:
        members = {name: value for base in reversed(screen.__mro__) for name, value in vars(base).items()}
        left = [name for name, value in members.items() if getattr(value, "__isabstractmethod__", False)]
        assert left == [], screen


def test_an_ascii_terminal_is_told_the_cursor_keys_by_name() -> None:
    rows = ["".join(text for text, _ in row) for row in key_rows((*KEYS, *REPLAY_KEYS), 100, ASCII)]
    heads = {row[:16].strip() for row in rows}
    assert {"up  k", "down  j", "left", "right", "shift+left", "shift+right"} <= heads
    assert not any(arrow in row for row in rows for arrow in "↑↓←→")
    assert keys_shown("↑ ↓", ASCII) == "up down" and keys_shown("↑ ↓", COLOUR) == "↑ ↓"
