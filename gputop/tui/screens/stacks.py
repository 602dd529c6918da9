"""The deep look at one process: taken on its own thread, shown when it is complete."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from gputop.model.inspection import DeepLook
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Row
from gputop.paint.profile_commands import recipes
from gputop.paint.stacks import look_rows, waiting_rows
from gputop.paint.theme import Theme
from gputop.tui.screens.rows import RowsScreen

WITHOUT_COPIES = "d again   "
WITH_COPIES = WITHOUT_COPIES + "1 2 3 copy a command   "


class Looked(Message):
    """A deep look has come back."""

    def __init__(self, look: DeepLook) -> None:
        super().__init__()
        self.look = look


class StacksScreen(RowsScreen):
    """``look`` blocks for some seconds and is called from a daemon thread, so that leaving never waits for it."""

    KEYS = WITHOUT_COPIES
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "again"),
        *(Binding(str(number), f"copy({number})") for number in (1, 2, 3)),
    ]

    def __init__(
        self, theme: Theme, glyphs: Glyphs, pid: int, command: str, look: Callable[[], DeepLook], *, may_copy: bool
    ) -> None:
        super().__init__(theme, glyphs)
        self._pid = pid
        self._command = command
        self._look = look
        self._may_copy = may_copy
        self._seen: DeepLook | None = None
        self._looking = False

    def on_mount(self) -> None:
        super().on_mount()
        self.action_again()

    def rows(self, width: int) -> list[Row]:
        if self._seen is None:
            return waiting_rows(self._pid, self._glyphs, width)
        return look_rows(self._seen, self._command, self._glyphs, width)

    def action_again(self) -> None:
        if not self._looking:
            self._looking, self._seen = True, None
            threading.Thread(target=self._work, name="gputop-look", daemon=True).start()
            self.paint()

    def _work(self) -> None:
        self.post_message(Looked(self._look()))

    def on_looked(self, message: Looked) -> None:
        self._looking, self._seen = False, message.look
        self.KEYS = WITH_COPIES if self._may_copy and message.look.exists else WITHOUT_COPIES
        self.paint()

    def action_copy(self, number: int) -> None:
        """Put a command into the clipboard of the terminal (OSC 52)."""
        if self._seen is not None and self._seen.exists and self._may_copy:
            found = recipes(self._pid, self._seen.argv, self._seen.folder)
            self.app.copy_to_clipboard(found[number - 1].text)
