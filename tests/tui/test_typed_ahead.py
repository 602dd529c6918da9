"""What is typed before gputop is ready for it: nothing is echoed, nothing is lost, nothing goes elsewhere."""

from __future__ import annotations

import termios

import pytest
from textual.events import Key
from textual.widgets import Input

from gputop.paint.process_filter import parse
from gputop.tui.node_app import GputopApp
from tests.support.fake_app import Asked, app_on, later
from tests.support.frames import demo_frame
from tests.support.pty_program import SCREEN_TAKEN, PtyProgram
from tests.support.steady_pilot import shown

ALTERNATE_SCREEN = "\x1b[?1049h"


NAMES = {":": "colon", "/": "slash", " ": "space", "^p": "ctrl+p", "^m": "enter"}


def _burst(app: GputopApp, *keys: str) -> None:
    """All keys before the first of them is looked at, as the input thread posts what it reads at once."""
    for key in keys:
        app.post_message(Key(NAMES.get(key, key), key if len(key) == 1 else None))


@pytest.mark.parametrize(
    "keys",
    [("f",), ("/",), ("^p",), ("p", "J"), ("e", "/")],
    ids=["filter", "search", "palette", "jump", "find in the environment"],
)
async def test_keys_right_after_one_that_opens_a_prompt_arrive_in_it(keys: tuple[str, ...]) -> None:
    app, _ = app_on(frame := demo_frame(), access=Asked())
    async with shown(app, (160, 48)) as pilot:
        app.deliver(later(frame))
        await pilot.pause()
        _burst(app, *keys, *"gpu:1")
        await pilot.pause()
        assert app.screen.query_one(Input).value == "gpu:1"


async def test_what_follows_enter_in_the_same_burst_is_for_the_screen_below() -> None:
    app, _ = app_on()
    async with shown(app, (160, 48)) as pilot:
        _burst(app, "f", *"gpu:1", "^m", "f", *"2")
        await pilot.pause()
        assert app.screen.query_one(Input).value == "gpu:12"
        _burst(app, "^m", "q")
        await pilot.pause()
        assert app.view.filter == parse("gpu:12")
        assert app.return_value == 0, "q has ended it"


@pytest.mark.parametrize(
    "arguments",
    [
        ("demo", "small_kernels"),
        pytest.param(("replay", "tests/vectors/dataloader_cpu.jsonl"), marks=pytest.mark.slow),
    ],
    ids=["live", "replay"],
)
def test_keys_typed_while_it_loads_are_not_echoed_and_are_obeyed(
    arguments: tuple[str, ...],
) -> None:
    with PtyProgram(*arguments) as program:
        program.read_until(ALTERNATE_SCREEN)
        assert not program.settings()[3] & (termios.ECHO | termios.ICANON)
        program.press("?")
        program.read_until("UTIL is the share")
        program.press("\x03")
        program.end_in_time()
        assert program.is_restored()


@pytest.mark.slow
def test_a_filter_and_the_key_after_it_in_one_burst_are_obeyed() -> None:
    with PtyProgram("demo", "small_kernels") as program:
        program.read_until(SCREEN_TAKEN)
        program.press("fgpu:1\rq")
        program.end_in_time()
