"""Playing the past: after a jump the verdicts are those that stood live, at once and once all is read."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gputop.model.snapshot import Snapshot
from gputop.monitor import Monitor
from gputop.recording.recent_past import Memory, Past
from gputop.session.playback import Playback
from gputop.session.player import Player
from gputop.sources.recorded import RecordedSource
from gputop.sources.simulation.simulated import snapshot_at
from gputop.tui.keys.time_keys import PLAYER_KEYS, TimeKeys
from tests.support.frames import MOMENT
from tests.support.recording_frames import rounded

SECONDS = 110
GPUS = 2


def run(seconds: int, gpus: int = GPUS, judge: Callable[[Snapshot], object] = lambda snapshot: None) -> Past:
    """What is remembered of a run of so many seconds, each of which is also judged."""
    memory = Memory()
    for second in range(seconds):
        snapshot = rounded(snapshot_at(MOMENT + second, started=MOMENT, gpus=gpus))
        memory.add(snapshot, lambda: None)
        judge(snapshot)
    past = memory.past()
    assert past is not None
    return past


def test_after_a_jump_the_verdicts_are_those_that_stood_live() -> None:
    monitor, live = Monitor(), []

    def judge(snapshot: Snapshot) -> None:
        live.append([(d.verdict, d.busy_not_working) for d in monitor.feed(snapshot).diagnoses])

    player = Player(RecordedSource(run(SECONDS, judge=judge)), own_past=True)
    player.source.start(lambda: None)
    player.stand_at_end()
    for second in (SECONDS - 1, 90, 60):
        player.seek(MOMENT + second)
        assert player.take()
        assert player.frame is not None
        # A minute of past stands at once: it has every verdict that needs no more than the window.
        assert [d.verdict for d in player.frame.diagnoses] == [verdict for verdict, _ in live[second]]
        while player.busy:
            player.work()
        assert player.frame.snapshot.t == MOMENT + second
        assert [(d.verdict, d.busy_not_working) for d in player.frame.diagnoses] == live[second]
    player.source.close()


def test_the_time_line_has_the_verdicts_of_a_run_that_recorded_none() -> None:
    player = Player(RecordedSource(run(40)), own_past=True)
    player.stand_at_end()
    player.take()
    while player.busy:
        player.work()
    assert {change.gpu for change in player.replay().changes} == set(range(GPUS))


def test_pausing_on_the_frame_that_shows_judges_nothing_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = Monitor()
    past, shown = run(30, judge=monitor.feed), monitor.latest
    assert shown is not None
    fed: list[float] = []
    feed = Monitor.feed
    monkeypatch.setattr(Monitor, "feed", lambda self, snapshot: (fed.append(snapshot.t), feed(self, snapshot))[1])
    player = Player(RecordedSource(past), own_past=True)
    player.stand_at_end(shown)
    assert not player.take()
    assert (player.frame, fed) == (shown, [])
    player.step(-1)
    assert player.take()
    assert player.frame is not None
    assert (player.frame.snapshot.t, len(fed)) == (MOMENT + 28, 29)


def test_of_keys_that_come_while_a_frame_is_made_only_the_last_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    player = Player(RecordedSource(run(30, gpus=1)), own_past=True)
    player.stand_at_end()
    playback = Playback(player=player)
    playback.take_past()
    asked: list[str] = []
    screen: Any = SimpleNamespace(playback=playback, paint_soon=lambda: asked.append("paint"), work_later=lambda: None)
    made = list[float]()
    real = Player._rebuild
    monkeypatch.setattr(Player, "_rebuild", lambda p: made.append(p.source.position) or real(p))
    for _ in range(4):
        TimeKeys.play_on(screen, PLAYER_KEYS["back"])
    assert asked == ["paint"] * 4 and made == []
    assert playback.take_past()
    assert made == [MOMENT + 25] and playback.frame is not None
    assert playback.frame.snapshot.t == MOMENT + 25
