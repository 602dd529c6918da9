"""Small framed boxes over the screen: a text, a choice, the choice of a theme, a question that a line answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, cast

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.theme import BUILTIN_THEMES
from textual.theme import Theme as BoxTheme
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from gputop.model.text_table import table_rows
from gputop.paint.glyphs import ascii_only
from gputop.paint.theme import PALETTES, THEMES, Theme
from gputop.tui.screens.scrolling import ClosesOnce, hints_of, is_ascii
from gputop.tui.terminal.painted_lines import copy_sequence

# The frame, its colours, and the box that shows a text.

LEAST_FRAMED = 16
"""A lower screen has no room for frames."""


def framed(screen: Screen[Any], box: Widget) -> None:
    """The frame of a box over the screen: of characters where the terminal has no others, none on a low screen."""
    coloured(screen.app)
    if screen.app.size.height < LEAST_FRAMED:
        box.add_class("low")
    elif is_ascii(screen.app):
        box.styles.border = ("ascii", "white")


def coloured(app: App[Any]) -> None:
    """Give Textual's own widgets the colours of the screen below; at the first box, since no page needs them."""
    look = getattr(app, "look", None)
    # Where NO_COLOR is set Textual makes greys of its own theme, and black of a terminal's colours.
    if look is None or app.no_color or app.theme == (name := f"gputop-{look.name}"):
        return
    if name not in app.available_themes:
        app.register_theme(_box_theme(look, name))
    app.theme = name


def _box_theme(look: Theme, name: str) -> BoxTheme:
    row = PALETTES[look.name]
    colours = row.palette
    if row.terminal:
        # Named otherwise in the lowest Textual that is allowed.
        builtin = BUILTIN_THEMES.get("ansi-dark", BUILTIN_THEMES["textual-dark"])
        if not row.colourless:
            return replace(builtin, name=name)
        plain = dict.fromkeys(("scrollbar", "scrollbar-hover", "scrollbar-active"), "ansi_default")
        return replace(builtin, name=name, primary="ansi_default", variables={**builtin.variables, **plain})
    return BoxTheme(
        name=name,
        dark=row.dark,
        **cast("dict[str, Any]", {ours: colours[theirs] for ours, theirs in COLOURS.items()}),
        variables={ours: colours[theirs] for ours, theirs in CURSORS.items()},
    )


COLOURS = dict(
    table_rows("""
    primary     blue
    secondary   teal
    warning     amber
    error       red
    success     green
    accent      blue
    foreground  text
    background  background
    surface     bar
    panel       bar
""")
)
"""Textual's name of a colour -> the palette's."""
CURSORS = dict(
    table_rows("""
    block-cursor-background          select
    block-cursor-foreground          bright
    block-cursor-blurred-background  select
    block-cursor-blurred-foreground  bright
    input-cursor-background          text
    input-cursor-foreground          background
""")
)


class TextBox(ModalScreen[None], ClosesOnce[None], keys="list"):
    """A text to read or to mark with the mouse. The frame is open at the sides: what is marked is the text alone."""

    CSS = """
    TextBox { align: center middle; background: transparent; }
    TextBox VerticalScroll {
        width: 100%; height: auto; max-height: 100%; background: $surface;
        border: blank; border-top: round $primary; border-bottom: round $primary; border-title-color: $foreground;
        border-subtitle-color: $foreground; scrollbar-size-vertical: 1;
    }
    TextBox VerticalScroll.low { border: none; }
    TextBox Static { width: 100%; height: auto; }
    """

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self.text = text
        self._title = title

    def compose(self) -> ComposeResult:
        with VerticalScroll(can_focus=False):
            text = self.text.rstrip("\n")
            yield Static(ascii_only(text) if is_ascii(self.app) else text, markup=False)

    def on_mount(self) -> None:
        box = self.query_one(VerticalScroll)
        framed(self, box)
        if is_ascii(self.app):
            box.styles.border_left = box.styles.border_right = None
        box.border_title = self._title
        hints = hints_of(self.app, (("closes", "list_close"), ("scroll", "list_up", "list_down")))
        box.border_subtitle = "   ".join(text for text, _ in hints)

    def action_close(self) -> None:
        self.dismiss(None)

    def action_scroll(self, rows: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=rows, animate=False)

    def action_page(self, pages: float) -> None:
        box = self.query_one(VerticalScroll)
        box.scroll_relative(y=round(pages * max(1, box.size.height)), animate=False)


