"""What a full page covers is not painted, and is as new as everything else when the page closes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gputop.paint.main_screen import Painter, main_screen
from gputop.paint.process_filter import parse
from gputop.tui.node_app import GputopApp
from gputop.tui.node_canvas import Canvas
from gputop.tui.screens.prompt import Ask
from gputop.tui.screens.scrolling import RowsScreen
from tests.support.fake_app import app_on, later
from tests.support.frames import demo_frame


def _is_current(app: GputopApp) -> bool:
    assert app.frame is not None
    shown = app.screen_stack[0].query_one(Canvas).rows
    return shown == main_screen(app.frame, app.playback.shown_view(app.view), *app.size).rows


async def test_beneath_a_page_nothing_is_painted_until_it_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    painted: list[float] = []
    real = Painter.paint

    def counting(self: Painter, frame: object, *rest: object) -> object:
        painted.append(frame.snapshot.t)  # type: ignore[attr-defined]
        return real(self, frame, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Painter, "paint", counting)
    frame = demo_frame()
    app, source = app_on(frame)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("question_mark")
        assert isinstance(app.screen, RowsScreen)
        painted.clear()
        for second in (1.0, 2.0):
            source.next = later(frame, second)
            app.ready()
            await pilot.pause()
        # A question above the page hides no less of the main screen when it closes.
        app.push_screen(Ask("where to?"))
        await pilot.press("escape")
        app.see(replace(app.view, filter=parse("gpu:0")))
        await pilot.pause()
        assert app.frame is not None
        assert app.frame.snapshot.t == frame.snapshot.t + 2.0
        assert painted == []
        app.pop_screen()
        assert painted == [frame.snapshot.t + 2.0], "before anything else can happen"
        assert _is_current(app)
        await pilot.pause()
        assert _is_current(app)
        assert len(app.screen_stack) == 1


async def test_beneath_a_question_the_screen_goes_on() -> None:
    frame = demo_frame()
    app, source = app_on(frame)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("f")
        source.next = later(frame)
        app.ready()
        await pilot.pause()
        assert len(app.screen_stack) == 2
        assert _is_current(app)
