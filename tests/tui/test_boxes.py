"""Menus, prompts and the palette: small framed boxes over the screen, that keep out of the way of what is typed."""

from __future__ import annotations

import pytest
from textual.app import App
from textual.command import CommandList, CommandPalette, Hit
from textual.containers import VerticalScroll
from textual.widgets import Input, Static

from gputop.paint.glyphs import ASCII
from gputop.paint.process_columns import may_become_field
from gputop.paint.theme import LIGHT
from gputop.paint.view import View
from gputop.tui.screens.box import Menu, Prompt, TextBox
from gputop.tui.screens.palette import Commands
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


async def test_what_was_typed_is_searched_for_once_it_is_accepted() -> None:
    app, _ = app_on()
    async with shown(app, (120, 40)) as pilot:
        await pilot.press("f", *"job", "enter")
        assert app.view.filter.text == "job"


@pytest.mark.parametrize(("size", "height"), [((120, 40), 3), ((60, 15), 1)])
async def test_a_prompt_is_framed_where_there_is_room(size: tuple[int, int], height: int) -> None:
    app, _ = app_on()
    async with shown(app, size) as pilot:
        await pilot.press("f")
        box = app.screen.query_one(Input).parent
        assert box is not None
        assert box.outer_size.height == height  # type: ignore[attr-defined]


async def test_in_an_ascii_terminal_the_frame_is_of_its_characters() -> None:
    app, _ = app_on(view=View(glyphs=ASCII))
    async with shown(app, (120, 40)) as pilot:
        await pilot.press("o")
        assert isinstance(app.screen, Menu)
        assert app.screen._box.styles.border_top[0] == "ascii"


async def test_in_an_ascii_terminal_a_text_to_copy_is_shown_in_its_characters() -> None:
    app, _ = app_on(view=View(glyphs=ASCII))
    async with shown(app, (120, 40)) as pilot:
        await app.push_screen(TextBox("copied", "util ≥ 95 % → a larger batch"))
        await pilot.pause()
        assert str(app.screen.query_one(Static).content) == "util >= 95 % => a larger batch"


async def test_the_palette_finds_words_and_not_strewn_letters() -> None:
    app, _ = app_on()
    async with shown(app, (120, 40)) as pilot:
        await pilot.press("colon")
        assert isinstance(app.screen, CommandPalette)
        found = [hit.text async for hit in Commands(app.screen_stack[0]).search("theme") if isinstance(hit, Hit)]
        assert found and "sort by the column before" not in [str(text) for text in found]


async def test_a_search_that_the_closing_of_the_palette_overtakes_does_no_harm() -> None:
    app, _ = app_on()
    async with shown(app, (120, 40)) as pilot:
        await pilot.press("colon")
        # Its widgets are closed before it is, and a search begins in between.
        palette = app.screen
        await palette.query(CommandList).remove()
        palette.post_message(Input.Changed(palette.query_one(Input), "g"))
        await pilot.pause()
        await pilot.press("escape")
        assert not isinstance(app.screen, CommandPalette)


async def test_a_layout_is_named_when_it_is_chosen() -> None:
    app, _ = app_on()
    async with shown(app, (160, 48)) as pilot:
        await pilot.press("3")
        assert app.view.layout == "list" and "a line a GPU" in (app.view.message or "")
        await pilot.press("c")
        assert app.view.layout == "auto" and "automatic" in (app.view.message or "")


async def test_a_list_counts_its_entries_and_says_what_does_not_fit() -> None:
    app, _ = app_on()
    async with shown(app, (80, 24)) as pilot:
        await pilot.press("u")
        rows = screen_rows(app)
        assert rows[-1].rstrip().endswith("1 of 3")
        assert "8 of 8 GPUs: on a wider screen" in rows[0]
    async with shown(app_on()[0], (240, 24)) as pilot:
        await pilot.press("u")
        assert "wider" not in screen_rows(pilot.app)[0]  # type: ignore[arg-type]


def _ground(app: App[int]) -> str:
    """The ground of Textual's own widgets."""
    return app.get_css_variables()["surface"].lower()


@pytest.mark.parametrize("keys", ["o", "f", "y", "colon"])
async def test_every_box_has_the_colours_of_the_screen_below_it(keys: str) -> None:
    app, _ = app_on(theme="light")
    async with shown(app, (120, 40)) as pilot:
        await pilot.press(keys)
        assert _ground(app) == LIGHT["bar"]


async def test_a_theme_that_is_tried_colours_the_box_that_offers_it() -> None:
    app, _ = app_on()
    async with shown(app, (120, 40)) as pilot:
        await pilot.press("T", "down")
        assert app.look.name == "light" and _ground(app) == LIGHT["bar"]


async def test_a_click_takes_a_choice_and_one_beside_the_box_leaves_it() -> None:
    app, _ = app_on()
    async with shown(app, (120, 40)) as pilot:
        await pilot.press("o")
        assert isinstance(app.screen, Menu)
        place = app.screen._box.content_region
        await pilot.click(offset=(place.x + 6, place.y + 2))
        assert app.view.sort == "pid" and len(app.screen_stack) == 1
        await pilot.press("o")
        await pilot.click(offset=(1, 1))
        assert app.view.sort == "pid" and len(app.screen_stack) == 1


async def test_a_copy_is_a_box_over_the_screen_whose_frame_is_not_marked_with_the_text() -> None:
    app, _ = app_on()
    async with shown(app, (120, 40)) as pilot:
        await pilot.press("Y")
        assert isinstance(app.screen, TextBox)
        box = app.screen.query_one(VerticalScroll)
        assert box.styles.border_top[0] == "round" and box.styles.border_left[0] == "blank"
        await pilot.press("q")
        assert len(app.screen_stack) == 1


async def test_a_copy_that_is_longer_than_the_screen_scrolls() -> None:
    app, _ = app_on()
    async with shown(app, (80, 16)) as pilot:
        await pilot.press("Y", "G")
        assert app.screen.query_one(VerticalScroll).scroll_offset.y > 0


async def test_a_command_of_the_palette_is_one_line_that_begins_with_its_key() -> None:
    app, _ = app_on()
    async with shown(app, (120, 40)) as pilot:
        await pilot.press("colon")
        hits = [hit async for hit in Commands(app.screen_stack[0]).search("gpu in full")]
        assert str(hits[0].prompt).startswith("D ") and "\n" not in str(hits[0].prompt)


async def test_without_colours_a_box_leaves_textuals_greys_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app, _ = app_on(theme="mono")
    async with shown(app, (80, 24)) as pilot:
        before = app.theme
        await pilot.press("o")
        assert app.theme == before, "black on black: a terminal's own colours have no grey"


async def test_enter_in_a_palette_that_has_just_opened_does_not_end_the_program() -> None:
    app, _ = app_on()
    async with shown(app, (120, 40)):
        commands = [command.title for command in app.get_system_commands(app.screen)]
        assert "quit" not in commands[0] and commands.index("quit, from any screen") > 40
