"""What a screen shows: a live run, that run's own past while it is paused, or a recording."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gputop.model.source import PlayedSource, Source
from gputop.monitor import Frame
from gputop.paint.view import View
from gputop.session.captures import CLOSE_S
from gputop.session.session import Session

if TYPE_CHECKING:
    from gputop.recording.past import Past
    from gputop.session.player import Player
    from gputop.session.revealed import Revealed


class Playback:
    """The frame to show, and where it comes from.

    Live, ``source`` and ``session`` are given, and ``replay_past`` makes a played source of what the session remembers;
    for a recording only ``player`` is. A player that is there is what shows.
    """

    def __init__(
        self,
        *,
        source: Source | None = None,
        session: Session | None = None,
        player: Player | None = None,
        replay_past: Callable[[Past], PlayedSource] | None = None,
    ) -> None:
        self.source = source
        self.session = session
        self.player = player
        self._replay_past = replay_past
        self.newest: Frame | None = None if session is None else session.monitor.latest
        """The newest frame of the live run, also while its past is on screen."""
        self.masked = self.newest
        """The frame on screen, as files and pictures get it."""
        self.revealed: Revealed | None = None
        """Shows secrets on command lines, where the user wants to see them."""
        if session is not None and replay_past is not None:
            session.remember()

    @property
    def frame(self) -> Frame | None:
        """The frame on screen."""
        if self.revealed is None or self.masked is None:
            return self.masked
        return self.revealed.frame(self.masked)

    @property
    def interval_s(self) -> float:
        """How often something new is to be expected."""
        return 1.0 if self.source is None else self.source.interval_s

    @property
    def shows_past(self) -> bool:
        """Whether the screen shows the past."""
        return self.player is not None

    def take(self) -> bool:
        """Take what the sources have; True when there is something new to paint."""
        snapshot = None if self.source is None else self.source.poll()
        if snapshot is not None and self.session is not None:
            self.newest = self.session.take(snapshot)
        if self.player is None:
            self.masked = self.newest
            return snapshot is not None
        new = self.take_past()
        # The paused screen shows the growing size of a recording under way.
        return new or (snapshot is not None and self.session is not None and self.session.recorder is not None)

    def take_past(self) -> bool:
        """Take what the player has, if the past is on screen; True when that is a new frame."""
        if self.player is None:
            return False
        new = self.player.take()
        self.masked = self.player.frame or self.masked
        return new

    def work(self) -> bool:
        """Continue the player's pending work; True when it changed the frame."""
        if self.player is None or not self.player.work():
            return False
        self.masked = self.player.frame or self.masked
        return True

    def pause(self, notify: Callable[[], None]) -> bool:
        """Pause at the end of the live run's own past; False where nothing is remembered.

        ``notify`` is called, from any thread, whenever the played source has something.
        """
        past = None if self.session is None else self.session.past()
        if past is None or self._replay_past is None:
            return False
        from gputop.session.player import Player

        source = self._replay_past(past)
        self.player = Player(source, own_past=True)
        source.start(notify)
        self.player.stand_at_end(None if self.session is None else self.session.monitor.frozen())
        self.take()
        return True

    def go_live(self) -> None:
        """Leave the past and show the live run."""
        if self.player is not None:
            self.player.source.close()
        self.player, self.masked = None, self.newest

    def acknowledge(self, gpu: int, badge_id: str) -> None:
        """Clear a sticky badge on screen, by the GPU's index."""
        if self.player is not None:
            self.player.monitor.acknowledge(gpu, badge_id)
        if self.session is not None:
            self.session.monitor.acknowledge(gpu, badge_id)

    def shown_view(self, view: View) -> View:
        """The view as it is painted: with the time line, and with the state of the recording under way."""
        recorder = None if self.session is None else self.session.recorder
        return replace(
            view,
            replay=None if self.player is None else self.player.replay(),
            recording=None if recorder is None else (recorder.seconds, recorder.bytes_written),
        )

    def close(self) -> None:
        """End a recording under way, and the past. A live source is closed by its owner."""
        recorder = None if self.session is None else self.session.stop_recording()
        if recorder is not None:
            recorder.close(timeout_s=CLOSE_S)
        if self.player is not None:
            self.player.source.close()
