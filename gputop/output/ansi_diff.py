"""From one painted screen to the next: the shortest text that changes a terminal from the first to the second.

Only cells that differ are written, each run of them after one move of the cursor. Rows that are equal cost one
comparison.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from gputop.output.ansi import sgr, sgr_change
from gputop.paint.line import Row
from gputop.paint.terminal import Depth
from gputop.paint.text import cells, is_narrow
from gputop.paint.theme import Theme

LEAST_UNCHANGED = 8
"""Runs of changed cells closer than this are written as one: a move of the cursor costs about as many bytes."""
RESET = "\x1b[0m"
NOTHING = ("\0" * 4096, "")
"""What stands right of a row that ends too early: it equals nothing."""


class Differ:
    """Writes changes in one theme and colour depth."""

    def __init__(self, theme: Theme, depth: Depth) -> None:
        def code(before: str | None, style: str) -> str:
            look = theme.look(style)
            return sgr(look, theme, depth) if before is None else sgr_change(theme.look(before), look, theme, depth)

        self._code = lru_cache(maxsize=512)(code)
        self._style: str | None = None
        """What the terminal is set to while changes are written; None where that is not known."""

    def changes(self, before: Sequence[Row], now: Sequence[Row]) -> str:
        """What to write; empty when nothing differs. Both screens have the same size and begin at the top left."""
        parts: list[str] = []
        self._style = None
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
                self._write(text, style, parts)
            return
        if _is_narrow(old) and _is_narrow(new):
            self._write_runs(y, _joined(_changed(old, new)), new, parts)
            return
        was, becomes = _cells(old), _cells(new)
        for begin, end in changed_runs(was, becomes):
            parts.append(f"\x1b[{y + 1};{begin + 1}H")
            for char, style in becomes[begin:end]:
                self._write(char, style, parts)

    def _write(self, text: str, style: str, parts: list[str]) -> None:
        if style != self._style:
            parts.append(self._code(self._style, style))
            self._style = style
        parts.append(text)

    def _write_runs(self, y: int, runs: Sequence[tuple[int, int]], row: Row, parts: list[str]) -> None:
        """Write runs of a row in which a character is a cell."""
        spans = iter(row)
        text, style = next(spans)
        at = 0
        for begin, end in runs:
            parts.append(f"\x1b[{y + 1};{begin + 1}H")
            while True:
                if at + len(text) > begin:
                    self._write(text[max(0, begin - at) : end - at], style, parts)
                if at + len(text) >= end:
                    break
                at += len(text)
                text, style = next(spans)


def _is_narrow(row: Row) -> bool:
    text = "".join([text for text, _ in row])
    return text.isascii() or is_narrow(text) is not None


def _changed(old: Row, new: Row) -> Iterator[tuple[int, int]]:
    """(begin, end) of what differs between two equally wide rows in which a character is a cell, in their order."""
    olds = iter(old)
    was, was_style = "", ""
    at = 0
    for becomes, style in new:
        while becomes:
            while not was:
                was, was_style = next(olds, NOTHING)
            if was_style == style and was == becomes:
                at += len(was)
                was = ""
                break
            most = min(len(was), len(becomes))
            if was_style != style:
                yield at, at + most
            else:
                for i in range(most):
                    if was[i] != becomes[i]:
                        yield at + i, at + i + 1
            at += most
            was, becomes = was[most:], becomes[most:]


def _joined(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs so close to each other that a move of the cursor between them would cost more, as one."""
    joined: list[tuple[int, int]] = []
    for begin, end in runs:
        if joined and begin - joined[-1][1] < LEAST_UNCHANGED:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined


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
    whole: list[tuple[int, int]] = []
    for begin, end in _joined((i, i + 1) for i in differ):
        # A wide character is written whole, also where it covers a cell that did not change.
        begin -= begin > 0 and (becomes[begin][0] == "" or (begin < len(was) and was[begin][0] == ""))
        end += end < len(becomes) and becomes[end][0] == ""
        whole.append((begin, end))
    return whole
