"""A document as plain text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputop.model.clean_text import terminal_safe, wrapped
from gputop.output.document import (
    LEAST_BAR,
    LEAST_NAME,
    LEAST_WIDTH,
    MOST_BAR,
    MOST_WIDTH,
    NOTHING,
    WIDTH,
    Bar,
    Block,
    Breakdown,
    Cell,
    Code,
    Document,
    Entries,
    Figures,
    Heading,
    Items,
    LevelText,
    Notes,
    Paragraph,
    Table,
    Verdict,
    as_table,
    cell_text,
    is_empty,
)
from gputop.paint.cells import shorten
from gputop.paint.glyphs import LEFT, ascii_only, level_glyph


def plain(document: Document, width: int = WIDTH, *, is_ascii: bool = False) -> str:
    """Lay out a document for a terminal of ``width`` columns."""
    width = min(max(width, LEAST_WIDTH), MOST_WIDTH)
    lines = [
        line
        for text in document.lead or (_bare(document.title),)
        for line in _labelled("", text, width, 2)
    ]
    before: Block | None = None
    indent = 0
    for block in document.blocks:
        shown = [] if is_empty(block) else _plain_block(block, width, indent)
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
            return _columns(as_table(block), width)
        case Verdict():
            return _verdict(block, width)
    return []


def _verdict(block: Verdict, width: int) -> list[str]:
    aside = f"   ({block.aside})" if block.aside else ""
    lines = wrapped(f"{block.headline}{aside}", width, f"{level_glyph(block.level)} ", "  ")
    for i, text in enumerate(block.evidence):
        lines += wrapped(text, width, "    " if i else "  ↳ ", "    ")
    lines += wrapped(block.remedy, width, "  → ", "    ") + wrapped(
        block.gain, width, "    ", "    "
    )
    return [
        *lines,
        *(line for name, text in block.more for line in _labelled(f"  {name}: ", text, width, 4)),
    ]


def _columns(table: Table, width: int) -> list[str]:
    """Lay out a table in columns of their widest cell.

    Only a ``~`` column is cut: a figure without its end is worse than a line that a terminal breaks. A bar fills the
    room that is left.
    """
    shown = table.columns(bars=False)
    cells = [[row[i] for i in shown] for row in (table.head, *table.rows)]
    rows = [list(map(cell_text, row)) for row in cells]
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
    for row, bar, below in zip(
        rows, bars, ("", *(table.below or [""] * len(table.rows))), strict=True
    ):
        texts = (
            f"{text:{side.replace('~', '<')}{size}}"
            for text, side, size in zip(row, sides, widths, strict=True)
        )
        lines += ["  " + "  ".join((*texts, bar)).rstrip(), *wrapped(below, width, "    ", "    ")]
    return lines if any(rows[0]) else lines[1:]


def _cut(name: str, width: int) -> str:
    """Shorten a name in its middle: begin and end identify it."""
    if len(name) <= width:
        return name
    begin = (width - 1) * 2 // 3
    return f"{name[:begin]}…{name[begin + 1 - width :]}"


def _bar(row: Sequence[Cell], room: int) -> str:
    """Draw a bar with a single share, which ends at 100 %; empty without room."""
    for cell in row:
        if isinstance(cell, Bar) and len(cell.parts) == 1 and room >= LEAST_BAR:
            share = min(100.0, max(0.0, cell.parts[0][2]))
            whole, rest = divmod(round(share / 100.0 * room * 8), 8)
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
    others = " · ".join(
        f"{of}: {_bare(cell)}"
        for of, cell in zip(head[2:], row[2:], strict=True)
        if cell not in ("", NOTHING)
    )
    together = _labelled(space, f"{text} · {others}", width)
    if not others or len(together) == 1:
        return together if others else _labelled(space, text, width)
    return _labelled(space, text, width) + _labelled(space, others, width)
