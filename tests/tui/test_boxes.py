"""Menus, prompts and the palette: small framed boxes over the screen, that keep out of the way of what is typed."""

from __future__ import annotations

import pytest
from textual.command import CommandList, Hit
from textual.widgets import Input

from gputop.paint.glyphs import ASCII
from gputop.paint.process_filter import may_become_field
from gputop.paint.view import View
from gputop.tui.screens.menu import Menu
from gputop.tui.screens.palette import Commands
from gputop.tui.screens.prompt import Prompt
from gputop.tui.screens.text_page import TextPage
from gputop.tui.terminal.rows_widget import RowsPage
from tests.support.fake_app import app_on, screen_rows
from tests.support.steady_pilot import shown


@pytest.mark.parametrize("text", ["g", "gpu", "user:ml me", "!rol"])
def test_the_beginning_of_a_fields_name_is_not_searched_for_yet(text: str) -> None:
    assert may_become_field(text)


@pytest.mark.parametrize("text", ["", "gpu:", "gpu:3", "train", "user:ml train"])
def test_everything_else_is(text: str) -> None:
    assert not may_become_field(text)


async def test_while_a_field_is_typed_the_table_keeps_its_rows() -> None:
    app, _ = app_on()
    async with shown(app, (120, 40)) as pilot:
        await pilot.press("f", *"user:ml gpu")
        assert isinstance(app.screen, Prompt)
        assert app.view.filter.text == "user:ml"
        await pilot.press("colon", "3")
        assert app.view.filter.text == "user:ml gpu:3"
        await pilot.press("enter")
        assert app.view.filter.text == "user:ml gpu:3"


async def test_in_an_ascii_terminal_frames_and_texts_are_of_its_characters() -> None:
    app, _ = app_on(view=View(glyphs=ASCII))
    async with shown(app, (120, 40)) as pilot:
        await pilot.press("o")
        assert isinstance(app.screen, Menu)
        assert app.screen._box.styles.border_top[0] == "ascii"
        await pilot.press("escape")
        await app.push_screen(TextPage("copied", "util ≥ 95 % → a larger batch"))
        await pilot.pause()
        assert screen_rows(app)[1].rstrip() == "util > 95 % > a larger batch"


async def test_a_click_takes_a_choice_and_one_beside_the_box_leaves_it() -> None:
    app, _ = app_on()
    async with shown(app, (120, 40)) as pilot:
        for click_at_box in (True, False):
            await pilot.press("o")
            assert isinstance(app.screen, Menu)
            place = app.screen._box.content_region
            await pilot.click(offset=(place.x + 6, place.y + 2) if click_at_box else (1, 1))
            assert app.view.sort == "pid" and len(app.screen_stack) == 1


async def test_a_word_that_no_command_has_is_answered_and_enter_on_it_does_nothing() -> None:
    app, _ = app_on()
    async with shown(app, (120, 40)) as pilot:
        await pilot.press("colon", *"zqx")
        commands = Commands(app.screen_stack[0])
        (hit,) = [hit async for hit in commands.search("zqx")]
        assert str(hit.text) == "no command has 'zqx': backspace, or esc"
        await pilot.pause()
        view = app.view
        await pilot.press("enter")
        await pilot.pause()
        assert len(app.screen_stack) == 1 and app.view == view and app.crash is None


async def test_a_copy_is_a_page_that_scrolls_and_has_no_frame_beside_the_text() -> None:
    app, _ = app_on()
    async with shown(app, (80, 16)) as pilot:
        await pilot.press("y")
        assert isinstance(app.screen, TextPage) and "evidence" in app.screen.text
        title, first, *_ = screen_rows(app)
        assert "not copied" in title, "without a terminal nothing was sent to one"
        assert app.screen.text.startswith(first.rstrip())
        await pilot.press("q", "Y", "G")
        assert app.screen.query_one("#page", RowsPage).first > 0
        await pilot.press("q")
        assert len(app.screen_stack) == 1


async def test_the_palette_finds_words_names_keys_and_does_not_begin_with_the_way_out() -> None:
    app, _ = app_on()
    async with shown(app, (120, 40)) as pilot:
        await pilot.press("colon")
        palette, commands = app.screen, Commands(app.screen_stack[0])
        found = [hit.text async for hit in commands.search("theme") if isinstance(hit, Hit)]
        assert found and "sort by the column before" not in [str(text) for text in found]
        hits = [hit async for hit in commands.search("gpu in full")]
        assert str(hits[0].prompt).startswith("D ") and "\n" not in str(hits[0].prompt)
        titles = [command.title for command in app.get_system_commands(app.screen_stack[0])]
        assert "quit" not in titles[0] and titles.index("quit, from any screen") > 40
        # Its widgets are closed before it is, and a search begins in between.
        await palette.query(CommandList).remove()
        palette.post_message(Input.Changed(palette.query_one(Input), "g"))
        await pilot.pause()
        await pilot.press("escape")
        assert app.screen is not palette and app.crash is None
