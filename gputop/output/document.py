"""What a report or a page says, apart from how it looks: a document, and its writers for a terminal, Markdown and HTML;
and the writer of JSON. Pure.

A writer lays out, and makes what came from outside harmless where it will be read: no control character reaches a
terminal, no name becomes markup. Headings, paragraphs and entries are gputop's own words, in which `backticks` mark
code; every other text may be from outside.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from gputop import __version__
from gputop.model.quantity import terminal_safe, wrapped
from gputop.output.html import Markup, element, notes, prose, table, verdict
from gputop.output.html import document as html_page
from gputop.paint.line import shorten

LEAST_WIDTH = 40
LEAST_NAME = 12
WIDTH = 100
"""A document follows a terminal's width between these two: longer lines are hard to read."""
NOTHING = "–"
_SOURCE_WIDTH = 120
_EMPHASIS = re.compile(r"\*|<(?=[A-Za-z/!?])|(?<!\w)_|_(?!\w)")
"""Characters that Markdown would take for emphasis or HTML."""


class Heading(Struct, frozen=True):
    """The title of a part."""

    text: str


class Paragraph(Struct, frozen=True):
    """Prose, apart from what is before it."""

    text: str


class Items(Struct, frozen=True):
    """Sentences that belong to what is before them, each on a line of its own."""

    texts: tuple[str, ...]


class Notes(Struct, frozen=True):
    """What a reader must know beside all that."""

    texts: tuple[str, ...]


class Table(Struct, frozen=True):
    """Rows of cells under their names. ``sides`` has a character a column: ``<`` texts, ``>`` numbers. A column without
    a cell is not shown.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sides: str

    @property
    def shown(self) -> tuple[list[list[str]], str]:
        """The head and the rows, and the sides, of the columns that have cells."""
        filled = [i for i in range(len(self.sides)) if any(row[i] for row in self.rows)]
        return [[row[i] for i in filled] for row in (self.head, *self.rows)], "".join(self.sides[i] for i in filled)


class Entries(Struct, frozen=True):
    """Rows to look things up in: the first column names its row, the second is the main text. A terminal shows the
    others after their heads.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Found(Struct, frozen=True):
    """A finding: on what, how bad, what, for how long, the evidence and what helps; those two may be empty."""

    where: str
    level: str
    text: str
    when: str
    evidence: str
    remedy: str


Block = Heading | Paragraph | Items | Notes | Table | Entries | Found


class Document(Struct, frozen=True):
    """A report or a page. ``lead`` says the most important thing first; a terminal shows it in place of the title."""

    title: str
    blocks: tuple[Block, ...]
    lead: tuple[str, ...] = ()

    @property
    def entries(self) -> list[tuple[str, Entries]]:
        """The rows to look things up in, with the title above them."""
        title, found = self.title, []
        for block in self.blocks:
            if isinstance(block, Heading):
                title = block.text
            elif isinstance(block, Entries):
                found.append((title, block))
        return found


def part(title: str, *blocks: Block | None) -> tuple[Block, ...]:
    """A heading with what is below it; nothing where nothing is."""
    inside = [block for block in blocks if block is not None and block not in (Items(()), Notes(()))]
    inside = [block for block in inside if not isinstance(block, Table) or block.rows]
    return (Heading(title), *inside) if inside else ()


def section(
    title: str, text: Iterable[str], head: tuple[str, ...] = (), rows: tuple[tuple[str, ...], ...] = ()
) -> tuple[Block, ...]:
    """A part of a page: paragraphs, and rows to look things up in."""
    return part(title, *map(Paragraph, text), Entries(head, rows) if rows else None)


def page(title: str, text: Iterable[str], sections: Iterable[Iterable[Block]]) -> Document:
    """A page of `gputop help` and of docs/."""
    return Document(title, (*map(Paragraph, text), *(block for section in sections for block in section)))


# JSON.


def indented_json(data: Mapping[str, Any]) -> str:
    """One JSON object, a line a value; a NaN that got this far is an error, not output."""
    return json.dumps(data, allow_nan=False, indent=1) + "\n"


# A terminal.


def plain(document: Document, width: int = WIDTH) -> str:
    """For a terminal of that many columns."""
    width = min(max(width, LEAST_WIDTH), WIDTH)
    lines = list(document.lead) or [_bare(document.title)]
    inside = False
    for block in document.blocks:
        inside = inside or isinstance(block, Heading)
        if isinstance(block, (Heading, Paragraph, Table, Entries)):
            lines.append("")
        lines += _plain_block(block, width, inside)
    return text_lines(lines)


def text_lines(lines: Iterable[str]) -> str:
    """Lines as one text, safe on a terminal."""
    return "".join(terminal_safe(line).rstrip() + "\n" for line in lines)


def labelled(label: str, text: str, width: int, indent: int | None = None) -> list[str]:
    """A text after its label, further lines below the text, or indented by ``indent``."""
    return wrapped(text, width, label, " " * (len(label) if indent is None else indent)) or [label]


def _plain_block(block: Block, width: int, inside: bool) -> list[str]:
    match block:
        case Heading(title):
            return [_bare(title)]
        case Paragraph(text):
            indent = 2 * inside
            return labelled(" " * indent, _bare(text), width)
        case Items(texts):
            return [line for text in texts for line in labelled("  ", text, width, 4)]
        case Notes(texts):
            return [line for text in texts for line in labelled("note: ", text, width)]
        case Table():
            # A figure that is cut is worse than a line that a terminal breaks.
            return table_lines(block)
        case Entries(head, rows):
            return _entries(head, rows, width)
        case Found():
            lines = labelled("  ", f"{block.where}  {block.level:<6}  {block.text}: {block.when}", width, 4)
            lines += labelled("    ↳ ", block.evidence, width) if block.evidence else []
            return lines + (labelled("    → ", block.remedy, width) if block.remedy else [])


