"""What keys do to time: pause and replay, record, take pictures, look at what was found.

The screens that they open are imported when they are opened.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from gputop.model.inspection import ProcessAccess
from gputop.model.source import PlayedSource, Source
from gputop.monitor import Monitor
from gputop.paint.theme import Theme
from gputop.paint.view import View
from gputop.recording.memory import Memory, Past
from gputop.session.captures import Evidence
from gputop.session.player import Player
from gputop.tui.keys.details import DetailsKeys

SLICE_S = 0.01
"""How long keys and frames have the loop for themselves between two turns of the player's waiting work."""


class TimeKeys(DetailsKeys):
    """The part of the main screen that shows the past and keeps evidence. While a player is there, it is what shows."""

    def __init__(
        self,
        theme: Theme,
        *,
        source: Source | None,
        monitor: Monitor | None,
        player: Player | None,
        replay_past: Callable[[Past], PlayedSource] | None,
        access: ProcessAccess | None,
        **options: object,
    ) -> None:
        super().__init__(access=access, **options)
        self._look = theme
        self._source = source
        self._monitor = monitor or Monitor()
        self._player = player
        self._replay_past = replay_past
        self._memory = Memory()
        self._evidence = Evidence(theme)
        self._working = False

    def ready(self) -> None:
        """Called by a source, from any thread, when it has something new."""
        raise NotImplementedError

    def _take(self) -> bool:
        """Take in what the sources have."""
        raise NotImplementedError

    def _paint(self) -> None:
        """Paint the main screen."""
        raise NotImplementedError

    def _paint_soon(self) -> None:
        """Paint the main screen at once, or together with what comes within the next moment."""
        raise NotImplementedError

    def _shown_view(self) -> View:
        replay = None if self._player is None else self._player.replay()
        return replace(self.view, replay=replay, recording=self._evidence.state)

    def _shows_past(self) -> bool:
        return self._player is not None

    def _work_later(self) -> None:
        if self._player is not None and self._player.busy and not self._working:
            self._working = True
            self.set_timer(SLICE_S, self._work)

    def _work(self) -> None:
        self._working = False
        if self._player is not None:
            if self._player.work():
                self.frame = self._player.frame or self.frame
                self._paint_soon()
            self._work_later()

    def _do_findings(self) -> None:
        from gputop.tui.screens.findings import FindingsScreen

        offset = self.view.utc_offset_s
        self.push_screen(
            FindingsScreen(self._look, self.view.glyphs, lambda: self.frame, self._acknowledge, offset),
            lambda _: self._paint(),
        )

    def _acknowledge(self, gpu: int, badge_id: str) -> None:
        monitor = self._monitor if self._player is None else self._player.monitor
        monitor.acknowledge(gpu, badge_id)

    def _do_record(self) -> None:
        self._say(self._evidence.toggle_recording())

    def _do_screenshot(self) -> None:
        if self.frame is not None:
            self._say(self._evidence.screenshot(self.frame, self.view, *self.size))

    def _do_pause(self) -> None:
        """Live: stand still on this run's own past, or go on. In a recording: play or pause."""
        if self._player is None:
            past = self._memory.past()
            if past is not None and self._replay_past is not None:
                source = self._replay_past(past)
                self._player = Player(source, own_past=True)
                source.start(self.ready)
                self._player.stand_at_end()
                self._take()
                self._paint()
                self._work_later()
        elif self._source is not None:
            self._player.source.close()
            self._player, self.frame = None, self._monitor.latest
            self._paint()
        else:
            self._play(self._player, "play")

    def _play(self, player: Player, key_id: str) -> None:
        if key_id == "jump":
            from gputop.tui.screens.ask import Ask

            self.push_screen(Ask("jump to (12:03, -10m, +1h, an ISO date):"), self._jump)
            return
        if not player.act(key_id):
            self._say("no other change of a verdict that way")
        if player.take():
            self.frame = player.frame
        self._paint_soon()
        self._work_later()

    def _jump(self, text: str | None) -> None:
        if text and self._player is not None:
            try:
                self._player.jump_to(text)
            except ValueError as error:
                self._say(str(error))
                return
            self._play(self._player, "stay")
