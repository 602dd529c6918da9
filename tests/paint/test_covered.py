"""What a full page covered is as new as everything else when the page closes."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.paint.main_screen import main_screen
from gputop.paint.process_filter import parse
from gputop.tui.node_app import GputopApp, NodeView
from gputop.tui.screens.prompt import Prompt
from gputop.tui.screens.scrolling import RowsScreen
from tests.support.fake_app import app_on, later
from tests.support.frames import demo_frame
from tests.support.steady_pilot import shown


def _is_current(app: GputopApp) -> bool:
    assert app.frame is not None
    shown = app.screen_stack[0].query_one(NodeView).rows
    return shown == main_screen(app.frame, app.playback.shown_view(app.view), *app.size).rows


async def test_what_a_page_covered_is_current_as_soon_as_it_closes() -> None:
    frame = demo_frame()
    app, _ = app_on(frame)
    async with shown(app, (120, 40)) as pilot:
        await pilot.press("question_mark")
        assert isinstance(app.screen, RowsScreen)
        for second in (1.0, 2.0):
            app.deliver(later(frame, second))
            await pilot.pause()
        # A question above the page hides no less of the main screen when it closes.
        app.push_screen(Prompt("where to?"))
        await pilot.press("escape")
        app.see(replace(app.view, filter=parse("gpu:0")))
        await pilot.pause()
        assert app.frame is not None
        assert app.frame.snapshot.t == frame.snapshot.t + 2.0
        app.pop_screen()
        assert _is_current(app), "before anything else can happen"
        await pilot.pause()
        assert _is_current(app)
        assert len(app.screen_stack) == 1
