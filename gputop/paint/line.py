"""One row of a screen: spans of (text, style name), built from left to right and always exactly as wide as asked."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from gputop.paint.text import cells

Span = tuple[str, str]
Row = tuple[Span, ...]


class Target(Struct, frozen=True):
    """What a click on a row means: ``kind`` is gpu, process, header, count, key, time or finding; ``key`` names which.

    Where several stand side by side, ``beside`` has the column at which each ends, and its key.
    """

    kind: str
    key: object
    beside: tuple[tuple[int, object], ...] = ()

    def at(self, column: int) -> Target | None:
        """The target of one column of the row; None right of the last one."""
        if not self.beside:
            return self
        return next((Target(self.kind, key) for end, key in self.beside if column < end), None)


def words_target(row: Row, words: Sequence[tuple[str, str]]) -> Target:
    """The cells of words that name a key, each with the key's id; a click on them is that key. Other cells: None."""
    text = "".join(part for part, _ in row)
    ends: list[tuple[int, object]] = []
    end = 0
    for said, key_id in words:
        begin = text.find(said, end)
        if begin >= 0:
            first = cells(text[:begin])
            ends += [(first, None), (first + cells(said), key_id)]
            end = begin + len(said)
    return Target("key", None, (*ends, (len(text) * 2, None)))


class Painted(Struct, frozen=True):
    """A painted screen: rows of equal width, and for each row what it stands for (None: nothing)."""

    rows: list[Row]
    targets: list[Target | None]


class Rows:
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
    """Builds one row. Neighbouring spans of the same style are joined, so that fewer segments reach the terminal."""

    __slots__ = ("_spans", "width")

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self.width = 0

    def add(self, text: str, style: str = "text") -> Line:
        """Append text. Text from outside must come through ``text.fit`` or ``text.terminal_safe`` first."""
        if not text:
            return self
        spans = self._spans
        if spans and spans[-1][1] == style:
            spans[-1] = (spans[-1][0] + text, style)
        else:
            spans.append((text, style))
        self.width += len(text) if text.isascii() else cells(text)
        return self

    def add_all(self, spans: Row | list[Span]) -> Line:
        own, width = self._spans, self.width
        last = own[-1][1] if own else None
        for span in spans:
            text, style = span
            if not text:
                continue
            if style == last:
                own[-1] = (own[-1][0] + text, style)
            else:
                own.append(span)
                last = style
            width += len(text) if text.isascii() else cells(text)
        self.width = width
        return self

    def lay(self, spans: Sequence[Span], width: int) -> Line:
        """Append spans that are known to take ``width`` cells, each in another style than the one before it."""
        end = self.width + width
        self.add(*spans[0])
        self._spans += spans[1:]
        self.width = end
        return self

    def to(self, column: int, style: str = "text") -> Line:
        """Pad with spaces up to a column; does nothing when the line is already past it."""
        if column > self.width:
            self.add(" " * (column - self.width), style)
        return self

    def rule(self, column: int, glyph: str, style: str = "rule") -> Line:
        """Draw a rule up to a column."""
        if column > self.width:
            self.add(glyph * (column - self.width), style)
        return self

    @property
    def spans(self) -> Row:
        """What was added so far."""
        return tuple(self._spans)

    def row(self, width: int, background: str | None = None) -> Row:
        """The finished row in exactly ``width`` cells; ``background`` is laid under every span of it."""
        spans = list(self._spans)
        if self.width < width:
            spans.append((" " * (width - self.width), "text"))
        elif self.width > width:
            spans = _cut(spans, width)
        if background is not None:
            spans = [(text, f"{style}|{background}") for text, style in spans]
        return tuple(spans)


def _cut(spans: list[Span], width: int) -> list[Span]:
    kept: list[Span] = []
    for text, style in spans:
        size = cells(text)
        if size <= width:
            kept.append((text, style))
            width -= size
            continue
        if width > 0:
            piece = text[:width]
            while cells(piece) > width:
                piece = piece[:-1]
            kept.append((piece + " " * (width - cells(piece)), style))
        break
    return kept
