"""A document as HTML."""

from __future__ import annotations

from gputop import __version__
from gputop.output.document import (
    MOST_KEY,
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
    below_title,
    cell_text,
    is_empty,
    levelled,
)
from gputop.output.html import (
    Markup,
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
from gputop.output.html_page import document as html_page


def html(document: Document, footer: str = "") -> str:
    """Write a document as a self-contained page."""
    lead = [element("p", text, class_="dim") for text in below_title(document)]
    blocks = [
        part for block in document.blocks if not is_empty(block) for part in _html_block(block)
    ]
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
            return [
                table(names, [[prose(row[i]) for i in shown] for row in rows], kinds, stacks=True)
            ]
        case Verdict():
            texts = (*block.evidence, *(f"{label}: {text}" for label, text in block.more))
            return [
                verdict(block.level, block.headline, block.aside, texts, block.remedy, block.gain)
            ]
        case Figures(rows):
            return [tiles((*levelled(value), name, note) for name, value, note in rows)]
        case Breakdown(parts):
            return [stacked_bar(parts), legend(parts)]
    return [block.markup]


def _html_table(block: Table) -> Markup:
    shown = block.columns(bars=True)
    cells = [[_html_cell(row[i], block.sides[i]) for i in shown] for row in block.rows]
    for row, below in zip(cells, block.below, strict=False):
        row[0] = join((row[0], element("div", below, class_="dim"))) if below else row[0]
    longest = [max(len(cell_text(row[i])) for row in block.rows) for i in shown]
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
