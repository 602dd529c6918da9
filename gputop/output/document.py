"""Documents and their writers for a terminal, Markdown and HTML.

A writer lays out, and makes every text harmless where it will be read, as any may be from outside: no control character
reaches a terminal, no name becomes markup. Headings, paragraphs, entries and remedies are mostly gputop's own words, in
which `backticks` mark code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from gputop.diagnosis.types import Level
from gputop.output.html import (
    LEAST_SHARE,
    Markup,
    Part,
)
from gputop.paint.glyphs import level_glyph

LEAST_WIDTH = 40
WIDTH = 100
MOST_WIDTH = 120
"""Columns of a text whose reader is not known, and the most of any: longer lines are hard to read."""
LEAST_NAME = 12
MOST_KEY = 28
"""Characters of a cell that a page does not break."""
LEAST_BAR, MOST_BAR = 8, 40
NOTHING = "–"
SOURCE_WIDTH = 120
ACTIVE = re.compile(r"[\\*]|\](?=[(\[:])|<(?=[A-Za-z/!?])|(?<!\w)_|_(?!\w)")
"""Characters that Markdown would take for emphasis, a link, an image or HTML."""


class Heading(Struct, frozen=True):
    """The title of a section."""

    text: str


class Paragraph(Struct, frozen=True):
    """A paragraph of prose."""

    text: str


class Items(Struct, frozen=True):
    """Sentences below the previous block, one a line."""

    texts: tuple[str, ...]


class Notes(Struct, frozen=True):
    """Remarks at the end, one a line."""

    texts: tuple[str, ...]


class Code(Struct, frozen=True):
    """Lines to copy, which are never broken."""

    lines: tuple[str, ...]


class Bar(Struct, frozen=True):
    """A cell with shares side by side.

    A terminal draws it if it has one share and there is room.
    """

    parts: tuple[Part, ...]


class LevelText(Struct, frozen=True):
    """A cell in the colour of a level."""

    level: Level
    text: str


Cell = str | Bar | LevelText


class Table(Struct, frozen=True):
    """Rows of cells under column heads.

    ``sides`` has a character a column: ``<`` text, ``>`` number, ``~`` text that is cut where a terminal has no room,
    ``=`` bar. A column without cells is hidden. ``below`` has a remark on each row, or an empty text.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    sides: str
    below: tuple[str, ...] = ()

    def columns(self, *, bars: bool) -> list[int]:
        """Indices of the visible columns."""
        return [
            i
            for i, side in enumerate(self.sides)
            if any(row[i] for row in self.rows) and (bars or side != "=")
        ]


class Entries(Struct, frozen=True):
    """Rows to look up: a name, its text, and further columns.

    A terminal shows the further columns after their heads. In Markdown, ``listed`` rows are sections, in which the
    parts of the text between semicolons are a list.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    listed: bool = False

    def columns(self) -> list[int]:
        """Columns that have a cell."""
        return [i for i in range(len(self.head)) if any(row[i] for row in self.rows)]


class Verdict(Struct, frozen=True):
    """A judgement with evidence and remedy.

    ``aside`` is its confidence or duration, ``gain`` the gain of the remedy, ``more`` has labelled texts. Each but the
    headline may be empty.
    """

    level: Level
    headline: str
    aside: str = ""
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    gain: str = ""
    more: tuple[tuple[str, str], ...] = ()


class Figures(Struct, frozen=True):
    """Figures with their names and remarks."""

    rows: tuple[tuple[str, str | LevelText, str], ...]


class Breakdown(Struct, frozen=True):
    """Parts of a whole in percent."""

    parts: tuple[Part, ...]


class Drawing(Struct, frozen=True):
    """A picture, shown on pages only."""

    markup: Markup


Block = (
    Heading
    | Paragraph
    | Items
    | Notes
    | Code
    | Table
    | Entries
    | Verdict
    | Figures
    | Breakdown
    | Drawing
)


class Document(Struct, frozen=True):
    """A report or a page.

    ``lead`` has the most important lines first; a terminal shows it in place of the title.
    """

    title: str
    blocks: tuple[Block, ...]
    lead: tuple[str, ...] = ()

    @property
    def entries(self) -> list[tuple[str, Entries]]:
        """All entries with the titles above them."""
        title, titled = self.title, []
        for block in self.blocks:
            if isinstance(block, Heading):
                title = block.text
            elif isinstance(block, Entries):
                titled.append((title, block))
        return titled


def part(title: str, *blocks: Block | None) -> tuple[Block, ...]:
    """A heading with its non-empty blocks; nothing without them."""
    inside = tuple(block for block in blocks if block is not None and not is_empty(block))
    return (Heading(title), *inside) if inside else ()


def is_empty(block: Block) -> bool:
    """Whether a block says nothing."""
    match block:
        case Items(inside) | Notes(inside) | Code(inside) | Figures(inside) | Breakdown(inside):
            return not inside
        case Table() | Entries():
            return not block.rows
    return False


def below_title(document: Document) -> list[str]:
    """Lines of the lead that the title does not repeat."""
    return [
        text for text in document.lead if text not in (document.title, f"gputop: {document.title}")
    ]


def section(
    title: str,
    text: Iterable[str],
    head: tuple[str, ...] = (),
    rows: tuple[tuple[str, ...], ...] = (),
) -> tuple[Block, ...]:
    """A section of a page: paragraphs and entries."""
    return part(title, *map(Paragraph, text), Entries(head, rows) if rows else None)


def page(title: str, text: Iterable[str], sections: Iterable[Iterable[Block]]) -> Document:
    """A page of `gputop help` and of docs/."""
    return Document(
        title, (*map(Paragraph, text), *(block for section in sections for block in section))
    )


def as_table(block: Table | Figures | Breakdown) -> Table:
    """Return figures or a breakdown as a table."""
    match block:
        case Figures(rows):
            return Table(
                ("", "", ""),
                tuple((name, levelled(value)[1], note) for name, value, note in rows),
                "<><",
            )
        case Breakdown(parts):
            shown = [part for part in parts if part[2] >= LEAST_SHARE]
            return Table(
                ("", "", ""),
                tuple((part[1], f"{part[2]:.1f} %", Bar((part,))) for part in shown),
                "<>=",
            )
    return block


def cell_text(cell: Cell) -> str:
    """Return a cell as plain text."""
    if isinstance(cell, LevelText):
        return f"{level_glyph(cell.level)} {cell.text}"
    return "" if isinstance(cell, Bar) else cell


def levelled(value: str | LevelText) -> tuple[str, str]:
    """Level and text of a value; the level is empty without one."""
    return (value.level, value.text) if isinstance(value, LevelText) else ("", value)


def indented_json(data: Mapping[str, Any]) -> str:
    """JSON with one value a line.

    Raises ValueError for NaN, which is no JSON.
    """
    return json.dumps(data, allow_nan=False, indent=1) + "\n"
