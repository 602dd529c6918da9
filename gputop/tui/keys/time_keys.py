"""Keys about time: pause and replay, record, take pictures, list the findings.

The screens that they open are imported when they are opened.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gputop.session.record_run import screenshot, toggle_recording
from gputop.tui.keys import MainScreen

if TYPE_CHECKING:
    from gputop.session.player import Player

SLICE_S = 0.01
"""How long the loop is left to keys and frames between two slices of the player's pending work."""


class TimeKeys:
    """Shows the past and keeps captures."""

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen
        self._playback = screen.playback
        self._working = False

    def handlers(self) -> dict[str, Callable[[], object]]:
        """What each key does, by its id."""
        return {
            "findings": self.findings,
            "record": self.record,
            "screenshot": self.screenshot,
            "pause": self.pause,
            "play": partial(self.play_on, lambda player: player.toggle()),
            "back": partial(self.play_on, lambda player: player.step(-1)),
            "on": partial(self.play_on, lambda player: player.step(1)),
            "jump": self.jump,
            "next_change": partial(self.to_change, 1),
            "previous_change": partial(self.to_change, -1),
            "slower": partial(self.play_on, lambda player: player.faster(-1)),
            "faster": partial(self.play_on, lambda player: player.faster(1)),
            "begin": partial(self.play_on, lambda player: player.to_begin()),
            "end": partial(self.play_on, lambda player: player.to_end()),
        }

    def work_later(self) -> None:
        """Let the player continue its pending work when the loop is idle."""
        player = self._playback.player
        if player is not None and player.busy and not self._working:
            self._working = True
            self._screen.set_timer(SLICE_S, self._work)

    def _work(self) -> None:
        self._working = False
        if self._playback.work():
            self._screen.paint_soon()
        self.work_later()

    def findings(self) -> None:
        from gputop.tui.screens.pages import FindingsScreen

        screen, playback = self._screen, self._playback
        screen.push_screen(
            FindingsScreen(
                screen.look,
                screen.view.glyphs,
                lambda: playback.frame,
                playback.acknowledge,
                screen.view.utc_offset_s,
                None if playback.session is None else playback.session.alerts,
            ),
            lambda _: screen.paint(),
        )

    def record(self) -> None:
        session = self._playback.session
        self._screen.say("this is a recording already" if session is None else toggle_recording(session))

    def screenshot(self) -> None:
        screen = self._screen
        if self._playback.masked is not None:
            self._screen.say(screenshot(self._playback.masked, screen.view, screen.look, *screen.size))

    def pause(self) -> None:
        """Live: pause on this run's own past, or resume. In a recording: play or pause."""
        if self._playback.player is None:
            if self._playback.pause(self._screen.ready):
                self._screen.paint()
                self.work_later()
        elif self._playback.session is not None:
            self._playback.go_live()
            self._screen.paint()
        else:
            self.play_on(lambda player: player.toggle())

    def play_on(self, act: Callable[[Player], object]) -> None:
        """Act on the player, if the past is on screen, and show the result.

        The frame is made when it is painted, so that of a held key only the last repeat costs a frame.
        """
        if self._playback.player is None:
            return
        act(self._playback.player)
        self._screen.paint_soon()
        self.work_later()

    def to_change(self, step: int) -> None:
        """Jump to the next (1) or previous (-1) change of any GPU's verdict, and say which."""

        offset = self._screen.view.utc_offset_s
        self.play_on(lambda player: self._screen.say(player.to_change(step, offset)))

    def jump(self) -> None:
        from gputop.tui.screens.box import Ask

        self._screen.push_screen(Ask("jump to (12:03, -10m, +1h, an ISO date):"), self._jump_to)

    def _jump_to(self, text: str | None) -> None:
        def go(player: Player) -> None:
            try:
                player.jump_to(text or "")
            except ValueError as error:
                self._screen.say(str(error))

        if text:
            self.play_on(go)
