"""The screen in a real browser: two viewers, a closed tab, a reload, a wrong token, and what the page asks for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.browser import CHROMIUM, PATIENCE_S, Browser
from tests.support.serving import Serving, gone

pytest.importorskip("textual_serve", reason="needs the extra `web`")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]
SHOWN = "document.body && document.body.classList.contains('-first-byte')"
ENDED = "document.body && document.body.classList.contains('-ended')"
WORDS = "document.getElementById('words').textContent"


async def _drawn(page: Browser, path: Path) -> None:
    """Until a picture of the page is more than an empty ground, which compresses to a few kilobytes."""
    while not path.exists() or path.stat().st_size < 30_000:
        await page.picture(path)


async def test_two_tabs_a_reload_and_a_closed_tab(tmp_path: Path) -> None:
    async with Serving() as serving, Browser(tmp_path / "first") as page:
        await page.call("Page.navigate", url=serving.address)
        await page.wait_for(SHOWN)
        await asyncio.wait_for(_drawn(page, tmp_path / "page.png"), PATIENCE_S)
        assert page.console == []
        assert any(address.startswith("ws:") for address in page.requests)
        assert {address.split("/")[2] for address in page.requests} == {
            serving.origin.split("/")[2]
        }
        (first,) = serving.viewers()
        async with Browser(tmp_path / "second") as other:
            await other.call("Page.navigate", url=serving.address)
            await other.wait_for(SHOWN)
            assert len(serving.viewers()) == 2
        await gone([pid for pid in serving.viewers() if pid != first], 5.0)
        await page.call("Page.reload")
        await gone([first], 5.0)
        await page.wait_for(SHOWN)
        assert len(serving.viewers()) == 1
        await page.call("Input.insertText", text="q")
        await page.wait_for(ENDED)
        assert await page.evaluate(WORDS) == "The screen was closed."
        await gone(serving.viewers(), 5.0)


async def test_a_wrong_token_shows_nothing_and_the_end_of_the_server_is_said(
    tmp_path: Path,
) -> None:
    async with Serving() as serving, Browser(tmp_path / "profile") as page:
        await page.call("Page.navigate", url=f"{serving.origin}/wrong/")
        await page.wait_for("document.body && document.body.textContent.includes('404')")
        assert serving.viewers() == []
        await page.call("Page.navigate", url=serving.address)
        await page.wait_for(SHOWN)
        serving.process.kill()
        await page.wait_for(ENDED)
        assert await page.evaluate(WORDS) == "The connection to gputop was lost."
