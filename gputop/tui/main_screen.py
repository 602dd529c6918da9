"""State of a node's screen, as its keys and pages use it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

from gputop.model.inspection import ProcessAccess
from gputop.monitor import Frame
from gputop.paint.keys import Key
from gputop.paint.view import View
from gputop.session.playback import Playback
from gputop.tui.painted_app import PaintedApp


class MainScreen(PaintedApp[View]):
    """A node's screen: its view, its playback, and what it may reach."""

    playback: Playback
    access: ProcessAccess | None
    remedied: Callable[[], Frame] | None = None
    """The node of the demo after every remedy, for its tour; None where there is no tour."""
    keys: Sequence[Key] = ()
    """The keys of the screen with the user's own in them."""

    @property
    def frame(self) -> Frame | None:
        """The frame that shows."""
        return self.playback.frame

    @abstractmethod
    def play_past(self) -> None:
        """Play the recording, or the run's own past, in the loop."""
