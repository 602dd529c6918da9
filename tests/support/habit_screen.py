"""The demo's screen after some keys, and where its cursor and its rows are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from gputop.monitor import Frame
from gputop.paint import process_table
from gputop.paint.process_table import shown_rows
from gputop.paint.view import View
from gputop.tui.node_app import GputopApp
from tests.support.fake_app import Asked, app_on
from tests.support.steady_pilot import shown


@asynccontextmanager
async def screen_after(
    *keys: str, view: View | None = None, access: Asked | None = None, frame: Frame | None = None
) -> AsyncIterator[tuple[GputopApp, Pilot[int]]]:
    """The demo's screen after some keys."""
    app, _ = app_on(frame, view, access)
    async with shown(app, (160, 48)) as pilot:
        await pilot.press(*keys)
        yield app, pilot


def order(app: GputopApp) -> list[int]:
    assert app.frame is not None
    return [shown.process.pid for shown in shown_rows(app.frame, app.view) if not shown.branch]


def cursor(app: GputopApp) -> int:
    assert app.frame is not None
    return process_table.cursor(shown_rows(app.frame, app.view), app.frame, app.view)
