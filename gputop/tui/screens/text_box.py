"""A framed text to read, mark or copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from gputop.paint.glyphs import ascii_only
from gputop.tui.screens import Clipboard
from gputop.tui.screens.box import framed
from gputop.tui.screens.scrolling import ClosesOnce, hints_of, is_ascii


class TextBox(ModalScreen[None], ClosesOnce[None], keys="list"):
    """A text in a frame that is open at the sides.

    A mark by mouse then holds the text alone."""

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
        if not (boxes := self.query(VerticalScroll)):
            return  # closed before it was composed, by a later key of one burst
        box = boxes.first()
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


class CopyingScreen(Protocol):
    """A screen whose terminal may have a clipboard."""

    @property
    def terminal(self) -> Clipboard | None: ...
    def push_screen(self, screen: Screen[Any], callback: Callable[[Any], None] | None = None) -> object: ...


def show_copied(screen: CopyingScreen, text: str) -> None:
    """Copy a text and show it.

    Whether a terminal takes OSC 52 cannot be asked."""
    if screen.terminal is None:
        title = "not copied: a browser's clipboard is out of reach; mark the text"
    elif screen.terminal.copy(text):
        title = "sent to the terminal's clipboard; if it refused, mark the text"
    else:
        title = "not copied: too long for a terminal's clipboard; mark the text"
    screen.push_screen(TextBox(title, text))
