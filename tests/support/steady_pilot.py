"""A screen in a test, that is driven by keys and waited for until it has answered them, however busy the machine is.

Textual's own pilot takes a process that is not given a core for an idle one, so that beside other tests a key's answer
may not be there yet when the test looks at it.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from textual.app import App
from textual.events import Key
from textual.keys import KEY_NAME_REPLACEMENTS, key_to_character
from textual.pilot import Pilot

from gputop.tui.painted_app import PaintedApp

HOPS = 6
"""So often is what one part of the screen tells the next one waited for: from a key to a screen that it opens are
four, the program, the screen below, the screen above and what it shows."""


class SteadyPilot(Pilot[Any]):
    """Waits until each part of the screen has answered, and what is to be painted is painted."""

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.burst(key)

    async def burst(self, *keys: str) -> None:
        """Keys as fast as a terminal can send them."""
        for key in keys:
            self.app.post_message(
                Key(key, key_to_character(key)) if len(key) > 1 else Key(_name(key), key)
            )
        await self.settle()

    async def pause(self, delay: float | None = None) -> None:
        if delay is not None:
            await asyncio.sleep(delay)
        await self.settle()

    async def settle(self) -> None:
        """Return once nothing that was asked so far is left to do. A program that has ended has nothing left."""
        for _ in range(HOPS):
            if not self.app.is_running or not self.app.screen_stack:
                return
            await super().pause(0)
        if isinstance(self.app, PaintedApp) and self.app._due is not None:
            # A painting that is put off by a twentieth of a second: a test does not wait for it.
            self.app.paint()
            await super().pause(0)


def _name(character: str) -> str:
    """What Textual calls the key of a character."""
    if character.isalnum():
        return character
    name = unicodedata.name(character).lower().replace("-", "_").replace(" ", "_")
    return KEY_NAME_REPLACEMENTS.get(name, name)


@asynccontextmanager
async def shown(app: App[Any], size: tuple[int, int]) -> AsyncIterator[SteadyPilot]:
    """Run a program on a screen of ``size`` columns and rows, and give it once its first picture is painted."""
    async with app.run_test(size=size):
        pilot = SteadyPilot(app)
        await pilot.settle()
        yield pilot