# A choice in a small framed box over the screen: a letter takes it at once, or the arrows and Enter do.

Choice = tuple[str, str, str]
"""(letter, words, what is returned)."""


class Menu(ModalScreen[tuple[str, bool] | None], ClosesOnce[tuple[str, bool] | None]):
    """Returns (what was chosen, whether by a capital letter); None on Escape. ``at`` is where the cursor begins.

    ``tried`` is called with what the cursor comes to, for a choice that previews itself.
    """

    CSS = """
    Menu { align: center middle; background: transparent; }
    Menu Static {
        width: auto; height: auto; max-height: 100%; max-width: 100%; padding: 0 1; background: $surface;
        border: round $primary; border-title-color: $foreground; border-subtitle-color: $warning;
    }
    Menu Static.low { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", priority=True),
        Binding("enter", "take", priority=True),
        Binding("up", "move(-1)", priority=True),
        Binding("down", "move(1)", priority=True),
    ]

    def __init__(
        self,
        title: str,
        choices: Sequence[Choice],
        at: int = 0,
        *,
        footer: str = "",
        tried: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__()
        self._tried = tried
        self._choices = choices
        self._at = at
        self._footer = footer
        # Kept here, because a screen that is closed before it is composed is mounted without it.
        self._box = Static(markup=False)
        self._box.border_title = title

    def compose(self) -> ComposeResult:
        yield self._box

    def on_mount(self) -> None:
        framed(self, self._box)
        self._box.update(self._text())

    def _text(self) -> Text:
        text, marker = Text(), ">" if is_ascii(self.app) else "▸"
        for i, (letter, words, _) in enumerate(self._choices):
            mark = marker if i == self._at else " "
            text.append(f"{mark} ", "bold").append(f"{letter or ' '}  ", "bold").append(f"{words}\n")
        return text.append(self._footer, "dim")

    def on_key(self, event: events.Key) -> None:
        """A letter takes its choice; any other key does nothing while the box is open."""
        event.stop()
        letter = event.character or ""
        for choice_letter, _, value in self._choices:
            if choice_letter and letter.lower() == choice_letter.lower():
                self.dismiss((value, letter.isupper() and not choice_letter.isupper()))
                return
        self._box.border_subtitle = f"{letter or event.key}: not in this list"

    def on_click(self, event: events.Click) -> None:
        """A click on a choice takes it; one beside the box leaves."""
        place = self._box.content_region
        row = event.screen_y - place.y
        if not self._box.region.contains(event.screen_x, event.screen_y):
            self.dismiss(None)
        elif 0 <= row < len(self._choices):
            self.dismiss((self._choices[row][2], False))

    def action_move(self, step: int) -> None:
        self._at = (self._at + step) % len(self._choices)
        self._box.update(self._text())
        if self._tried is not None:
            self._tried(self._choices[self._at][2])
            coloured(self.app)

    def action_take(self) -> None:
        self.dismiss((self._choices[self._at][2], False))

    def action_cancel(self) -> None:
        self.dismiss(None)


# Choosing a theme on the screen itself: each one is applied at once, so that the screen is its own preview.


class ThemedScreen(Protocol):
    """A screen whose theme can be chosen."""

    look: Theme

    def say(self, text: str) -> None: ...
    def push_screen(self, screen: Screen[Any], callback: Callable[[Any], None] | None = None) -> object: ...


def show_copied(screen: ThemedScreen, text: str, write: Callable[[str], None] | None) -> None:
    """Copy a text by ``write``, which a browser has not, and show it: whether a terminal takes OSC 52 cannot be
    asked."""
    sequence = copy_sequence(text, os.environ)
    title = "sent to the terminal's clipboard; if it refused, mark the text"
    if write is None:
        title = "not copied: a browser's clipboard is out of reach; mark the text"
    elif sequence is None:
        title = "not copied: too long for a terminal's clipboard; mark the text"
    else:
        write(sequence)
    screen.push_screen(TextBox(title, text))


def choose_theme(screen: ThemedScreen, wear: Callable[[Theme], None]) -> None:
    """Ask for a theme; ``wear`` applies each one that the cursor comes to, and the old one again on Escape."""
    before = screen.look
    if before.colourless:
        screen.say("there is one theme without colours: drop --no-color or NO_COLOR for others")
        return
    names = [name for name, theme in THEMES.items() if not theme.colourless]

    def answered(chosen: tuple[str, bool] | None) -> None:
        if chosen is None:
            wear(before)
            return
        name, _ = chosen
        wear(THEMES[name])
        screen.say(f'theme {name}; to keep it: theme = "{name}" in the configuration (gputop config --path)')

    menu = Menu(
        "theme",
        [(name[0], name, name) for name in names],
        names.index(before.name) if before.name in names else 0,
        footer="the arrows try one, esc leaves it",
        tried=lambda name: wear(THEMES[name]),
    )
    screen.push_screen(menu, answered)


# A line of text asked for at the bottom of the screen, checked while it is typed, with a history.


class Ask(ModalScreen[str | None], ClosesOnce[str | None]):
    """Returns the text on Enter and None on Escape."""

    CSS = """
    Ask { align: left bottom; background: transparent; }
    Ask Horizontal { height: 3; width: 100%; dock: bottom; border: round $primary; background: $surface; }
    Ask Horizontal.low { height: 1; border: none; }
    Ask Label { width: auto; padding: 0 1; text-style: bold; }
    Ask Input { border: none; height: 1; width: 1fr; padding: 0; background: $surface; color: $foreground; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", priority=True),
        Binding("enter", "accept", priority=True),
    ]

    def __init__(self, question: str, text: str = "") -> None:
        super().__init__()
        self._question = question
        # Kept here, because a screen that is closed before it is composed is mounted without it.
        self._answer = Input(text, select_on_focus=False)
        self._answer.cursor_blink = False

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Label(self._question, markup=False)
            yield self._answer

    def on_mount(self) -> None:
        framed(self, self.query_one(Horizontal))
        # At once: ``focus`` would take effect after the keys already queued.
        self.set_focus(self._answer)

    async def typed(self) -> str:
        """The line with all that was typed before now, which may still wait in the line's own queue."""
        taken = asyncio.Event()
        if self._answer.call_later(taken.set):
            await taken.wait()
        return self._answer.value

    async def action_accept(self) -> None:
        """Close at once: the next key, typed in the same burst perhaps, is for the screen below."""
        self.dismiss(await self.typed())

    def action_cancel(self) -> None:
        self.dismiss(None)


