"""``python -m tests.tools.report_picture`` draws README's picture of a report: the demo's, in a headless Chromium."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from gputop.cli import main
from tests.support.browser import CHROMIUM, Browser

PICTURE = Path(__file__).parents[2] / "screenshots" / "report.png"
SIZE = (1200, 900)


async def draw(folder: Path) -> None:
    """Take the picture of the upper part of the page."""
    page = folder / "report.html"
    if main(["report", "demo", "--seed", "1", "-o", str(page)]) != 0:
        sys.exit("the report could not be made")
    async with Browser(folder / "profile", *SIZE) as browser:
        await browser.call("Page.navigate", url=page.as_uri())
        await browser.wait_for("document.readyState === 'complete'")
        await browser.picture(PICTURE)


if __name__ == "__main__":
    if CHROMIUM is None:
        sys.exit("this needs Chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        asyncio.run(draw(Path(made)))
