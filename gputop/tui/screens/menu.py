"""A choice in a small framed box over the screen: a letter takes it at once, or the arrows and Enter do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

from gputop.tui.screens.box import coloured, framed
from gputop.tui.terminal.closing import ClosesOnce

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
        here: str = "▸",
        footer: str = "",
        tried: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__()
        self._tried = tried
        self._choices = choices
        self._at = at
        self._here = here
        self._footer = footer
        # Kept here, because a screen that is closed before it is composed is mounted without it.
        self._box = Static(self._text(), markup=False)
        self._box.border_title = title

    def compose(self) -> ComposeResult:
        yield self._box

    def on_mount(self) -> None:
        framed(self, self._box)

    def _text(self) -> Text:
        text = Text()
        for i, (letter, words, _) in enumerate(self._choices):
            mark = self._here if i == self._at else " "
            text.append(f"{mark} ", "bold").append(f"{letter or ' '}  ", "bold").append(f"{words}\n")
        return text.append(self._footer, "dim")

    def on_key(self, event: events.Key) -> None:
        """A letter takes its choice; any other key is for nobody while the box is open."""
        event.stop()
        letter = event.character or ""
        for own, _, value in self._choices:
            if own and letter.lower() == own.lower():
                self.dismiss((value, letter.isupper() and not own.isupper()))
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
