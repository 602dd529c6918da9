"""Frames for the screen: the live run, its own past while paused, or a recording."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gputop.model.snapshot import Snapshot
from gputop.model.source import PlayedSource, Source
from gputop.monitor import Frame
from gputop.paint.view import View
from gputop.session.arrivals import Arrivals
from gputop.session.judged import Checkpoint
from gputop.session.player import Player
from gputop.session.preparation import Preparation
from gputop.session.screen_files import CLOSE_S
from gputop.session.session import Session

if TYPE_CHECKING:
    from gputop.recording.recent_past import Past
    from gputop.session.revealed_commands import Revealed


class Playback:
    """Gives the frame to show and knows its source.

    A live run has ``source`` and ``session``; ``replay_past`` makes a played source of the session's memory. A
    recording has only ``player``. A player that exists is shown.
    """

    def __init__(
        self,
        *,
        source: Source | None = None,
        session: Session | None = None,
        player: Player | None = None,
        replay_past: Callable[[Past], PlayedSource] | None = None,
        arrivals: Arrivals | None = None,
        preparation: Preparation | None = None,
    ) -> None:
        """``arrivals`` run the source until a loop takes it over.

        During a ``preparation`` its first frame shows, and the session belongs to its thread: what the source delivers
        waits for ``end_preparation``.
        """
        self.source = source
        self.session = session
        self.player = player
        self._replay_past = replay_past
        self._arrivals = arrivals
        self._delivered: deque[Snapshot] = deque()
        self.preparation = preparation
        self.newest: Frame | None = None if session is None else session.monitor.latest
        if preparation is not None:
            self.newest = preparation.first
        """The newest frame of the live run, also while its past is on screen."""
        self.masked = self.newest
        """The frame on screen, as files and pictures get it."""
        self.revealed: Revealed | None = None
        """Shows secrets on command lines, where the user wants to see them."""
        if preparation is None:
            self._remember()

    def _remember(self) -> None:
        if self.session is not None and self._replay_past is not None:
            self.session.remember()

    def end_preparation(self) -> None:
        """Show the prepared session from now on; raises its work's error."""
        preparation, self.preparation = self.preparation, None
        if preparation is None:
            return
        preparation.check()
        self._remember()
        if self.session is not None:
            self.newest = self.session.monitor.latest

    @property
    def frame(self) -> Frame | None:
        """The frame on screen."""
        if self.revealed is None or self.masked is None:
            return self.masked
        return self.revealed.frame(self.masked)

    @property
    def interval_s(self) -> float:
        """Return the expected seconds between frames."""
        return 1.0 if self.source is None else self.source.interval_s

    @property
    def shows_past(self) -> bool:
        """Whether the screen shows the past."""
        return self.player is not None

    def add(self, snapshot: Snapshot) -> None:
        """Keep a snapshot that the source has delivered, for ``take``."""
        self._delivered.append(snapshot)

    def take_over(self) -> None:
        """Let a loop run the source from now on; keep what came before."""
        if self._arrivals is not None:
            self._arrivals.end_run()
            self._delivered.extend(self._arrivals.new())

    def take(self) -> bool:
        """Take new snapshots; True when there is something to paint."""
        if self.preparation is not None:
            return False
        before = self.newest
        if self.source is not None and self.session is not None:
            while self._delivered:
                self.newest = self.session.take(self._delivered.popleft())
        came = self.newest is not before
        if self.player is None:
            self.masked = self.newest
            return came
        new = self.take_past()
        # The paused screen shows the growing size of a recording under way.
        return new or (came and self.session is not None and self.session.recorder is not None)

    def take_past(self) -> bool:
        """Take the player's frames; True for a new one."""
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

    def pause(self) -> bool:
        """Pause at the end of the live run's own past.

        Returns False where nothing is remembered.
        """
        past = None if self.session is None else self.session.past()
        if past is None or self._replay_past is None:
            return False

        source = self._replay_past(past)
        self.player = Player(
            source, own_past=True, checkpoints=[Checkpoint(*place) for place in past.judged]
        )
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
        """Return the view with time line and recording state."""
        if self.player is not None:
            self.player.show_charts_of(view.span_s)
        recorder = None if self.session is None else self.session.recorder
        return replace(
            view,
            replay=None if self.player is None else self.player.replay(),
            recording=None if recorder is None else (recorder.seconds, recorder.bytes_written),
        )

    def close(self) -> None:
        """End a recording and the past; the live source belongs to its owner."""
        if self.preparation is not None:
            self.preparation.close()
        recorder = None if self.session is None else self.session.stop_recording()
        if recorder is not None:
            recorder.close(timeout_s=CLOSE_S)
        if self.player is not None:
            self.player.source.close()
