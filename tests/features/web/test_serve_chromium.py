"""The screen in a real browser: what it draws, what it asks for, and what it gives away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.browser import CHROMIUM, PATIENCE_S, Browser
from tests.support.serving import Eavesdropper, Serving

pytest.importorskip("textual_serve", reason="needs the extra `web`")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]


async def _drawn(page: Browser, path: Path) -> None:
    """Until a picture of the page is more than an empty ground, which compresses to a few kilobytes."""
    while not path.exists() or path.stat().st_size < 30_000:
        await page.picture(path)


async def test_chromium_draws_it_asks_no_other_host_and_gives_nothing_away(tmp_path: Path) -> None:
    async with Serving() as serving, Browser(tmp_path / "profile") as page:
        await page.call("Page.navigate", url=serving.address)
        await page.wait_for("document.body && document.body.classList.contains('-first-byte')")
        await asyncio.wait_for(_drawn(page, tmp_path / "page.png"), PATIENCE_S)
        assert page.console == []
        assert any(address.startswith("ws:") for address in page.requests)
        for address in page.requests:
            assert address.split("/")[2] == serving.base.split("/")[2], address
            assert serving.key not in address
        assert await page.evaluate("location.href + document.cookie") == serving.base + "/"
        # Loaded again it works, too: the key was kept for this tab.
        await page.call("Page.reload")
        await page.wait_for("document.body && document.body.classList.contains('-first-byte')")
        await page.call("Input.insertText", text="q")
        await page.wait_for("document.body.classList.contains('told')")
        assert await page.evaluate("document.getElementById('words').textContent") == "The screen was closed."


async def test_all_that_a_server_on_another_port_is_sent_is_of_no_use(tmp_path: Path) -> None:
    """The other one gets the tab in which the screen was to load its page, and keeps what it is sent."""
    async with Serving() as serving, Eavesdropper(serving.base) as other, Browser(tmp_path / "profile") as page:
        await page.call("Page.navigate", url=serving.address)
        await page.wait_for("document.body && document.body.classList.contains('-first-byte')")
        await page.evaluate(f"location.href = {other.base!r}")
        await page.wait_for("document.title === 'done'")
        heard = other.heard
        assert {path.partition("?")[0] for path, _ in heard} >= {"/", "/image", "/fetched", "/ws"}
        assert serving.key not in repr(heard)
        for path, headers in heard:
            for host in (headers["Host"], f"127.0.0.1:{serving.port}"):
                replayed = {**headers, "Host": host}
                assert await serving.replay(path, replayed) == 403, (path, replayed)
