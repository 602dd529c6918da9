"""One row of a screen: spans of (text, style name).

It is built from left to right and is exactly as wide as asked.
"""

from __future__ import annotations

from msgspec import Struct

from gputop.paint.cells import cells, fit
from gputop.paint.glyphs import Glyphs, ascii_cells

Span = tuple[str, str]
Row = tuple[Span, ...]


class Target(Struct, frozen=True):
    """The target of a click on a row.

    ``kind`` is gpu, process, header, count, key, time or finding; ``key`` names which. Where several are side by
    side, ``parts`` has the column at which each ends, and its key.
    """

    kind: str
    key: object
    parts: tuple[tuple[int, object], ...] = ()

    def at_column(self, column: int) -> Target | None:
        """The target of one column of the row; None right of the last one."""
        if not self.parts:
            return self
        return next((Target(self.kind, key) for end, key in self.parts if column < end), None)


class Painted(Struct, frozen=True):
    """A painted screen: rows and their targets.

    Rows have equal width; a target is None where a click means nothing.
    """

    rows: list[Row]
    targets: list[Target | None]


class ScreenRows:
    """Collects rows with their targets and stops at the screen's height."""

    def __init__(self, height: int) -> None:
        self.height = height
        self.rows: list[Row] = []
        self.targets: list[Target | None] = []

    def add(self, row: Row, target: Target | None = None) -> None:
        if len(self.rows) < self.height:
            self.rows.append(row)
            self.targets.append(target)

    def extend(self, rows: list[Row], target: Target | None = None) -> None:
        for row in rows:
            self.add(row, target)

    @property
    def left(self) -> int:
        """Rows that still fit."""
        return self.height - len(self.rows)


class Line:
    """Builds one row.

    Neighbouring spans of the same style are joined, so that fewer segments reach the terminal.
    """

    __slots__ = ("_ends", "_spans", "width")

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._ends: list[tuple[int, object]] = []
        self.width = 0

    def add(self, text: str, style: str = "text", key: object = None) -> Line:
        """Append text, a click on which means ``key``.

        Text from outside must come through ``fit`` or ``terminal_safe`` first.
        """
        if not text:
            return self
        if key is not None:
            self._ends += [(self.width, None), (self.width + cells(text), key)]
        spans = self._spans
        if spans and spans[-1][1] == style:
            spans[-1] = (spans[-1][0] + text, style)
        else:
            spans.append((text, style))
        self.width += len(text) if text.isascii() else cells(text)
        return self

    def add_all(self, spans: Row | list[Span]) -> Line:
        line_spans, width = self._spans, self.width
        last = line_spans[-1][1] if line_spans else None
        for span in spans:
            text, style = span
            if not text:
                continue
            if style == last:
                line_spans[-1] = (line_spans[-1][0] + text, style)
            else:
                line_spans.append(span)
                last = style
            width += len(text) if text.isascii() else cells(text)
        self.width = width
        return self

    def add_line(self, other: Line) -> Line:
        """Append another line's texts with their targets."""
        self._ends += [(self.width + end, key) for end, key in other._ends]
        return self.add_all(other.spans)

    def fill(self, text: str, width: int, style: str = "text") -> Line:
        """Append foreign text, cut to the remaining width."""
        return self.add(fit(text, max(1, width - self.width - 1)), style)

    def to(self, column: int, style: str = "text") -> Line:
        """Pad with spaces up to a column.

        Does nothing when the line is already past it.
        """
        if column > self.width:
            self.add(" " * (column - self.width), style)
        return self

    def rule(self, column: int, glyph: str = "─", style: str = "rule") -> Line:
        """Draw a rule up to a column."""
        if column > self.width:
            self.add(glyph * (column - self.width), style)
        return self

    @property
    def spans(self) -> Row:
        """Spans added so far."""
        return tuple(self._spans)

    def target(self, kind: str = "key") -> Target:
        """Return the click target of this row.

        The keys added with their texts; elsewhere nothing.
        """
        return Target(kind, None, (*self._ends, (self.width + 1000, None)))

    def row(self, width: int, background: str | None = None) -> Row:
        """Return the finished row in exactly ``width`` cells.

        ``background`` is laid under every span.
        """
        spans = list(self._spans)
        if self.width < width:
            spans.append((" " * (width - self.width), "text"))
        elif self.width > width:
            spans = _cut(spans, width)
        if background is not None:
            spans = [(text, f"{style}|{background}") for text, style in spans]
        return tuple(spans)


def _cut(spans: list[Span], width: int) -> list[Span]:
    cut_spans: list[Span] = []
    for text, style in spans:
        size = cells(text)
        if size <= width:
            cut_spans.append((text, style))
            width -= size
            continue
        if width > 0:
            piece = text[:width]
            while cells(piece) > width:
                piece = piece[:-1]
            cut_spans.append((piece + " " * (width - cells(piece)), style))
        break
    return cut_spans


def text_row(text: str, width: int, style: str = "text", indent: int = 0) -> Row:
    """A row with one text of one style."""
    return Line().to(indent).add(text, style).row(width)


def heading(text: str, width: int, style: str = "heading") -> Row:
    """A rule with a name on it."""
    return Line().add("─ ", "rule").add(text, style).add(" ", "rule").rule(width).row(width)


def for_terminal(rows: list[Row], glyphs: Glyphs, width: int) -> list[Row]:
    """Convert finished rows to the terminal's characters.

    In ASCII a wide character becomes one character.
    """
    if glyphs.name != "ascii":
        return rows
    return [
        Line().add_all([(ascii_cells(text), style) for text, style in row]).row(width)
        for row in rows
    ]
