"""The interactive screen through a pilot: keys, mouse, sizes, crashes. Snapshots are handed in; nothing sleeps."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from gputop.config import Reload, Settings
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
from gputop.tui.app import GputopApp, SnapshotReady, newly_red
from gputop.tui.painted_app import LEAST_REPAINT_S, PaintDue
from gputop.tui.screens.findings import FindingsScreen
from gputop.tui.screens.help import HelpScreen
from gputop.tui.terminal.lines import Lines
from tests.support.fake_app import playback_on, wheel
from tests.support.frames import MOMENT, demo_frame


class Handed:
    """A source that gives what the test puts in."""

    interval_s = 1.0

    def __init__(self) -> None:
        self.next: Snapshot | None = None

    def poll(self) -> Snapshot | None:
        snapshot, self.next = self.next, None
        return snapshot


def _app(theme: str = "dark", view: View | None = None, **options: Any) -> tuple[GputopApp, Handed]:
    source = Handed()
    app = GputopApp(view or View(), theme, playback_on(demo_frame(), source), **options)
    return app, source


def _rows(app: GputopApp) -> list[str]:
    """What is on the screen, through Textual's compositor."""
    lines = app.screen.query_one(Lines)
    return ["".join(s.text for s in strip) for strip in lines.render_lines(lines.size.region)]


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (160, 48), (200, 60), (300, 100)])
async def test_the_screen_is_full_at_every_size(size: tuple[int, int]) -> None:
    app, _ = _app()
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        rows = _rows(app)
        assert len(rows) == size[1]
        assert rows[0].startswith(" gputop")
        assert {len(row) for row in rows} == {size[0]}