def table_lines(table: Table, width: int | None = None) -> list[str]:
    """The head and the rows in columns as wide as their widest cell. To fit a ``width`` the first column is cut."""
    rows, sides = table.shown
    widths = [max(len(row[i]) for row in rows) for i in range(len(sides))]
    if width is not None and rows[1:]:
        widths[0] = max(LEAST_NAME, min(widths[0], width - sum(widths[1:]) - 2 * len(widths)))
        rows = [[shorten(row[0], widths[0]), *row[1:]] for row in rows]
    return [
        "  " + "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        for row in rows
    ]


def _bare(text: str) -> str:
    return text.replace("`", "")


_INDENT = 4


def _entries(head: tuple[str, ...], rows: tuple[tuple[str, ...], ...], width: int) -> list[str]:
    """Each row's name with its text beside it, or below it where the name is too long for its column."""
    names = [_bare(row[0]) for row in rows]
    column = min(max(map(len, names), default=0), width // 3) + _INDENT
    lines = []
    for name, row in zip(names, rows, strict=True):
        first, *rest = _texts(head, row, width, column)
        if len(name) + _INDENT > column:
            lines += [*labelled("  ", name, width), first]
        else:
            lines.append(f"  {name}".ljust(column) + first[column:])
        lines += rest
    return lines


def _texts(head: tuple[str, ...], row: tuple[str, ...], width: int, indent: int) -> list[str]:
    """The second column, and what the others say, each after its head: on the same line where they fit there."""
    space, text = " " * indent, _bare(row[1])
    more = " · ".join(f"{of}: {_bare(cell)}" for of, cell in zip(head[2:], row[2:], strict=True)
                      if cell not in ("", NOTHING))  # fmt: skip
    together = labelled(space, f"{text} · {more}", width)
    if not more or len(together) == 1:
        return together if more else labelled(space, text, width)
    return labelled(space, text, width) + labelled(space, more, width)


# Markdown.


def markdown(document: Document, made_by: str = "") -> str:
    """As Markdown. ``made_by`` is the command that writes it, for whoever would edit it by hand."""
    lines = [f"# {_inert(document.title)}", ""]
    if made_by:
        lines += [f"<!-- written by `{made_by}`: change the table in the code, not this page -->", ""]
    for text in document.lead:
        lines += [_inert(text), ""]
    before: Block | None = None
    for block in document.blocks:
        if isinstance(before, (Items, Notes, Found)) and type(block) is not type(before):
            lines.append("")
        lines += _markdown_block(block)
        before = block
    return text_lines(lines).rstrip() + "\n"


def _markdown_block(block: Block) -> list[str]:
    match block:
        case Heading(title):
            return [f"## {_own(title)}", ""]
        case Paragraph(text):
            return [*wrapped(_own(text), _SOURCE_WIDTH, whole_words=True), ""]
        case Items(texts) | Notes(texts):
            return [f"- {_inert(text)}" for text in texts]
        case Table():
            shown, sides = block.shown
            cells = [_row(map(_inert, row)) for row in shown]
            return [cells[0], "|" + "".join("---:|" if side == ">" else "---|" for side in sides), *cells[1:], ""]
        case Entries(head, rows):
            cells = [_row(_own(cell or NOTHING).replace("|", "\\|") for cell in row) for row in rows]
            return [_row(head), "|" + "---|" * len(head), *cells, ""]
        case Found():
            lines = [f"- **{_inert(f'{block.where}: {block.text}')}** ({block.level}), {_inert(block.when)}"]
            lines += [f"  - {_inert(block.evidence)}"] if block.evidence else []
            return lines + ([f"  - → {_inert(block.remedy)}"] if block.remedy else [])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _own(text: str) -> str:
    """Words of our own, in which Markdown sees no emphasis and no HTML; code stays code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else _EMPHASIS.sub(r"\\\g<0>", part) for part in parts)


def _inert(text: str) -> str:
    """Text from outside: a name cannot become a table, code, HTML, or an image that is fetched."""
    return re.sub(r"[\\|\[\]*]", r"\\\g<0>", text).replace("<", "&lt;").replace("`", "'")


# HTML.


def html(document: Document, footer: str = "") -> str:
    """As a page for a browser, self-contained."""
    # A terminal shows the lead in place of the title, a page below it: what the title says is not said twice.
    said = {document.title, f"gputop: {document.title}"}
    lead = [element("p", text, class_="dim") for text in document.lead if text not in said]
    body = [element("h1", document.title), *lead, *html_parts(document.blocks)]
    return html_page(f"gputop: {document.title}", *body, footer=f"{footer} gputop {__version__}".strip())


def html_parts(blocks: Iterable[Block]) -> list[Markup]:
    """What a page has for these blocks."""
    return [part for block in blocks for part in _html_block(block)]


def _html_block(block: Block) -> list[Markup]:
    match block:
        case Heading(title):
            return [element("h2", prose(title))]
        case Paragraph(text):
            return [element("p", prose(text))]
        case Items(texts):
            return [element("p", text) for text in texts]
        case Notes(texts):
            return [notes(texts)]
        case Table():
            (head, *rows), sides = block.shown
            return [table(head, rows, sides.replace("<", "t").replace(">", "n"))]
        case Entries(head, rows):
            return [table(head, [[prose(cell) for cell in row] for row in rows], "t" * len(head))]
        case Found():
            evidence = [block.evidence] if block.evidence else []
            return [verdict(block.level, f"{block.where}: {block.text}", block.when, evidence, block.remedy, "")]
