"""``python -m tests.tools.reference`` writes the pages of ``docs/`` that come from the program's own tables.

It also writes the table of faults that the package ships, from the tests' fault matrix. A test finds old ones.
"""

from __future__ import annotations

import json
from pathlib import Path

from gputop.commands.registry import TOPICS, page_of
from gputop.output.document import markdown
from gputop.output.reference_pages import TABLE
from tests.faults import table
from tests.tools import hardware_page, verdict_pictures

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
MADE_BY = "python -m tests.tools.reference"


def faults() -> str:
    """The shipped table: a row a line, so that a change shows as one."""
    return "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in table.cells()) + "\n]\n"


def texts() -> dict[Path, str]:
    """Every generated file and its text of today; ``docs/faults.md`` is made of the table that is shipped."""
    pages = {DOCS / f"{topic}.md": markdown(page_of(topic), MADE_BY) for topic in TOPICS}
    return pages | {DOCS / "hardware.md": hardware_page.page(), DOCS / "pictures.md": verdict_pictures.page(MADE_BY)}


if __name__ == "__main__":
    TABLE.write_text(faults(), encoding="utf-8")
    DOCS.mkdir(exist_ok=True)
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")
