"""The keys of pages stand in the same table as all others: bound from it, rebindable, in the manual, in the palette."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

from gputop.commands.config import key_problems
from gputop.config import Settings
from gputop.paint.keys import USUAL, keys_of, page_keys
from gputop.tui.screens.pages import FindingsScreen, HelpScreen
from tests.support.fake_app import app_on, screen_rows
from tests.support.steady_pilot import shown

MODULES = ("pages", "scrolling", "process_screens", "detail_screens")
SCREENS = [
    screen
    for name in MODULES
    for _, screen in inspect.getmembers(
        import_module(f"gputop.tui.screens.{name}"), inspect.isclass
    )
    if screen.__module__.endswith(name) and getattr(screen, "PAGES", ())
]


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.__name__)
def test_a_page_has_the_methods_of_its_keys_and_no_binding_beside_the_table(screen: type) -> None:
    for key in keys_of(screen.PAGES):  # type: ignore[attr-defined]
        assert hasattr(screen, "action_" + key.action.partition("(")[0]), key.id
    for binding in screen.__dict__.get("BINDINGS", ()):
        assert binding.id in USUAL


def test_a_wrong_page_key_is_told_and_a_right_one_is_taken() -> None:
    assert key_problems({"findings_acknowledge": "x"}) == []
    (problem,) = key_problems({"findings_acknowlege": "x"})
    assert "did you mean findings_acknowledge?" in problem.words
    changed = {key.id: key.shown for key in page_keys({"list_close": "x"})}
    assert changed["list_close"] == "x" and changed["findings_close"] == "A"


async def test_a_page_key_of_the_users_own_works_and_stands_in_the_last_row() -> None:
    app, _ = app_on(settings=Settings(keys={"list_close": "x", "findings_acknowledge": "Z"}))
    async with shown(app, (120, 30)) as pilot:
        await pilot.press("A")
        assert isinstance(app.screen, FindingsScreen)
        assert "x closes" in screen_rows(app)[-1] and "Z acknowledge" in screen_rows(app)[-1]
        await pilot.press("q")
        assert isinstance(app.screen, FindingsScreen), "q is no key of a page any more"
        await pilot.press("x")
        assert not isinstance(app.screen, FindingsScreen)


async def test_above_a_page_the_palette_offers_what_the_page_can_do() -> None:
    app, _ = app_on()
    async with shown(app, (120, 30)) as pilot:
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        offered = {
            command.title: command.callback for command in app.get_system_commands(app.screen)
        }
        assert "half a page down" in offered and "sort by the next column" not in offered
        before = screen_rows(app)[0]
        await offered["half a page down"]()
        assert screen_rows(app)[0] != before
        await offered["close the help"]()
        await pilot.pause()
        assert not isinstance(app.screen, HelpScreen)
