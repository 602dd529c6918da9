"""Choices in a small framed box, by letter or by arrows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import OptionList

from gputop.tui.screens.box import framed
from gputop.tui.screens.scrolling import ClosesOnce

Choice = tuple[str, str, str]
"""(letter, words, what is returned)."""
Answer = tuple[str, bool] | None
"""What was chosen and whether by a capital letter; None on Escape."""


class Menu(ModalScreen[Answer], ClosesOnce[Answer]):
    """Asks for one of some choices."""

    CSS = """
    Menu { align: center middle; background: transparent; }
    Menu OptionList {
        width: auto; height: auto; max-height: 100%; max-width: 100%; padding: 0 1; background: $surface;
        border: round $primary; border-title-color: $foreground; border-subtitle-color: $warning;
        scrollbar-size-vertical: 1;
    }
    Menu OptionList.low { border: none; }
    Menu OptionList > .option-list--option-highlighted { text-style: bold; }
    Menu OptionList.plain > .option-list--option-highlighted { text-style: bold reverse; }
    """
    # Not the list's own keys: with priority they take effect before the next key of the same burst is looked at.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", priority=True),
        Binding("enter", "take", priority=True),
        Binding("up", "move(-1)", priority=True),
        Binding("down", "move(1)", priority=True),
    ]

    def __init__(self, title: str, choices: Sequence[Choice], chosen: int, footer: str) -> None:
        super().__init__()
        self._choices = choices
        self._chosen = chosen
        # Kept here, because a screen that is closed before it is composed is mounted without it.
        self._box = OptionList(*[Text(f"{letter or ' '}  {words}") for letter, words, _ in choices])
        self._box.can_focus = False
        self._box.border_title = title
        self._box.border_subtitle = footer

    def compose(self) -> ComposeResult:
        yield self._box

    def on_mount(self) -> None:
        framed(self, self._box)
        self._box.highlighted = self._chosen

    def on_key(self, event: events.Key) -> None:
        """Take a choice by its letter; ignore other keys."""
        event.stop()
        letter = event.character or ""
        for choice_letter, _, value in self._choices:
            if choice_letter and letter.lower() == choice_letter.lower():
                self.dismiss((value, letter.isupper() and not choice_letter.isupper()))
                return
        self._box.border_subtitle = f"{letter or event.key}: not in this list"

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click on a choice takes it."""
        self.dismiss((self._choices[event.option_index][2], False))

    def on_click(self, event: events.Click) -> None:
        """A click beside the box leaves it."""
        if not self._box.region.contains(event.screen_x, event.screen_y):
            self.dismiss(None)

    def action_move(self, step: int) -> None:
        self._chosen = self._box.highlighted = (self._chosen + step) % len(self._choices)

    def action_take(self) -> None:
        self.dismiss((self._choices[self._chosen][2], False))

    def action_cancel(self) -> None:
        self.dismiss(None)
