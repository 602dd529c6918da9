"""A row that writes only the cells that changed.

Textual writes a row that changed from its left end on: of whole rows the screen of 8 GPUs and 64 processes at 160×50
takes 18 kB/s. Of the cells that changed the demo (8 GPUs, 8 processes, 160×50) takes 1.1 kB/s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from gputop.paint.cells import cells

LEAST_UNCHANGED = 12
"""Runs of changed cells closer than this are written as one: a cursor move and a style cost as many bytes."""
COVERED = ""
"""Text of the second cell of a wide character."""
Cell = tuple[str, Style | None]


class RowStrip(Strip):
    """A row at a place; ``shown`` holds the terminal's rows.

    Textual cuts a strip (``crop``) only where it updates a part of the screen, and renders it whole where it draws the
    whole screen; both keep ``shown`` true. A row that another widget covers in part (``divide``) is drawn whole next.
    """

    def __init__(
        self, segments: Iterable[Segment], width: int, place: int, shown: dict[int, RowStrip]
    ) -> None:
        super().__init__(segments, width)
        self.width = width
        self.row_cells = [cell for text, style, _ in self for cell in cells_of(text, style)]
        """Text and style of each cell."""
        self._place = place
        self._shown = shown

    def divide(self, cuts: Iterable[int]) -> Sequence[Strip]:
        cuts = list(cuts)
        if cuts == [self.width]:
            # Not Textual's cache of divisions: a strip that holds itself is freed by the collector alone, some seconds
            # later (measured: 6 MB).
            return [self]
        self._shown.pop(self._place, None)
        return super().divide(cuts)

    def render(self, console: Console) -> str:
        self._shown[self._place] = self
        return super().render(console)

    def crop(self, start: int, end: int | None = None) -> Strip:
        before = self._shown.get(self._place)
        if before is None or before.width != self.width or (start, end) != (0, self.width - 1):
            return super().crop(start, end)
        self._shown[self._place] = self
        return Strip(changed_segments(before.row_cells, self.row_cells), self.width - 1)


def changed_segments(before: Sequence[Cell], now: Sequence[Cell]) -> list[Segment]:
    """Return the moves and cells that change a row."""
    changed = [
        column for column, (old, new) in enumerate(zip(before, now, strict=True)) if old != new
    ]
    segments: list[Segment] = []
    at = 0
    while changed:
        begin = end = changed[0]
        while changed and changed[0] - end < LEAST_UNCHANGED:
            end = changed.pop(0) + 1
        # A wide character is written whole, also where it covers a cell that did not change.
        while begin > at and COVERED in (now[begin][0], before[begin][0]):
            begin -= 1
        while end < len(now) and now[end][0] == COVERED:
            end += 1
        if begin > at:
            segments.append(Segment(f"\x1b[{begin - at}C"))
        for style, run in groupby(now[begin:end], key=lambda cell: cell[1]):
            segments.append(Segment("".join(text for text, _ in run), style))
        at = end
    return segments


def cells_of(text: str, style: Style | None) -> list[Cell]:
    """Return the cells of a text in one style."""
    if cells(text) == len(text):
        return [(char, style) for char in text]
    return [cell for char in text for cell in ((char, style), (COVERED, style))[: cells(char)]]
