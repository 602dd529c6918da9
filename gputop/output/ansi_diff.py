"""From one painted screen to the next: the shortest text that changes a terminal from the first to the second.

Only cells that differ are written, each run of them after one move of the cursor. Rows that are equal cost one
comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from gputop.output.ansi import sgr
from gputop.paint.line import Row
from gputop.paint.terminal import Depth
from gputop.paint.text import cells, is_narrow
from gputop.paint.theme import Theme

LEAST_UNCHANGED = 8
"""Runs of changed cells closer than this are written as one: a move of the cursor costs about as many bytes."""
RESET = "\x1b[0m"


class Differ:
    """Writes changes in one theme and colour depth."""

    def __init__(self, theme: Theme, depth: Depth) -> None:
        self._code = lru_cache(maxsize=512)(lambda style: sgr(theme.look(style), theme, depth))

    def changes(self, before: Sequence[Row], now: Sequence[Row]) -> str:
        """What to write; empty when nothing differs. Both screens have the same size and begin at the top left."""
        parts: list[str] = []
        for y, (old, new) in enumerate(zip(before, now, strict=True)):
            if old is not new and old != new:
                self._row(y, old, new, parts)
        if parts:
            parts.append(RESET)
        return "".join(parts)

    def _row(self, y: int, old: Row, new: Row, parts: list[str]) -> None:
        if {style for _, style in old}.isdisjoint(style for _, style in new):
            # Every cell differs, as in a row that the cursor has come to or left.
            parts.append(f"\x1b[{y + 1};1H")
            for text, style in new:
                parts += (self._code(style), text)
            return
        # What is equal at both ends need not be looked at cell by cell. Rows are equally wide, so ends meet.
        most = min(len(old), len(new))
        head = next((i for i in range(most) if old[i] != new[i]), most)
        tail = next((i for i in range(most - head) if old[-1 - i] != new[-1 - i]), most - head)
        left = sum(cells(text) for text, _ in new[:head]) + 1
        was, becomes = _cells(old[head : len(old) - tail]), _cells(new[head : len(new) - tail])
        for begin, end in changed_runs(was, becomes):
            parts.append(f"\x1b[{y + 1};{left + begin}H")
            style = ""
            for char, name in becomes[begin:end]:
                if name != style:
                    parts.append(self._code(name))
                    style = name
                parts.append(char)


def _cells(row: Row) -> list[tuple[str, str]]:
    """A row cell by cell; the second cell of a wide character is empty."""
    found: list[tuple[str, str]] = []
    for text, style in row:
        if text.isascii() or is_narrow(text):
            found += [(char, style) for char in text]
        else:
            for char in text:
                found.append((char, style))
                if cells(char) == 2:
                    found.append(("", style))
    return found


def changed_runs(was: Sequence[tuple[str, str]], becomes: Sequence[tuple[str, str]]) -> list[tuple[int, int]]:
    """(begin, end) of the cells that differ, close runs joined, no wide character cut in two."""
    differ = [i for i, (a, b) in enumerate(zip(was, becomes, strict=False)) if a != b]
    differ += range(min(len(was), len(becomes)), len(becomes))
    runs: list[tuple[int, int]] = []
    for i in differ:
        if runs and i - runs[-1][1] < LEAST_UNCHANGED:
            runs[-1] = (runs[-1][0], i + 1)
        else:
            runs.append((i, i + 1))
    whole: list[tuple[int, int]] = []
    for begin, end in runs:
        # A wide character is written whole, also where it covers a cell that did not change.
        begin -= begin > 0 and (becomes[begin][0] == "" or (begin < len(was) and was[begin][0] == ""))
        end += end < len(becomes) and becomes[end][0] == ""
        whole.append((begin, end))
    return whole
