"""Screens that are closed at once, as a fast typist or a pasted text closes them."""

from __future__ import annotations

from typing import Any

import pytest
from textual.command import CommandList
from textual.events import Key
from textual.pilot import Pilot

from gputop.paint.view import View
from gputop.sources.processes.on_demand.control import ProcessControl
from gputop.tui.node_app import GputopApp
from tests.support.fake_app import Handed, playback_on
from tests.support.frames import demo_frame
from tests.support.steady_pilot import shown


def _app() -> GputopApp:
    return GputopApp(View(), "dark", playback_on(demo_frame(), Handed()), access=ProcessControl())


MOST_TURNS = 100
"""A loaded machine may take long to close what was told to close."""


async def _usable(pilot: Pilot[object], app: GputopApp) -> bool:
    for _ in range(MOST_TURNS):
        await pilot.pause(0.02)
        if len(app.screen_stack) > 1:
            # A key more than the screen took opens another one.
            await pilot.press("escape")
            continue
        before = app.view.gpu
        await pilot.press("]")
        if len(app.screen_stack) == 1 and app.view.gpu != before:
            return True
    return False


COMMANDS = (
    "help", "gpu_details", "details", "findings", "users", "columns", "environment", "stacks", "signal", "filter",
    "search",
)  # fmt: skip


def slow(command: str) -> Any:
    """A screen that only the slow part sees: others like it are in the quick one."""
    return pytest.param(command, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "command",
    [
        command if command in ("help", "details", "signal") else slow(command)
        for command in COMMANDS
    ],
)
async def test_every_screen_lives_through_a_terminal_of_one_cell(command: str) -> None:
    app = _app()
    async with shown(app, (100, 30)) as pilot:
        await pilot.press("j")
        await app.action_act(command)
        await pilot.pause()
        for size in ((1, 1), (12, 200), (100, 30)):
            await pilot.resize_terminal(*size)
            await pilot.press("down", "end")
        await pilot.press("escape")
        assert await _usable(pilot, app)


BURSTS = (
    ("filter", ["enter", "escape"]), ("filter", ["enter", "enter"]), ("search", ["enter", "escape", "enter"]),
    ("users", ["enter", "enter"]), ("columns", ["enter", "enter"]), ("palette", ["escape", "escape", "enter"]),
)  # fmt: skip


async def test_a_burst_of_keys_that_close_does_no_harm() -> None:
    app = _app()
    async with shown(app, (100, 30)) as pilot:
        for command, burst in BURSTS:
            await pilot.press("ctrl+p") if command == "palette" else await app.action_act(command)
            await pilot.pause()
            assert len(app.screen_stack) == 2, command
            for key in burst:
                app.post_message(Key(key, None))
            assert await _usable(pilot, app), (command, burst)


async def test_the_palette_may_be_paged_before_it_is_drawn() -> None:
    app = _app()
    async with shown(app, (100, 30)) as pilot:
        await pilot.press("ctrl+p")
        await pilot.pause()
        app.screen.query_one(CommandList)._index_to_line.clear()
        await pilot.press("pagedown", "pageup")
        await pilot.press("escape")
        assert await _usable(pilot, app)