class Prompt(Ask):
    """Returns the text on Enter and None on Escape; ``check`` says what is wrong with a text, or None.

    ``check`` is called for every text that is typed, so that it may also show what the text does. Arrow keys walk
    through ``history``, whose last entry is the newest.
    """

    # A screen's CSS counts for its own type only, not for those derived from it.
    CSS = f"""{Ask.CSS.replace("Ask ", "Prompt ")}
    Prompt #mistake {{ width: auto; max-width: 60%; padding: 0 1; text-style: bold; color: $warning; }}
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "walk(-1)", priority=True),
        Binding("down", "walk(1)", priority=True),
    ]

    def __init__(
        self, question: str, text: str, history: Sequence[str], check: Callable[[str], str | None] | None = None
    ) -> None:
        super().__init__(question, text)
        self._history = (*history, text)
        self._at = len(history)
        self._check = check or (lambda _: None)
        self._mistake = Label("", id="mistake", markup=False)

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Label(self._question, markup=False)
            yield self._answer
            yield self._mistake

    def on_input_changed(self, event: Input.Changed) -> None:
        mistake = self._check(event.value)
        self._mistake.update(mistake or "")
        self._mistake.display = bool(mistake)

    async def action_accept(self) -> None:
        """As of every question; a text with a mistake is not accepted, and the mistake stays beside it."""
        if self._check(text := await self.typed()) is None:
            self.dismiss(text)

    async def action_walk(self, step: int) -> None:
        """Put the next older (-1) or newer (1) text of the history into the line."""
        await self.typed()
        self._at = max(0, min(len(self._history) - 1, self._at + step))
        self._answer.value = self._history[self._at]
        self._answer.cursor_position = len(self._answer.value)