@pytest.mark.parametrize("theme", ["dark", "light", "ansi", "mono"])
async def test_every_theme_draws(theme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if theme == "mono":
        monkeypatch.setenv("NO_COLOR", "1")
    app, _ = _app(theme)
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.pause()
        assert "BUSY, NOT WORKING" in "\n".join(_rows(app))


async def test_a_painting_that_falls_into_the_way_out_is_dropped() -> None:
    app, _ = _app()
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.pause()
        app.paint_soon()
        app.paint_soon()
        await app.query_one(Lines).remove()
        app.post_message(PaintDue())
        await pilot.pause(0.2)
        assert app.crash is None


async def test_what_comes_while_a_slow_picture_is_drawn_is_drawn_together(monkeypatch: pytest.MonkeyPatch) -> None:
    app, _ = _app()
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.pause()
        now, drawn = [1000.0], list[float]()
        app._clock, app._painted = lambda: now[0], 0.0

        def slowly() -> None:
            drawn.append(now[0])
            now[0] += 10 * LEAST_REPAINT_S

        monkeypatch.setattr(app, "draw", slowly)
        for _ in range(5):
            app.paint_soon()
        assert len(drawn) == 1


async def test_a_resize_storm_ends_in_the_last_size() -> None:
    app, _ = _app()
    async with app.run_test(size=(160, 48)) as pilot:
        for width in range(60, 140, 7):
            await pilot.resize_terminal(width, 30)
        await pilot.pause(0.1)
        assert {len(row) for row in _rows(app)} == {137}


async def test_brackets_move_between_gpus_and_escape_goes_back() -> None:
    app, _ = _app()
    async with app.run_test(size=(160, 48)) as pilot:
        gpus = demo_frame().snapshot.gpus
        await pilot.press("]")
        assert app.view.gpu == gpus[1].static.uuid
        await pilot.press("[", "[")
        assert app.view.gpu == gpus[7].static.uuid
        await pilot.press("escape")
        assert app.view.gpu is None


async def test_j_and_k_move_in_the_process_table_and_tab_in_the_gpus() -> None:
    app, _ = _app()
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.press("end")
        last = app.view.process
        await pilot.press("home", "j")
        assert app.view.process not in (None, last)
        # The counts of the summary come before the GPUs.
        await pilot.press("tab", "tab", "j")
        assert app.view.gpu is not None


async def test_sorting_by_letter_by_function_key_and_inverted() -> None:
    app, _ = _app()
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.press("o", "c")
        assert (app.view.sort, app.view.inverted) == ("cpu_pct", False)
        await pilot.press("I")
        assert app.view.inverted
        await pilot.press("f6")
        assert app.view.sort == "tree_cpu_pct"
        await pilot.press("f6")
        assert app.view.sort == "loader"
        await pilot.press("o", "escape")
        assert app.view.sort == "loader"
        # A letter of a column is nothing else then, although it opens the list of users otherwise.
        await pilot.press("o", "u")
        assert app.view.sort == "user"
        assert len(app.screen_stack) == 1
        await pilot.press("o", "q")
        assert not app.is_running or app.return_code == 0


async def test_the_time_span_the_tree_and_the_layout_follow_their_keys() -> None:
    app, _ = _app()
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.press("plus", "t", "c")
        assert (app.view.span_s, app.view.tree, app.view.layout) == (300.0, "all", "panes")
        await pilot.press("minus", "minus")
        assert app.view.span_s == 60.0


def _snapshots(count: int, start: int = 1) -> list[Snapshot]:
    return [snapshot_at(MOMENT + s, started=MOMENT) for s in range(start, start + count)]


async def _hand(app: GputopApp, source: Handed, pilot: Pilot[int], snapshots: list[Snapshot]) -> None:
    for snapshot in snapshots:
        source.next = snapshot
        app.post_message(SnapshotReady())
        await pilot.pause()


async def test_pausing_stands_on_the_past_of_this_run_and_p_goes_back_to_live() -> None:
    app, source = _app()
    async with app.run_test(size=(160, 60)) as pilot:
        await _hand(app, source, pilot, _snapshots(20))
        await pilot.press("p")
        assert app.frame is not None and app.frame.snapshot.t == MOMENT + 20
        assert "this run's past" in "\n".join(_rows(app))
        await _hand(app, source, pilot, _snapshots(3, 21))
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
    app, source = _app()
    async with app.run_test(size=(160, 60)) as pilot:
        await _hand(app, source, pilot, _snapshots(20))
        await pilot.press("p", "J", *"-5s", "enter")
        assert app.frame is not None and app.frame.snapshot.t == MOMENT + 15
        await pilot.press("J", *"noon", "enter")
        await pilot.pause(0.1)
        assert "not a time" in _rows(app)[1]


async def test_findings_are_listed_and_sticky_ones_are_acknowledged() -> None:
    app, _ = _app()
    frame = demo_frame("ecc", later_s=90)
    app.playback.masked = app.playback.newest = frame
    acknowledged: list[tuple[int, str]] = []
    app.playback.acknowledge = lambda gpu, badge: acknowledged.append((gpu, badge))  # type: ignore[method-assign]
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("A")
        text = "\n".join(_rows(app))
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
    app, source = _app()
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.press("R")
        await _hand(app, source, pilot, _snapshots(5))
        await pilot.pause(0.1)
        assert "●" in _rows(app)[0]
        await pilot.press("R", "f8")
    recordings, pictures = list(tmp_path.glob("*.jsonl.gz")), list(tmp_path.glob("*.svg"))
    assert [s.t for s in read_snapshots(str(recordings[0]))] == [MOMENT + s for s in range(1, 6)]
    assert "gputop on node-17" in pictures[0].read_text()
    assert {oct(path.stat().st_mode & 0o777) for path in (*recordings, *pictures)} == {"0o600"}


async def test_a_recording_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    app, _ = _app()
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.press("R")
        await pilot.pause(0.1)
        assert "cannot record" in _rows(app)[1]


async def test_the_bell_rings_for_a_new_red_verdict_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not newly_red(demo_frame(), demo_frame())
    healthy = replace(demo_frame(), diagnoses=tuple(replace(d, level="green") for d in demo_frame().diagnoses))
    healthy = replace(healthy, diagnoses=tuple(replace(d, busy_not_working=None) for d in healthy.diagnoses))
    assert newly_red(healthy, demo_frame())


async def test_help_opens_and_closes_with_every_key_for_it() -> None:
    app, _ = _app()
    async with app.run_test(size=(100, 30)) as pilot:
        for key in ("question_mark", "h", "f1"):
            await pilot.press(key)
            assert isinstance(app.screen, HelpScreen)
            assert "three numbers" in "\n".join(_rows(app))
            await pilot.press("escape")
            assert not isinstance(app.screen, HelpScreen)


async def test_a_click_selects_a_gpu_a_process_and_a_sort_column() -> None:
    app, _ = _app()
    async with app.run_test(size=(160, 48)) as pilot:
        rows = _rows(app)
        await pilot.click(offset=(5, next(i for i, row in enumerate(rows) if row.startswith("─ 3  H100"))))
        assert app.view.gpu == demo_frame().snapshot.gpus[3].static.uuid
        rows = _rows(app)
        head = next(i for i, row in enumerate(rows) if "GPU-MEM" in row and "PID" in row)
        await pilot.click(offset=(rows[head].index("CPU%"), head))
        assert app.view.sort == "cpu_pct"
        await pilot.click(offset=(20, head + 2))
        assert app.view.process is not None


async def test_the_wheel_over_another_screen_leaves_the_process_table_where_it_was() -> None:
    app, _ = _app(view=View(tree="all"))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("question_mark")
        wheel(app)
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        assert "4 to " in _rows(app)[-1] and app.view.scroll == 0
        await pilot.press("escape")
        wheel(app)
        await pilot.pause()
        assert app.view.scroll == 3


async def test_the_bell_rings_once_for_a_verdict_also_while_the_past_shows() -> None:
    app, source = _app(bell=True)
    rung: list[None] = []
    app.bell = lambda: rung.append(None)  # type: ignore[method-assign]
    async with app.run_test(size=(120, 40)) as pilot:
        await _hand(app, source, pilot, _snapshots(1))
        await pilot.press("p")
        rung.clear()
        # The fresh monitor comes to its verdicts while the screen stands still.
        await _hand(app, source, pilot, _snapshots(40, 2))
        assert app.playback.newest is not None
        red = {d.uuid for d in app.playback.newest.diagnoses if d.level == "red" or d.busy_not_working}
        assert red and 1 <= len(rung) <= len(red)


async def test_what_is_played_is_not_recorded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session = Session(Monitor())
    session.remember()
    for snapshot in _snapshots(3):
        session.take(snapshot)
    past = session.past()
    assert past is not None
    app = GputopApp(View(), "dark", Playback(player=Player(RecordedSource(past))))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("R")
        assert app.view.message == "this is a recording already"
    assert list(tmp_path.iterdir()) == []


async def test_a_picture_is_in_the_theme_that_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    changes = [Reload(replace(Settings(), theme="light"), [])]
    app, _ = _app(reload=lambda now: changes.pop() if changes else None)
    async with app.run_test(size=(120, 40)) as pilot:
        app._watch()
        await pilot.press("f8")
    (picture,) = tmp_path.iterdir()
    background = THEMES["light"].background
    assert background is not None and background in picture.read_text()


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_quitting(key: str) -> None:
    app, _ = _app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(key)
    assert app.return_code == 0


async def test_a_source_that_falls_silent_is_called_stale() -> None:
    app, _ = _app()
    async with app.run_test(size=(160, 48)) as pilot:
        app._clock = lambda: app._heard + 7.0  # the clock is a constructor argument; here it jumps
        app._watch()
        await pilot.pause(0.1)
        assert "STALE 7 s" in _rows(app)[0]


async def test_a_crash_is_kept_for_one_line_and_prints_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    app, source = _app()
    with pytest.raises(ZeroDivisionError):
        async with app.run_test(size=(80, 24)) as pilot:
            app.playback.session.monitor.feed = lambda snapshot: 1 / 0  # type: ignore[method-assign,assignment,return-value]
            source.next = demo_frame().snapshot
            app.post_message(SnapshotReady())
            await pilot.pause()
            await asyncio.sleep(0)
    assert isinstance(app.crash, ZeroDivisionError)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.slow
async def test_the_palette_runs_every_command_by_name() -> None:
    app, _ = _app()
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("ctrl+p")
        await pilot.pause(0.2)
        await pilot.press(*"show a longer time")
        await pilot.pause(0.3)
        await pilot.press("enter")
        await pilot.pause(0.3)
        await pilot.press("enter")
        await pilot.pause(0.3)
        assert app.view.span_s == 300.0


async def test_keys_of_ones_own_replace_the_usual_ones_and_stand_in_the_help() -> None:
    app, _ = _app(keys={"findings": "f7", "quit": "x"})
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("A")
        assert len(app.screen_stack) == 1
        await pilot.press("f7")
        assert isinstance(app.screen, FindingsScreen)
        await pilot.press("escape", "question_mark")
        assert "F7" in "\n".join("".join(text for text, _ in row) for row in app.screen.rows(120))  # type: ignore[attr-defined]
        await pilot.press("escape", "x")
    assert app.return_code == 0


async def test_a_changed_configuration_counts_while_the_screen_runs() -> None:
    changes = [Reload(replace(Settings(), theme="light", columns=("pid", "command")), [])]
    app, _ = _app(reload=lambda now: changes.pop() if changes else None)
    async with app.run_test(size=(120, 40)) as pilot:
        app._watch()
        await pilot.pause(0.1)
        assert app.view.columns == ("pid", "command")
        assert "configuration reloaded" in _rows(app)[1]
        assert app.look.name == "light"


async def test_a_broken_configuration_leaves_the_settings_in_force_and_says_why() -> None:
    changes = [Reload(None, ["config.toml: theme must be a text"])]
    app, _ = _app(reload=lambda now: changes.pop() if changes else None)
    async with app.run_test(size=(120, 40)) as pilot:
        before = app.view.columns
        app._watch()
        await pilot.pause(0.1)
        assert app.view.columns == before
        assert "theme must be a text" in _rows(app)[1]


async def test_what_is_recorded_is_what_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app, source = _app()
    snapshot = replace(_snapshots(1)[0], t=MOMENT + 1)
    fine = replace(snapshot, gpus=tuple(replace(gpu, util_pct=79.99996) for gpu in snapshot.gpus))
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.press("R")
        await _hand(app, source, pilot, [fine])
        assert app.frame is not None
        assert {gpu.util_pct for gpu in app.frame.snapshot.gpus} == {80.0}
        await pilot.press("R")
