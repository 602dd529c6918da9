"""Keys for time: pause and replay, records, pictures, findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import methodcaller
from typing import Any

from gputop.session.player import Player
from gputop.session.screen_files import screenshot, toggle_recording
from gputop.tui.main_screen import MainScreen

SLICE_S = 0.01
"""How long the loop is left to keys and frames between two slices of the player's pending work."""
PLAYER_KEYS: Mapping[str, Callable[[Player], Any]] = {
    "play": methodcaller("toggle"),
    "back": methodcaller("step", -1),
    "on": methodcaller("step", 1),
    "slower": methodcaller("faster", -1),
    "faster": methodcaller("faster", 1),
    "begin": methodcaller("to_begin"),
    "end": methodcaller("to_end"),
}
"""Keys of the past that need the player alone."""


class TimeKeys(MainScreen):
    """Shows the past and keeps captures."""

    _is_working = False

    def work_later(self) -> None:
        """Continue the player's pending work when the loop is idle."""
        player = self.playback.player
        if player is not None and player.busy and not self._is_working:
            self._is_working = True
            self.set_timer(SLICE_S, self._work)

    def _work(self) -> None:
        self._is_working = False
        if self.playback.work():
            self.paint_soon()
        self.work_later()

    def press_findings(self) -> None:
        from gputop.tui.screens.pages import FindingsScreen

        self.push_screen(FindingsScreen(self), lambda _: self.paint())

    def press_record(self) -> None:
        session = self.playback.session
        self.say("this is a recording already" if session is None else toggle_recording(session))

    def press_screenshot(self) -> None:
        if self.playback.masked is not None:
            self.say(screenshot(self.playback.masked, self.view, self.look, *self.size))

    def press_pause(self) -> None:
        """Pause or resume a live run; play or pause a recording."""
        if self.playback.preparation is not None:
            self.say("the past is judged first: a moment")
            return
        if self.playback.player is None:
            if self.playback.pause():
                self.play_past()
                self.paint()
                self.work_later()
        elif self.playback.session is not None:
            self.playback.go_live()
            self.paint()
        else:
            self.play_on(methodcaller("toggle"))

    def play_on(self, act: Callable[[Player], Any]) -> None:
        """Act on the player if the past shows, and paint.

        The frame is made when it is painted, so a held key costs one frame, not one a repeat.
        """
        if self.playback.player is not None:
            act(self.playback.player)
            self.paint_soon()
            self.work_later()

    def press_next_change(self) -> None:
        self._to_change(1)

    def press_previous_change(self) -> None:
        self._to_change(-1)

    def _to_change(self, step: int) -> None:
        """Jump to the next (1) or previous (-1) verdict change."""
        self.play_on(lambda player: self.say(player.to_change(step, self.view.utc_offset_s)))

    def press_jump(self) -> None:
        from gputop.tui.screens.prompt import Prompt

        self.push_screen(Prompt("jump to (12:03, -10m, +1h, an ISO date):"), self._jump_to)

    def _jump_to(self, text: str | None) -> None:
        try:
            if text:
                self.play_on(methodcaller("jump_to", text))
        except ValueError as error:
            self.say(str(error))
