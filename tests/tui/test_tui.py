"""The interactive screen through a pilot: keys, mouse, sizes, crashes. Snapshots are handed in; nothing sleeps."""

from __future__ import annotations

import asyncio

import pytest

from gputop.tui.terminal.guard import TerminalGuard
from gputop.tui.terminal.rows_widget import LiveRows
from tests.support.fake_app import app_on, screen_rows
from tests.support.frames import demo_frame
from tests.support.steady_pilot import shown


async def test_a_painting_that_falls_into_the_way_out_is_dropped() -> None:
    app, _ = app_on()
    async with shown(app, (160, 48)) as pilot:
        await pilot.pause()
        app.paint_soon()
        app.paint_soon()
        await app.query_one(LiveRows).remove()
        await pilot.pause(0.2)
        assert app.crash is None


async def test_a_source_that_falls_silent_is_called_stale() -> None:
    app, _ = app_on()
    async with shown(app, (160, 48)) as pilot:
        app._clock = lambda: app._heard + 7.0  # the clock is a constructor argument; here it jumps
        app._watch()
        await pilot.pause(0.1)
        assert "STALE 7 s" in screen_rows(app)[0]


async def test_a_crash_is_kept_for_one_line_and_prints_no_traceback(
    capfd: pytest.CaptureFixture[str],
) -> None:
    app, _ = app_on()
    with pytest.raises(ZeroDivisionError):
        async with shown(app, (80, 24)) as pilot:
            app.playback.session.monitor.feed = lambda snapshot: 1 / 0  # type: ignore[method-assign,assignment,return-value]
            app.deliver(demo_frame().snapshot)
            await pilot.pause()
            await asyncio.sleep(0)
    assert isinstance(app.crash, ZeroDivisionError)
    assert "Traceback" not in capfd.readouterr().err


async def test_what_nobody_has_foreseen_leaves_the_last_picture_with_a_line_and_the_screen_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, _ = app_on()
    app.guard = TerminalGuard()

    async def pushed() -> list[str]:
        app.deliver(demo_frame().snapshot)
        await pilot.pause(0.1)
        return screen_rows(app)

    async with shown(app, (80, 24)) as pilot:
        before = await pushed()
        for broken in ("gputop.monitor.Monitor.feed", "gputop.paint.main_screen.Painter.paint"):
            with monkeypatch.context() as patched:
                patched.setattr(broken, lambda *_: 1 / 0)
                rows = await pushed()
                assert rows[1:-1] == before[1:-1]
                assert rows[-1].startswith(
                    " internal error: ZeroDivisionError: division by zero (test_tui.py:"
                )
            assert "internal error" not in (await pushed())[-1]
        with monkeypatch.context() as patched:
            patched.setattr(app, "press", lambda _: 1 / 0)
            await pilot.press("p")
            assert "internal error" in screen_rows(app)[-1]
        assert app.crash is None
