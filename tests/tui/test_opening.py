"""A long recording is opened beside the screen, which hears keys meanwhile; and no screen is larger than a monitor."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.paint.view import View
from gputop.recording.format import RecordingError
from gputop.recording.reader import Recording
from gputop.recording.writer import RecordingWriter
from gputop.session.opening import Opened, Opening
from gputop.session.playback import Playback
from gputop.session.player import Player
from gputop.sources.recorded import RecordedSource
from gputop.sources.simulation.simulated import snapshot_at
from gputop.system.awaited import run_here
from gputop.system.terminal_size import MOST_COLUMNS, MOST_ROWS, output_width, window_size
from gputop.tui.node_app import GputopApp
from tests.support.fake_app import screen_rows
from tests.support.frames import MOMENT
from tests.support.steady_pilot import shown

SIZE = (100, 30)


@pytest.fixture
def path(tmp_path: Path) -> str:
    writer = RecordingWriter(str(tmp_path / "run.gputop.jsonl.gz"))
    for k in range(30):
        writer.write(snapshot_at(MOMENT + k, scenario="small_kernels", started=MOMENT))
    writer.close()
    return str(tmp_path / "run.gputop.jsonl.gz")


class Held:
    """Opens a recording once it is let go on."""

    def __init__(self, path: str) -> None:
        self.path, self.goes_on = path, threading.Event()

    def open(self, note_read: Callable[[int], None]) -> Opened:
        note_read(43_000_000)
        assert self.goes_on.wait(30.0)
        player = Player(RecordedSource(Recording(self.path, None, note_read)))
        return Opened(player, player.open())


async def until(is_so: Callable[[], bool]) -> None:
    for _ in range(1000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came")


def app_opening(opening: Opening) -> GputopApp:
    app = GputopApp(View(), "dark", Playback())
    app.opens = opening
    return app


async def test_while_a_recording_is_opened_its_progress_shows_and_then_it_plays(path: str) -> None:
    held = Held(path)
    opening = Opening(path, held.open, clock=lambda: 0.0)
    app = app_opening(opening)
    async with shown(app, SIZE):
        words = "opening run.gputop.jsonl.gz: 43 MB of text read, 0 s"
        await until(lambda: screen_rows(app)[0].strip() == words)
        _, *others = screen_rows(app)
        assert not "".join(others).strip()
        held.goes_on.set()
        await until(lambda: app.frame is not None and app.opens is None)
        await until(lambda: "opened at the first finding" in (app.view.message or ""))
        assert app.playback.shows_past
    opening.close()


async def test_keys_are_heard_while_a_recording_is_opened(path: str) -> None:
    held = Held(path)
    app = app_opening(Opening(path, held.open))
    async with shown(app, SIZE) as pilot:
        await pilot.press("question_mark")
        assert len(app.screen_stack) == 2
        await pilot.press("escape", "down", "enter", "p", "R", "f8", "D")
        assert app.crash is None and app.return_code is None
        await pilot.press("q")
        await until(lambda: app.return_code == 0)
    held.goes_on.set()


async def test_a_recording_that_cannot_be_opened_ends_the_screen_with_its_error() -> None:
    def fail(_: Callable[[int], None]) -> Opened:
        raise RecordingError("x: no frame of a recording in it")

    app = app_opening(Opening("x", fail))
    async with app.run_test(size=SIZE):
        await until(lambda: app.crash is not None)
    assert isinstance(app.crash, RecordingError) and app.return_code == 1


def test_a_short_recording_is_open_before_a_screen_is_needed(path: str) -> None:
    read: list[int] = []

    def open_player(note_read: Callable[[int], None]) -> Opened:
        return Opened(Player(RecordedSource(Recording(path, None, read.append))))

    opening = Opening(path, open_player)
    assert run_here(opening.ended(30.0)) is True
    assert opening.opened().player.source.position == MOMENT
    assert read == sorted(read) and read[-1] > 1000
    opening.close()


def test_no_window_is_larger_than_a_monitor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((65_535, 65_535)))
    assert window_size(1) == (MOST_COLUMNS, MOST_ROWS) == (500, 200)
    monkeypatch.setenv("COLUMNS", "99999999")
    assert output_width(120) == MOST_COLUMNS
    monkeypatch.setenv("COLUMNS", "90")
    assert output_width(120) == 90


def test_columns_of_the_environment_are_no_size_of_the_screen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "99999999")
    monkeypatch.setenv("LINES", "99999999")
    assert GputopApp(View(), "dark", Playback()).console.size == (MOST_COLUMNS, MOST_ROWS)
