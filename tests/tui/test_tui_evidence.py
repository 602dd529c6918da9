"""What the interactive screen keeps and tells of its run: its past, findings, recordings, pictures and the bell."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.config import Settings
from gputop.diagnosis.verdict.summary import role_of
from gputop.model.snapshot import Snapshot
from gputop.monitor import Monitor
from gputop.paint.theme import THEMES
from gputop.paint.view import View
from gputop.recording.reader import read_snapshots
from gputop.session.playback import Playback
from gputop.session.player import Player
from gputop.session.session import Session
from gputop.sources.recorded import RecordedSource
from gputop.sources.simulation.simulated import snapshot_at
from gputop.tui.node_app import GputopApp
from tests.support.fake_app import app_on, hand_in, screen_rows
from tests.support.frames import MOMENT, demo_frame
from tests.support.steady_pilot import shown


def snapshots_of(count: int, start: int = 1) -> list[Snapshot]:
    return [snapshot_at(MOMENT + s, started=MOMENT) for s in range(start, start + count)]


async def test_pausing_stands_on_the_past_of_this_run_and_p_goes_back_to_live() -> None:
    app, source = app_on()
    async with shown(app, (160, 60)) as pilot:
        await hand_in(app, source, pilot, snapshots_of(20))
        await pilot.press("p")
        assert app.frame is not None and app.frame.snapshot.t == MOMENT + 20
        assert "this run's past" in "\n".join(screen_rows(app))
        await hand_in(app, source, pilot, snapshots_of(3, 21))
        assert app.frame.snapshot.t == MOMENT + 20
        await pilot.press("left", "left")
        assert app.frame.snapshot.t == MOMENT + 18
        await pilot.press("right")
        assert app.frame.snapshot.t == MOMENT + 19
        await pilot.press("g")
        assert app.frame.snapshot.t == demo_frame().snapshot.t
        await pilot.press("p")
        assert app.frame.snapshot.t == MOMENT + 23
        assert app.view.replay is None


async def test_jumping_to_a_time_and_to_a_time_that_is_none() -> None:
    app, source = app_on()
    async with shown(app, (160, 60)) as pilot:
        await hand_in(app, source, pilot, snapshots_of(20))
        await pilot.press("p", "J", *"-5s", "enter")
        assert app.frame is not None and app.frame.snapshot.t == MOMENT + 15
        await pilot.press("J", *"noon", "enter")
        await pilot.pause(0.1)
        assert "not a time" in screen_rows(app)[1]


async def test_findings_are_listed_and_sticky_ones_are_acknowledged() -> None:
    app, _ = app_on()
    frame = demo_frame("ecc", later_s=90)
    app.playback.masked = app.playback.newest = frame
    acknowledged: list[tuple[int, str]] = []
    app.playback.acknowledge = lambda gpu, badge: acknowledged.append((gpu, badge))  # type: ignore[method-assign]
    async with shown(app, (120, 40)) as pilot:
        await pilot.press("A")
        text = "\n".join(screen_rows(app))
        assert "findings" in text
        assert "acknowledged (a)" in text
        sticky = [f for f in reversed(frame.findings) if f.sticky]
        for finding in reversed(frame.findings):
            if finding.sticky:
                break
            await pilot.press("j")
        await pilot.press("a", "escape")
        assert acknowledged == [(sticky[0].gpu, sticky[0].id)]


async def test_recording_and_pictures_go_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app, source = app_on()
    async with shown(app, (160, 48)) as pilot:
        await pilot.press("R")
        await hand_in(app, source, pilot, snapshots_of(5))
        await pilot.pause(0.1)
        assert "●" in screen_rows(app)[0]
        await pilot.press("R", "f8")
    recordings, pictures = list(tmp_path.glob("*.jsonl.gz")), list(tmp_path.glob("*.svg"))
    assert [s.t for s in read_snapshots(str(recordings[0]))] == [MOMENT + s for s in range(1, 6)]
    assert "gputop on node-17" in pictures[0].read_text()
    assert {oct(path.stat().st_mode & 0o777) for path in (*recordings, *pictures)} == {"0o600"}


async def test_a_recording_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    app, _ = app_on()
    async with shown(app, (160, 48)) as pilot:
        await pilot.press("R")
        await pilot.pause(0.1)
        assert "cannot record" in screen_rows(app)[1]


async def test_the_bell_rings_once_for_a_verdict_also_while_the_past_shows() -> None:
    app, source = app_on(settings=Settings(bell=True))
    bells: list[None] = []
    app.bell = lambda: bells.append(None)  # type: ignore[method-assign]
    async with shown(app, (120, 40)) as pilot:
        await hand_in(app, source, pilot, snapshots_of(1))
        await pilot.press("p")
        bells.clear()
        # The fresh monitor comes to its verdicts while the screen stands still.
        await hand_in(app, source, pilot, snapshots_of(40, 2))
        assert app.playback.newest is not None
        red = {d.uuid for d in app.playback.newest.diagnoses if role_of(d) == "not_working"}
        assert red and 1 <= len(bells) <= len(red)


async def test_what_is_played_is_not_recorded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session = Session(Monitor())
    session.remember()
    for snapshot in snapshots_of(3):
        session.take(snapshot)
    past = session.past()
    assert past is not None
    app = GputopApp(View(), "dark", Playback(player=Player(RecordedSource(past))))
    async with shown(app, (120, 40)) as pilot:
        await pilot.press("R")
        assert app.view.message == "this is a recording already"
    assert list(tmp_path.iterdir()) == []


async def test_a_picture_is_in_the_theme_that_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app, _ = app_on()
    async with shown(app, (120, 40)) as pilot:
        await pilot.press("T", "f8")
    (picture,) = tmp_path.iterdir()
    background = THEMES["light"].background
    assert background is not None and background in picture.read_text()
