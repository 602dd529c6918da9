"""``python -m tests.tools.reference`` writes the pages of ``docs/`` that come from the program's own tables.

A test finds pages that are out of date.
"""

from __future__ import annotations

from pathlib import Path

from gputop.command_line.registry import TOPICS, page_of
from gputop.output.markdown_document import markdown
from tests.tools import fleet_reference, hardware_page, threads_page, verdict_pictures

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
MADE_BY = "python -m tests.tools.reference"


def texts() -> dict[Path, str]:
    """Return every generated file with its current text."""
    pages = {DOCS / f"{topic}.md": markdown(page_of(topic), MADE_BY) for topic in TOPICS}
    return pages | {
        DOCS / "hardware.md": hardware_page.page(),
        DOCS / "pictures.md": verdict_pictures.page(MADE_BY),
        DOCS / "design/threads.md": threads_page.page(MADE_BY),
        DOCS / "fleet_reference.md": fleet_reference.reference_page(MADE_BY),
    }


if __name__ == "__main__":
    DOCS.mkdir(exist_ok=True)
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")
