"""Painted rows as text for a terminal or a file: with SGR colours, or plain."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import Struct

from gputop.paint.glyphs import Depth
from gputop.paint.line import Row, cells, is_narrow
from gputop.paint.theme import Look, Theme

_NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_RESET = "\x1b[0m"


def plain_text(rows: Sequence[Row]) -> str:
    """The rows without any style, trailing spaces dropped."""
    return "\n".join("".join(text for text, _ in row).rstrip() for row in rows) + "\n"


def ansi_text(rows: Sequence[Row], theme: Theme, depth: Depth = "truecolor", newline: str = "\n") -> str:
    """The rows with SGR sequences of a colour depth. Every row ends reset, so that it can be cut off anywhere."""
    lines = []
    codes: dict[str, str] = {}
    for row in rows:
        parts, current = [], ""
        for text, style in row:
            code = codes.get(style)
            if code is None:
                code = codes[style] = sgr(theme.look(style), theme, depth)
            if code != current:
                parts.append(code)
                current = code
            parts.append(text)
        lines.append("".join(parts) + _RESET)
    return newline.join(lines)


@lru_cache(maxsize=2048)
def _colour(colour: str, depth: Depth, *, ground: bool) -> str:
    """One colour as SGR parameters; ``ground`` means the background."""
    if colour.startswith("#"):
        r, g, b = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        if depth == "truecolor":
            return f"{48 if ground else 38};2;{r};{g};{b}"
        if depth == "256":
            return f"{48 if ground else 38};5;{_nearest_256(r, g, b)}"
        bright = max(r, g, b) > 150
        number = (r > 110) + 2 * (g > 90) + 4 * (b > 120)
        return str((100 if bright else 40) + number if ground else (90 if bright else 30) + number)
    bright = colour.startswith("bright_")
    number = _NAMES.index(colour.removeprefix("bright_"))
    return str(number + (100 if bright else 40) if ground else number + (90 if bright else 30))


def _nearest_256(r: int, g: int, b: int) -> int:
    """The nearest of the 6×6×6 cube and the 24 greys of the 256-colour palette."""
    levels = (0, 95, 135, 175, 215, 255)
    cube = [min(range(6), key=lambda i, v=v: abs(levels[i] - v)) for v in (r, g, b)]  # type: ignore[misc]
    grey = min(range(24), key=lambda i: abs(8 + 10 * i - (r + g + b) // 3))
    in_cube = sum((levels[c] - v) ** 2 for c, v in zip(cube, (r, g, b), strict=True))
    in_grey = sum((8 + 10 * grey - v) ** 2 for v in (r, g, b))
    return 232 + grey if in_grey < in_cube else 16 + 36 * cube[0] + 6 * cube[1] + cube[2]


def sgr(look: Look, theme: Theme, depth: Depth) -> str:
    """The sequence that sets a look from a clean state."""
    return f"\x1b[{';'.join(('0', *_flags(look), *_colours(look, theme, depth)))}m"


def sgr_change(before: Look, now: Look, theme: Theme, depth: Depth) -> str:
    """The sequence that sets a look where another one is set; empty where they look the same."""
    flags, had = _flags(now), _flags(before)
    colours, were = _colours(now, theme, depth), _colours(before, theme, depth)
    # Switching an attribute or a colour off needs a reset first.
    if not set(had) <= set(flags) or len(colours) != 2 or len(were) != 2:
        return "" if (flags, colours) == (had, were) else sgr(now, theme, depth)
    codes = [flag for flag in flags if flag not in had]
    codes += [colour for colour, old in zip(colours, were, strict=True) if colour != old]
    return f"\x1b[{';'.join(codes)}m" if codes else ""


def _flags(look: Look) -> list[str]:
    wanted = (("1", look.bold), ("2", look.faint), ("4", look.underline), ("7", look.reverse))
    return [code for code, is_set in wanted if is_set]


def _colours(look: Look, theme: Theme, depth: Depth) -> list[str]:
    """SGR parameters of the text's colour and of its ground, where it has them."""
    if depth == "none" or theme.colourless:
        return []
    pair = ((look.fg or theme.foreground, False), (look.bg or theme.background, True))
    return [_colour(colour, depth, ground=ground) for colour, ground in pair if colour]


