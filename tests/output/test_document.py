"""A document in each of its forms: what each writer shows, and that nothing in a document can do harm."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given

from gputop.output.document import (
    Block,
    Document,
    Entries,
    Found,
    Heading,
    Items,
    Notes,
    Paragraph,
    Table,
    html,
    indented_json,
    markdown,
    part,
    plain,
    table_lines,
)
from tests.support.examples import any_text, looks

FOUND = Found("GPU 3", "red", "starved", "for 12 s", "GPU idle 62 %", "raise num_workers")
DOCUMENT = Document(
    "A report",
    (
        Table(("GPU", "UTIL", "COST"), (("0", "97", ""), ("1", "8", "")), "<>>"),
        Items(("Steps: 12 of 41.2 ms",)),
        *part("Findings", FOUND),
        *part("What to change", Items(())),
        Notes(("SM n/a",)),
    ),
    ("gputop: 12 s on node-17",),
)


def test_a_terminal_gets_the_lead_aligned_tables_and_what_belongs_together() -> None:
    assert plain(DOCUMENT).splitlines() == [
        "gputop: 12 s on node-17", "",
        "  GPU  UTIL", "  0      97", "  1       8", "  Steps: 12 of 41.2 ms", "",
        "Findings", "  GPU 3  red     starved: for 12 s", "    ↳ GPU idle 62 %", "    → raise num_workers",
        "note: SM n/a",
    ]  # fmt: skip


def test_markdown_has_the_same_under_headings_with_numbers_on_the_right() -> None:
    assert markdown(DOCUMENT).splitlines() == [
        "# A report", "", "gputop: 12 s on node-17", "",
        "| GPU | UTIL |", "|---|---:|", "| 0 | 97 |", "| 1 | 8 |", "", "- Steps: 12 of 41.2 ms", "",
        "## Findings", "", "- **GPU 3: starved** (red), for 12 s", "  - GPU idle 62 %", "  - → raise num_workers", "",
        "- SM n/a",
    ]  # fmt: skip


def test_a_page_has_the_same_and_no_part_without_content() -> None:
    page = html(DOCUMENT)
    for text in (
        "A report",
        "gputop: 12 s on node-17",
        "UTIL",
        "Findings",
        "GPU 3: starved",
        "raise num_workers",
        "SM n/a",
    ):
        assert text in page
    for form in (page, plain(DOCUMENT), markdown(DOCUMENT)):
        assert "COST" not in form and "What to change" not in form


def test_a_table_that_must_fit_cuts_its_first_column_alone() -> None:
    table = Table(("name", "calls"), (("aten::add " * 12, "1234567"), ("b", "2")), "<>")
    head, *rows = table_lines(table, 60)
    assert max(map(len, (head, *rows))) <= 60
    assert rows[0].endswith(" 1234567") and rows[1].endswith("       2")
    assert max(map(len, table_lines(table))) > 60


def test_a_number_that_is_none_is_no_json() -> None:
    with pytest.raises(ValueError, match="JSON"):
        indented_json({"util_pct": float("nan")})


class _Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)


def _holding(text: str) -> Document:
    blocks: tuple[Block, ...] = (
        Items((text,)), Notes((text,)), Table((text, "b"), ((text, "1"),), "<>"),
        Found(text, "red", text, text, text, text), Heading("own"), Paragraph("own"),
        Entries(("a", "b"), (("c", "d"),)),
    )  # fmt: skip
    return Document(text, blocks, (text,))


@looks(30)
@given(any_text(60))
def test_no_text_reaches_a_terminal_as_more_than_text_nor_a_page_as_markup(text: str) -> None:
    own = _Elements(html(_holding("`x`"))).found
    for attack in (text, f"<img src=x onerror={text}>", f"\x1b]0;{text}\x07", f"![a](http://x)`{text}`|"):
        document = _holding(attack)
        for form in (plain(document), markdown(document)):
            assert all(char.isprintable() or char == "\n" for char in form)
        assert _Elements(html(document)).found <= own
        unescaped = re.sub(r"\\.", "", markdown(document))
        assert "<img" not in unescaped and "](" not in unescaped and "`" not in unescaped
