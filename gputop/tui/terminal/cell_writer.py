"""Changed cells of a row as text for the terminal, past Textual's compositor.

Textual writes a row that changed from its left end on. Of whole rows the screen of 8 GPUs and 64
processes at 160×50 takes 18 kB/s, of changed cells alone some 3. Textual can also crop a row to its
changed cells, but that costs more than it saves: docs/design/rows.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

from gputop.paint.cells import cells
from gputop.paint.line import Row

LEAST_UNCHANGED = 12
"""Runs of changed cells closer than this are written as one: a move and a style cost as many bytes."""
COVERED = ""
"""Text of the second cell of a wide character."""
RESET = "\x1b[0m"
Cell: TypeAlias = tuple[str, str]
"""The text of a cell and the sequence that begins its style."""
_text_of, _style_of = itemgetter(0), itemgetter(1)


def row_cells(row: Row, width: int, sequence_of: Callable[[str], str]) -> list[Cell]:
    """Return exactly ``width`` cells of a row.

    ``sequence_of`` gives the terminal's sequence for the name of a style.
    """
    found: list[Cell] = []
    for text, name in row:
        style = sequence_of(name)
        if cells(text) == len(text):
            found.extend((char, style) for char in text)
        else:
            for char in text:
                found.extend(_character_cells(char, style))
    missing = width - len(found)
    found.extend([(" ", sequence_of("text"))] * missing)
    return found[:width]


def _character_cells(char: str, style: str) -> list[Cell]:
    """Return the one or two cells of a character, none of a combining one."""
    return [(char, style), (COVERED, style)][: cells(char)]


def changed_runs(before: Sequence[Cell], now: Sequence[Cell]) -> list[tuple[int, int]]:
    """Return begin and end of each run of cells to write, from left to right.

    A wide character is in one run, also where only the cell that it covers has changed.
    """
    runs: list[tuple[int, int]] = []
    begin = end = -1
    for column, cell in enumerate(now):
        if cell == before[column]:
            continue
        if begin < 0:
            begin = column
        elif column - end >= LEAST_UNCHANGED:
            runs.append((begin, end))
            begin = column
        end = column + 1
    if begin >= 0:
        runs.append((begin, end))
    return [(_first_column(begin, before, now), _last_column(end, now)) for begin, end in runs]


def _first_column(column: int, before: Sequence[Cell], now: Sequence[Cell]) -> int:
    while column > 0 and COVERED in (_text_of(now[column]), _text_of(before[column])):
        column -= 1
    return column


def _last_column(column: int, now: Sequence[Cell]) -> int:
    while column < len(now) and _text_of(now[column]) == COVERED:
        column += 1
    return column


def changed_text(y: int, x: int, before: Sequence[Cell], now: Sequence[Cell]) -> str:
    """Return the moves, styles and characters that turn one row at (``x``, ``y``) into another."""
    parts: list[str] = []
    for begin, end in changed_runs(before, now):
        parts.append(f"\x1b[{y + 1};{x + begin + 1}H")
        for style, run in groupby(now[begin:end], key=_style_of):
            parts.append(RESET)
            parts.append(style)
            parts.extend(map(_text_of, run))
    if parts:
        parts.append(RESET)
    return "".join(parts)