# From one painted screen to the next: the shortest text that changes a terminal from the first to the second.
#
# Only cells that differ are written, each run of them after one move of the cursor. Rows that are equal cost one
# comparison.

LEAST_UNCHANGED = 8
"""Runs of changed cells closer than this are written as one: a move of the cursor costs about as many bytes."""
RESET = "\x1b[0m"
_ALIKE = re.compile(r"(.)\1*").finditer
_EQUAL = bytes(2 * LEAST_UNCHANGED)
"""As many equal cells, two bytes each, as end a run."""


class _Plain(Struct, frozen=True):
    """A row as two texts of equal length: its characters, and a letter for the style of each; and both as numbers."""

    row: Row
    text: str
    styles: str
    text_bits: int
    style_bits: int
    narrow: bool
    """Whether each character is one cell, of the first plane of Unicode; the numbers count only then."""


class Differ:
    """Writes changes in one theme and colour depth."""

    def __init__(self, theme: Theme, depth: Depth) -> None:
        def code(before: str | None, style: str) -> str:
            look = theme.look(style)
            return sgr(look, theme, depth) if before is None else sgr_change(theme.look(before), look, theme, depth)

        self._code = lru_cache(maxsize=512)(code)
        self._letters: dict[str, str] = {}
        self._styles: dict[str, str] = {}
        """The letter of each style seen, and the style of each letter."""
        self._plain: dict[int, _Plain] = {}
        """What each line of the screen was last changed to: usually what it is changed from next."""
        self._style: str | None = None
        """The look that the terminal is set to while changes are written; None where unknown."""

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
        if old[0][1] != new[0][1] and {style for _, style in old}.isdisjoint(style for _, style in new):
            # Every cell differs, as in a row that the cursor has come to or left.
            parts.append(f"\x1b[{y + 1};1H")
            for text, style in new:
                self._write(text, style, parts)
            return
        known = self._plain.get(y)
        was = known if known is not None and known.row is old else self._as_plain(old)
        becomes = self._plain[y] = self._as_plain(new)
        if not (was.narrow and becomes.narrow):
            self._row_of_cells(y, old, new, parts)
            return
        for begin, end in _differing(was, becomes):
            parts.append(f"\x1b[{y + 1};{begin + 1}H")
            for alike in _ALIKE(becomes.styles, begin, end):
                self._write(becomes.text[alike.start() : alike.end()], self._styles[alike[1]], parts)

    def _as_plain(self, row: Row) -> _Plain:
        text, letters = "".join([text for text, _ in row]), self._letters
        for _, style in row:
            if style not in letters:
                # A theme has some seventy styles; the letters begin above the control characters.
                letters[style] = letter = chr(32 + len(letters))
                self._styles[letter] = style
        styles = "".join([letters[style] * len(text) for text, style in row])
        narrow = text.isascii() or is_narrow(text) is not None
        bits = (_bits(text), _bits(styles)) if narrow else (0, 0)
        return _Plain(row, text, styles, *bits, narrow)

    def _row_of_cells(self, y: int, old: Row, new: Row, parts: list[str]) -> None:
        """As ``_row``, where characters may be two cells wide."""
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


def _differing(was: _Plain, becomes: _Plain) -> list[tuple[int, int]]:
    """(begin, end) of the runs that differ in character or style, close ones joined.

    A row is compared as one number, two bytes a cell, whose bits differ where the cells do.
    """
    size = len(becomes.text)
    differs = (was.text_bits ^ becomes.text_bits) | (was.style_bits ^ becomes.style_bits)
    if len(was.text) > size:
        # What stands right of a row that ends earlier than the one before is not its own.
        differs &= (1 << 16 * size) - 1
    runs: list[tuple[int, int]] = []
    at = 0
    for run in differs.to_bytes(2 * size, "little").split(_EQUAL):
        if run:
            if found := run.lstrip(b"\0"):
                runs.append(((at + len(run) - len(found)) // 2, (at + len(run.rstrip(b"\0")) + 1) // 2))
            at += len(run)
        at += 2 * LEAST_UNCHANGED
    return runs


def _bits(text: str) -> int:
    """Two bytes a cell, the first one lowest: what stands right of the text equals nothing."""
    return int.from_bytes(text.encode("utf-16-le"), "little")


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
