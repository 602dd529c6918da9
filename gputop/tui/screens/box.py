"""Small framed boxes over the screen: their frame, their colours, and the box that shows a text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.theme import BUILTIN_THEMES
from textual.theme import Theme as BoxTheme
from textual.widget import Widget
from textual.widgets import Static

from gputop.paint.glyphs import keys_shown
from gputop.paint.theme import PALETTES, Theme
from gputop.tui.page_keys import USUAL, hint, page_bindings
from gputop.tui.terminal.closing import ClosesOnce

LEAST_FRAMED = 16
"""A lower screen has no room for frames."""


def framed(screen: Screen[Any], box: Widget) -> None:
    """The frame of a box over the screen: of characters where the terminal has no others, none on a low screen."""
    coloured(screen.app)
    if screen.app.size.height < LEAST_FRAMED:
        box.add_class("low")
    elif is_ascii(screen.app):
        box.styles.border = ("ascii", "white")


def is_ascii(app: App[Any]) -> bool:
    """Whether the screen below is drawn in ASCII."""
    view = getattr(app, "view", None)
    return view is not None and view.glyphs.name == "ascii"


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
        own = BUILTIN_THEMES.get("ansi-dark", BUILTIN_THEMES["textual-dark"])
        if not row.colourless:
            return replace(own, name=name)
        plain = dict.fromkeys(("scrollbar", "scrollbar-hover", "scrollbar-active"), "ansi_default")
        return replace(own, name=name, primary="ansi_default", variables={**own.variables, **plain})
    return BoxTheme(
        name=name,
        primary=colours["blue"],
        secondary=colours["teal"],
        warning=colours["amber"],
        error=colours["red"],
        success=colours["green"],
        accent=colours["blue"],
        foreground=colours["text"],
        background=colours["background"],
        surface=colours["bar"],
        panel=colours["bar"],
        dark=row.dark,
        variables={
            "block-cursor-background": colours["select"],
            "block-cursor-foreground": colours["bright"],
            "block-cursor-blurred-background": colours["select"],
            "block-cursor-blurred-foreground": colours["bright"],
            "input-cursor-background": colours["text"],
            "input-cursor-foreground": colours["background"],
        },
    )


class TextBox(ModalScreen[None], ClosesOnce[None]):
    """A text to read or to mark with the mouse. The frame is open at the sides: what is marked is the text alone."""

    PAGES: ClassVar[tuple[str, ...]] = ("list",)
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
    BINDINGS: ClassVar[list[BindingType]] = page_bindings("list")

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self.text = text
        self._title = title

    def compose(self) -> ComposeResult:
        with VerticalScroll(can_focus=False):
            yield Static(self.text.rstrip("\n"), markup=False)

    def on_mount(self) -> None:
        box = self.query_one(VerticalScroll)
        framed(self, box)
        if is_ascii(self.app):
            box.styles.border_left = box.styles.border_right = None
        box.border_title = self._title
        keys = getattr(self.app, "page_keys", USUAL)
        words = hint(keys, "closes", "list_close") + hint(keys, "scroll", "list_up", "list_down")
        box.border_subtitle = keys_shown(words.strip(), self.app.view.glyphs) if hasattr(self.app, "view") else words

    def action_close(self) -> None:
        self.dismiss(None)

    def action_scroll(self, rows: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=rows, animate=False)

    def action_page(self, pages: float) -> None:
        box = self.query_one(VerticalScroll)
        box.scroll_relative(y=round(pages * max(1, box.size.height)), animate=False)
