"""Documents and their writers for a terminal, Markdown and HTML.

A writer lays out, and makes every text harmless where it will be read, as any may be from outside: no control character
reaches a terminal, no name becomes markup. Headings, paragraphs, entries and remedies are mostly gputop's own words, in
which `backticks` mark code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gputop import __version__
from gputop.diagnosis.types import Level
from gputop.model.quantity import terminal_safe, wrapped
from gputop.output.html import (
    LEAST_SHARE,
    Markup,
    Part,
    element,
    join,
    legend,
    notes,
    prose,
    stacked_bar,
    table,
    tiles,
    verdict,
)
from gputop.output.html import document as html_page
from gputop.paint.glyphs import LEFT, ascii_only, level_glyph
from gputop.paint.line import shorten

LEAST_WIDTH = 40
WIDTH = 100
MOST_WIDTH = 120
"""Columns of a text whose reader is not known, and the most of any: longer lines are hard to read."""
LEAST_NAME = 12
MOST_KEY = 28
"""Characters of a cell that a page does not break."""
LEAST_BAR, MOST_BAR = 8, 40
NOTHING = "–"
_SOURCE_WIDTH = 120
_ACTIVE = re.compile(r"[\\*]|\](?=[(\[:])|<(?=[A-Za-z/!?])|(?<!\w)_|_(?!\w)")
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
        return [i for i, side in enumerate(self.sides) if any(row[i] for row in self.rows) and (bars or side != "=")]


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


Block = Heading | Paragraph | Items | Notes | Code | Table | Entries | Verdict | Figures | Breakdown | Drawing


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
    inside = tuple(block for block in blocks if block is not None and not _is_empty(block))
    return (Heading(title), *inside) if inside else ()


def _is_empty(block: Block) -> bool:
    match block:
        case Items(inside) | Notes(inside) | Code(inside) | Figures(inside) | Breakdown(inside):
            return not inside
        case Table() | Entries():
            return not block.rows
    return False


def _below_title(document: Document) -> list[str]:
    """Lines of the lead that the title does not repeat."""
    return [text for text in document.lead if text not in (document.title, f"gputop: {document.title}")]


def section(
    title: str, text: Iterable[str], head: tuple[str, ...] = (), rows: tuple[tuple[str, ...], ...] = ()
) -> tuple[Block, ...]:
    """A section of a page: paragraphs and entries."""
    return part(title, *map(Paragraph, text), Entries(head, rows) if rows else None)


def page(title: str, text: Iterable[str], sections: Iterable[Iterable[Block]]) -> Document:
    """A page of `gputop help` and of docs/."""
    return Document(title, (*map(Paragraph, text), *(block for section in sections for block in section)))


# JSON.


def indented_json(data: Mapping[str, Any]) -> str:
    """JSON with one value a line.

    Raises ValueError for NaN, which is no JSON.
    """
    return json.dumps(data, allow_nan=False, indent=1) + "\n"


# A terminal.


def plain(document: Document, width: int = WIDTH, *, is_ascii: bool = False) -> str:
    """Lay out a document for a terminal of ``width`` columns."""
    width = min(max(width, LEAST_WIDTH), MOST_WIDTH)
    lines = [line for text in document.lead or (_bare(document.title),) for line in _labelled("", text, width, 2)]
    before: Block | None = None
    indent = 0
    for block in document.blocks:
        shown = [] if _is_empty(block) else _plain_block(block, width, indent)
        indent = 2 if isinstance(block, Heading) else indent
        if shown and not isinstance(block, Items | Notes) and not isinstance(before, Heading):
            lines.append("")
        lines += shown
        before = block if shown else before
    text = text_lines(lines)
    return ascii_only(text) if is_ascii else text


def text_lines(lines: Iterable[str]) -> str:
    """Join lines into text that is safe on a terminal."""
    return "".join(terminal_safe(line).rstrip() + "\n" for line in lines)


def _labelled(label: str, text: str, width: int, indent: int | None = None) -> list[str]:
    """Wrap a text behind its label.

    Further lines are indented by ``indent``, else by the label's width.
    """
    return wrapped(text, width, label, " " * (len(label) if indent is None else indent)) or [label]


def _plain_block(block: Block, width: int, indent: int) -> list[str]:
    match block:
        case Heading(title):
            return [_bare(title)]
        case Paragraph(text):
            return _labelled(" " * indent, _bare(text), width)
        case Items(texts):
            return [line for text in texts for line in _labelled("  ", text, width, 4)]
        case Notes(texts):
            return [line for text in texts for line in _labelled("note: ", text, width)]
        case Code(lines):
            return [f"  {line}" for line in lines]
        case Entries(head, rows):
            return _entries(head, rows, width)
        case Table() | Figures() | Breakdown():
            return _columns(_as_table(block), width)
        case Verdict():
            return _verdict(block, width)
    return []


def _as_table(block: Table | Figures | Breakdown) -> Table:
    match block:
        case Figures(rows):
            return Table(("", "", ""), tuple((name, _levelled(value)[1], note) for name, value, note in rows), "<><")
        case Breakdown(parts):
            shown = [part for part in parts if part[2] >= LEAST_SHARE]
            return Table(("", "", ""), tuple((part[1], f"{part[2]:.1f} %", Bar((part,))) for part in shown), "<>=")
    return block


def _verdict(block: Verdict, width: int) -> list[str]:
    aside = f"   ({block.aside})" if block.aside else ""
    lines = wrapped(f"{block.headline}{aside}", width, f"{level_glyph(block.level)} ", "  ")
    for i, text in enumerate(block.evidence):
        lines += wrapped(text, width, "    " if i else "  ↳ ", "    ")
    lines += wrapped(block.remedy, width, "  → ", "    ") + wrapped(block.gain, width, "    ", "    ")
    return [*lines, *(line for name, text in block.more for line in _labelled(f"  {name}: ", text, width, 4))]


def _columns(table: Table, width: int) -> list[str]:
    """Lay out a table in columns of their widest cell.

    Only a ``~`` column is cut: a figure without its end is worse than a line that a terminal breaks. A bar fills the
    room that is left.
    """
    shown = table.columns(bars=False)
    cells = [[row[i] for i in shown] for row in (table.head, *table.rows)]
    rows = [list(map(_cell_text, row)) for row in cells]
    sides = "".join(table.sides[i] for i in shown)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = width - sum(widths) - 2 * len(widths)
    if "~" in sides:
        at = sides.index("~")
        widths[at] = max(LEAST_NAME, widths[at] + min(0, room))
        for row, whole in zip(rows, cells, strict=True):
            row[at] = (shorten if isinstance(whole[at], LevelText) else _cut)(row[at], widths[at])
    bars = ["", *(_bar(row, min(room - 2, MOST_BAR)) for row in table.rows)]
    lines = []
    for row, bar, below in zip(rows, bars, ("", *(table.below or [""] * len(table.rows))), strict=True):
        texts = (f"{text:{side.replace('~', '<')}{size}}" for text, side, size in zip(row, sides, widths, strict=True))
        lines += ["  " + "  ".join((*texts, bar)).rstrip(), *wrapped(below, width, "    ", "    ")]
    return lines if any(rows[0]) else lines[1:]


def _cell_text(cell: Cell) -> str:
    if isinstance(cell, LevelText):
        return f"{level_glyph(cell.level)} {cell.text}"
    return "" if isinstance(cell, Bar) else cell


def _cut(name: str, width: int) -> str:
    """Shorten a name in its middle: begin and end identify it."""
    if len(name) <= width:
        return name
    begin = (width - 1) * 2 // 3
    return f"{name[:begin]}…{name[begin + 1 - width :]}"


def _bar(row: Sequence[Cell], room: int) -> str:
    """Draw a bar with a single share; empty without room."""
    for cell in row:
        if isinstance(cell, Bar) and len(cell.parts) == 1 and room >= LEAST_BAR:
            whole, rest = divmod(round(cell.parts[0][2] / 100.0 * room * 8), 8)
            return LEFT[8] * whole + LEFT[rest].strip()
    return ""


def _bare(text: str) -> str:
    return text.replace("`", "")


_INDENT = 4


def _entries(head: tuple[str, ...], rows: tuple[tuple[str, ...], ...], width: int) -> list[str]:
    """Lay out names with their texts beside or below them."""
    names = [_bare(row[0]) for row in rows]
    column = min(max(map(len, names), default=0), width // 3) + _INDENT
    lines = []
    for name, row in zip(names, rows, strict=True):
        first, *rest = _texts(head, row, width, column)
        if len(name) + _INDENT > column:
            lines += [*_labelled("  ", name, width), first]
        else:
            lines.append(f"  {name}".ljust(column) + first[column:])
        lines += rest
    return lines


def _texts(head: tuple[str, ...], row: tuple[str, ...], width: int, indent: int) -> list[str]:
    """Wrap the second column, then the others after their heads."""
    space, text = " " * indent, _bare(row[1])
    others = " · ".join(f"{of}: {_bare(cell)}" for of, cell in zip(head[2:], row[2:], strict=True)
                      if cell not in ("", NOTHING))  # fmt: skip
    together = _labelled(space, f"{text} · {others}", width)
    if not others or len(together) == 1:
        return together if others else _labelled(space, text, width)
    return _labelled(space, text, width) + _labelled(space, others, width)


# Markdown.


def markdown(document: Document, made_by: str = "") -> str:
    """Write a document as Markdown.

    ``made_by`` is the command that writes it, for readers who would edit it by hand.
    """
    lines = [f"# {_inert(document.title)}", ""]
    if made_by:
        lines += [f"<!-- written by `{made_by}`: change the table in the code, not this page -->", ""]
    for text in _below_title(document):
        lines += [_inert(text), ""]
    before: Block | None = None
    for block in document.blocks:
        if _is_empty(block):
            continue
        if isinstance(before, Items | Notes | Verdict) and type(block) is not type(before):
            lines.append("")
        lines += _markdown_block(block)
        before = block
    return text_lines(lines).rstrip() + "\n"


def _markdown_block(block: Block) -> list[str]:
    match block:
        case Heading(title):
            return [f"## {_escaped(title)}", ""]
        case Paragraph(text):
            return [*wrapped(_escaped(text), _SOURCE_WIDTH, whole_words=True), ""]
        case Items(texts) | Notes(texts):
            return [f"- {_inert(text)}" for text in texts]
        case Code(lines):
            return ["```", *(line.replace("`", "'") for line in lines), "```", ""]
        case Entries(_, entries, True):
            return [line for row in entries for line in _markdown_section(block.head, row)]
        case Entries(names, entries):
            shown = block.columns()
            cells = ([_escaped(row[i]).replace("|", r"\|") for i in shown] for row in (names, *entries))
            head, *rows = ([cell or NOTHING for cell in row] for row in cells)
            return _markdown_table(head, rows, "<" * len(shown))
        case Table() | Figures() | Breakdown():
            table = _as_table(block)
            shown = table.columns(bars=False)
            head, *rows = ([_inert(_cell_text(row[i])) for i in shown] for row in (table.head, *table.rows))
            for row, below in zip(rows, table.below, strict=False):
                row[0] += f" ({_inert(below)})" if below else ""
            return _markdown_table(head, rows, "".join(table.sides[i] for i in shown))
        case Verdict():
            below_evidence = [f"→ {block.remedy}"] if block.remedy else []
            below_evidence += [block.gain, *(f"{name}: {text}" for name, text in block.more)]
            first = f"- **{_inert(block.headline)}** ({block.level})" + (
                f", {_inert(block.aside)}" if block.aside else ""
            )
            return [first, *(f"  - {_inert(text)}" for text in (*block.evidence, *below_evidence) if text)]
    return []


def _markdown_section(head: Sequence[str], row: Sequence[str]) -> list[str]:
    """Return a heading, the parts of the text as a list, and around it the other cells after their heads."""
    name, text, *others = map(_escaped, row)
    cells = [f"{title[0].upper()}{title[1:]}: {cell}." for title, cell in zip(head[2:], others, strict=True) if cell]
    most = len(others) - 1
    first, last = (wrapped(" ".join(part), _SOURCE_WIDTH, whole_words=True) for part in (cells[:most], cells[most:]))
    blocks = ([f"### {name}"], first, [f"- {part}" for part in text.split("; ")], last)
    return [line for block in blocks if block for line in (*block, "")]


def _markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], sides: str) -> list[str]:
    first, *rest = (f"| {' | '.join(row)} |" for row in (head, *rows))
    return [first, "|" + "".join("---:|" if side == ">" else "---|" for side in sides), *rest, ""]


def _escaped(text: str) -> str:
    """Escape Markdown in gputop's own words; code stays code."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if i % 2 else _ACTIVE.sub(r"\\\g<0>", part).replace("`", "'") for i, part in enumerate(parts))


