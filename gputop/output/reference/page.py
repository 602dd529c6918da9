"""A page of paragraphs and tables, as Markdown for ``docs/`` and as plain text for a terminal. Pure.

Texts may carry `backticks`; a terminal gets them without.
"""

from __future__ import annotations

import re

from msgspec import Struct

from gputop.model.quantity import wrapped

NOTHING = "–"
LEAST_WIDTH, LARGEST_WIDTH = 40, 100
"""The page follows a terminal's width between these two: longer lines are hard to read."""
_INDENT = 4
_MARKUP = re.compile(r"\*|<(?=[A-Za-z/!?])|(?<!\w)_|_(?!\w)")
"""Characters that Markdown would take for emphasis or HTML."""
_SOURCE_WIDTH = 120


class Section(Struct, frozen=True):
    """A heading, paragraphs, and a table: ``head`` names the columns.

    The first column names its row and the second is the main text; a terminal shows the others after their heads.
    """

    title: str
    text: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


class Page(Struct, frozen=True):
    """One topic."""

    title: str
    text: tuple[str, ...]
    sections: tuple[Section, ...]


def markdown(page: Page, made_by: str) -> str:
    """The page for ``docs/``. ``made_by`` is the command that writes it, for whoever would edit it by hand."""
    lines = [f"# {page.title}", "", f"<!-- written by `{made_by}`: change the table in the code, not this page -->", ""]
    for paragraph in page.text:
        lines += [*_paragraph(paragraph), ""]
    for section in page.sections:
        lines += [f"## {section.title}", ""]
        for paragraph in section.text:
            lines += [*_paragraph(paragraph), ""]
        if section.rows:
            lines += [_row(section.head), "|" + "---|" * len(section.head)]
            lines += [_row(tuple(_escaped(cell) or NOTHING for cell in row)) for row in section.rows]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _paragraph(text: str) -> list[str]:
    return wrapped(_escaped(text), _SOURCE_WIDTH, whole_words=True)


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _escaped(text: str) -> str:
    """Text escaped so that Markdown sees no emphasis and no HTML in it; code stays code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(_MARKUP, r"\\\g<0>", part) for part in parts)


def plain(page: Page, width: int) -> str:
    """The page for a terminal of that many columns."""
    width = min(max(width, LEAST_WIDTH), LARGEST_WIDTH)
    lines = [page.title, ""]
    for paragraph in page.text:
        lines += [*_wrapped(paragraph, width), ""]
    for section in page.sections:
        lines += [section.title.replace("`", ""), ""]
        for paragraph in section.text:
            lines += [*_wrapped(paragraph, width, 2), ""]
        lines += _rows(section, width)
        if section.rows:
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    space = " " * indent
    return wrapped(text.replace("`", ""), width, space, space) or [""]


def _rows(section: Section, width: int) -> list[str]:
    """Each row's name with its text beside it, or below it where the name is too long for its column."""
    names = [row[0].replace("`", "") for row in section.rows]
    column = min(max(map(len, names), default=0), width // 3) + _INDENT
    lines = []
    for name, row in zip(names, section.rows, strict=True):
        first, *rest = _texts(section.head, row, width, column)
        if len(name) + _INDENT > column:
            lines += [*_wrapped(name, width, 2), first]
        else:
            lines.append(f"  {name}".ljust(column) + first[column:])
        lines += rest
    return lines


def _texts(head: tuple[str, ...], row: tuple[str, ...], width: int, indent: int) -> list[str]:
    """The second column, and what the others say, each after its head: on the same line where they fit there."""
    more = " · ".join(f"{of}: {text}" for of, text in zip(head[2:], row[2:], strict=True) if text not in ("", NOTHING))
    together = _wrapped(f"{row[1]} · {more}", width, indent)
    if not more or len(together) == 1:
        return together if more else _wrapped(row[1], width, indent)
    return _wrapped(row[1], width, indent) + _wrapped(more, width, indent)
