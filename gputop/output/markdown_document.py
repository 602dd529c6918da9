"""A document as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gputop.model.clean_text import wrapped
from gputop.output.document import (
    ACTIVE,
    NOTHING,
    SOURCE_WIDTH,
    Block,
    Breakdown,
    Code,
    Document,
    Entries,
    Figures,
    Heading,
    Items,
    Notes,
    Paragraph,
    Table,
    Verdict,
    as_table,
    below_title,
    cell_text,
    is_empty,
)
from gputop.output.plain_document import text_lines


def markdown(document: Document, made_by: str = "") -> str:
    """Write a document as Markdown.

    ``made_by`` is the command that writes it, for readers who would edit it by hand.
    """
    lines = [f"# {_inert(document.title)}", ""]
    if made_by:
        lines += [
            f"<!-- written by `{made_by}`: change the table in the code, not this page -->",
            "",
        ]
    for text in below_title(document):
        lines += [_inert(text), ""]
    before: Block | None = None
    for block in document.blocks:
        if is_empty(block):
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
            return [*wrapped(_escaped(text), SOURCE_WIDTH, whole_words=True), ""]
        case Items(texts) | Notes(texts):
            return [f"- {_inert(text)}" for text in texts]
        case Code(lines):
            return ["```", *(line.replace("`", "'") for line in lines), "```", ""]
        case Entries(_, entries, True):
            return [line for row in entries for line in _markdown_section(block.head, row)]
        case Entries(names, entries):
            shown = block.columns()
            cells = (
                [_escaped(row[i]).replace("|", r"\|") for i in shown] for row in (names, *entries)
            )
            head, *rows = ([cell or NOTHING for cell in row] for row in cells)
            return _markdown_table(head, rows, "<" * len(shown))
        case Table() | Figures() | Breakdown():
            table = as_table(block)
            shown = table.columns(bars=False)
            head, *rows = (
                [_inert(cell_text(row[i])) for i in shown] for row in (table.head, *table.rows)
            )
            for row, below in zip(rows, table.below, strict=False):
                row[0] += f" ({_inert(below)})" if below else ""
            return _markdown_table(head, rows, "".join(table.sides[i] for i in shown))
        case Verdict():
            below_evidence = [f"→ {block.remedy}"] if block.remedy else []
            below_evidence += [block.gain, *(f"{name}: {text}" for name, text in block.more)]
            first = f"- **{_inert(block.headline)}** ({block.level})" + (
                f", {_inert(block.aside)}" if block.aside else ""
            )
            return [
                first,
                *(f"  - {_inert(text)}" for text in (*block.evidence, *below_evidence) if text),
            ]
    return []


def _markdown_section(head: Sequence[str], row: Sequence[str]) -> list[str]:
    """Return a heading, the parts of the text as a list, and around it the other cells after their heads."""
    name, text, *others = map(_escaped, row)
    cells = [
        f"{title[0].upper()}{title[1:]}: {cell}."
        for title, cell in zip(head[2:], others, strict=True)
        if cell
    ]
    most = len(others) - 1
    first, last = (
        wrapped(" ".join(part), SOURCE_WIDTH, whole_words=True)
        for part in (cells[:most], cells[most:])
    )
    blocks = ([f"### {name}"], first, [f"- {part}" for part in text.split("; ")], last)
    return [line for block in blocks if block for line in (*block, "")]


def _markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], sides: str) -> list[str]:
    first, *rest = (f"| {' | '.join(row)} |" for row in (head, *rows))
    return [first, "|" + "".join("---:|" if side == ">" else "---|" for side in sides), *rest, ""]


def _escaped(text: str) -> str:
    """Escape Markdown in gputop's own words; code stays code."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(
        part if i % 2 else ACTIVE.sub(r"\\\g<0>", part).replace("`", "'")
        for i, part in enumerate(parts)
    )


def _inert(text: str) -> str:
    """Escape text from outside for Markdown.

    A name cannot become a table, code, HTML, or an image that is fetched.
    """
    return (
        re.sub(r"[\\|\[\]*]|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)
        .replace("<", "&lt;")
        .replace("`", "'")
    )