def _inert(text: str) -> str:
    """Escape text from outside for Markdown.

    A name cannot become a table, code, HTML, or an image that is fetched.
    """
    return re.sub(r"[\\|\[\]*]|(?<!\w)_|_(?!\w)", r"\\\g<0>", text).replace("<", "&lt;").replace("`", "'")


# HTML.


def html(document: Document, footer: str = "") -> str:
    """Write a document as a self-contained page."""
    lead = [element("p", text, class_="dim") for text in _below_title(document)]
    blocks = [part for block in document.blocks if not _is_empty(block) for part in _html_block(block)]
    body = [element("h1", document.title), *lead, *blocks]
    name = document.title if document.title.startswith("gputop") else f"gputop: {document.title}"
    return html_page(name, *body, footer=f"{footer} gputop {__version__}".strip())


def _html_block(block: Block) -> list[Markup]:
    match block:
        case Heading(text) | Paragraph(text):
            return [element("h2" if isinstance(block, Heading) else "p", prose(text))]
        case Items(texts):
            return [element("p", text) for text in texts]
        case Notes(texts):
            return [notes(texts)]
        case Code(lines):
            return [element("pre", element("code", "\n".join(lines)))]
        case Table():
            return [_html_table(block)]
        case Entries(head, rows):
            shown = block.columns()
            kinds = "".join(_kind("<", max(len(row[i]) for row in rows)) for i in shown)
            names = [head[i] for i in shown]
            return [table(names, [[prose(row[i]) for i in shown] for row in rows], kinds, stacks=True)]
        case Verdict():
            texts = (*block.evidence, *(f"{label}: {text}" for label, text in block.more))
            return [verdict(block.level, block.headline, block.aside, texts, block.remedy, block.gain)]
        case Figures(rows):
            return [tiles((*_levelled(value), name, note) for name, value, note in rows)]
        case Breakdown(parts):
            return [stacked_bar(parts), legend(parts)]
    return [block.markup]


def _html_table(block: Table) -> Markup:
    shown = block.columns(bars=True)
    cells = [[_html_cell(row[i], block.sides[i]) for i in shown] for row in block.rows]
    for row, below in zip(cells, block.below, strict=False):
        row[0] = join((row[0], element("div", below, class_="dim"))) if below else row[0]
    longest = [max(len(_cell_text(row[i])) for row in block.rows) for i in shown]
    longest[0] += max(map(len, block.below), default=0)
    kinds = "".join(map(_kind, (block.sides[i] for i in shown), longest))
    return table([block.head[i] for i in shown], cells, kinds)


def _kind(side: str, longest: int) -> str:
    """Kind of a page's column; short texts are not broken."""
    return {">": "n", "=": "w"}.get(side, "t" if longest > MOST_KEY else "k")


def _html_cell(cell: Cell, side: str) -> Markup:
    match cell:
        case Bar(parts):
            return stacked_bar(parts, thin=True)
        case LevelText(level, text):
            return element("span", text, class_=f"level {level}")
    return element("code", cell) if side == "~" else element("span", cell)


def _levelled(value: str | LevelText) -> tuple[str, str]:
    return (value.level, value.text) if isinstance(value, LevelText) else ("", value)
