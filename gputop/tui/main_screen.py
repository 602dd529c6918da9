"""State of a node's screen, as its keys and pages use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gputop.model.inspection import ProcessAccess
from gputop.monitor import Frame
from gputop.paint.keys import Key
from gputop.paint.theme import THEMES
from gputop.paint.view import View
from gputop.session.playback import Playback
from gputop.tui.painted_app import PaintedApp
from gputop.tui.terminal.guard import TerminalGuard


class MainScreen(PaintedApp[View]):
    """A node's screen: its view, its playback, and what it may reach."""

    def __init__(
        self,
        view: View,
        theme: str,
        playback: Playback,
        access: ProcessAccess | None = None,
        guard: TerminalGuard | None = None,
    ) -> None:
        super().__init__(guard)
        self.view = view
        self.look = THEMES[theme]
        self.playback = playback
        self.access = access
        self.toggle_counters: Callable[[], str] | None = None
        """Releases the GPUs' hardware counters or takes them again; None where they are not this machine's."""
        self.remedied: Callable[[], Frame] | None = None
        """The node of the demo after every remedy, for its tour; None where there is no tour."""
        self.keys: Sequence[Key] = ()
        """The keys of the screen with the user's own in them."""

    @property
    def frame(self) -> Frame | None:
        """The frame that shows."""
        return self.playback.frame

    def ready(self) -> None:
        """Take note of a new snapshot; called from any thread."""
        raise NotImplementedError
