"""Painted rows as text for a terminal or a file: with SGR colours, or plain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import compress, count, groupby
from operator import ne, or_

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
    attributes = (("1", look.bold), ("2", look.faint), ("4", look.underline), ("7", look.reverse))
    return [code for code, is_set in attributes if is_set]


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
_RUNS = re.compile(rb"\x01(?:\x00{0,%d}\x01)*" % (LEAST_UNCHANGED - 1)).finditer
"""Finds the runs in a byte a cell, which is 1 where the cell changed."""
RESET = "\x1b[0m"
COVERED = "\0"
"""In place of the second cell of a wide character; no text that is shown has it."""


class Differ:
    """Writes changes in one theme and colour depth."""

    def __init__(self, theme: Theme, depth: Depth) -> None:
        def code(before: str | None, style: str) -> str:
            look = theme.look(style)
            return sgr(look, theme, depth) if before is None else sgr_change(theme.look(before), look, theme, depth)

        self._code = lru_cache(maxsize=512)(code)
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
        first = _alike(old, new)
        column = sum([cells(text) for text, _ in old[:first]])
        old, new = old[first:], new[first:]
        last = _alike(old[::-1], new[::-1])
        was, were = _cells(old[: len(old) - last])
        text, styles = _cells(new[: len(new) - last])
        differ = map(or_, map(ne, was, text), map(ne, were, styles))
        for begin, end in [run.span() for run in _RUNS(bytes(differ))]:
            # A wide character is written whole, also where it covers a cell that did not change.
            begin -= COVERED in (text[begin], was[begin])
            end += text[end : end + 1] == COVERED
            parts.append(f"\x1b[{y + 1};{column + begin + 1}H")
            for style, run in groupby(styles[begin:end]):
                if style != self._style:
                    parts.append(self._code(self._style, style))
                    self._style = style
                begin, done = begin + len(list(run)), begin
                parts.append(text[done:begin].replace(COVERED, ""))


def _alike(one: Row, other: Row) -> int:
    """How many spans two rows have in common from their beginning."""
    return next(compress(count(), map(ne, one, other)), min(len(one), len(other)))


def _cells(row: Row) -> tuple[str, list[str]]:
    """A row cell by cell: characters, and their styles."""
    text = "".join([text for text, _ in row])
    if not (text.isascii() or is_narrow(text)):
        row = tuple([("".join([char + COVERED * (cells(char) - 1) for char in text]), style) for text, style in row])
        text = "".join([text for text, _ in row])
    styles: list[str] = []
    for piece, style in row:
        styles += [style] * len(piece)
    return text, styles
