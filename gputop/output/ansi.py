"""Painted rows as plain or coloured text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from gputop.paint.line import Row
from gputop.paint.terminal_kind import Depth
from gputop.paint.theme import Look, Theme

_NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_RESET = "\x1b[0m"


def plain_text(rows: Sequence[Row]) -> str:
    """The rows without any style, trailing spaces dropped."""
    return "\n".join("".join(text for text, _ in row).rstrip() for row in rows) + "\n"


def ansi_text(
    rows: Sequence[Row], theme: Theme, depth: Depth = "truecolor", newline: str = "\n"
) -> str:
    """Rows with SGR sequences of a colour depth.

    Every row ends reset, so that it can be cut off anywhere.
    """
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
    """The nearest colour of the 256-colour palette."""
    levels = (0, 95, 135, 175, 215, 255)
    cube = [min(range(6), key=lambda i, v=v: abs(levels[i] - v)) for v in (r, g, b)]  # type: ignore[misc]
    grey = min(range(24), key=lambda i: abs(8 + 10 * i - (r + g + b) // 3))
    in_cube = sum((levels[c] - v) ** 2 for c, v in zip(cube, (r, g, b), strict=True))
    in_grey = sum((8 + 10 * grey - v) ** 2 for v in (r, g, b))
    return 232 + grey if in_grey < in_cube else 16 + 36 * cube[0] + 6 * cube[1] + cube[2]


def sgr(look: Look, theme: Theme, depth: Depth) -> str:
    """The sequence that sets a look from a clean state."""
    return f"\x1b[{';'.join(('0', *_flags(look), *_colours(look, theme, depth)))}m"


def _flags(look: Look) -> list[str]:
    attributes = (("1", look.bold), ("2", look.faint), ("4", look.underline), ("7", look.reverse))
    return [code for code, is_set in attributes if is_set]


def _colours(look: Look, theme: Theme, depth: Depth) -> list[str]:
    """SGR parameters of foreground and background."""
    if depth == "none" or theme.colourless:
        return []
    pair = ((look.fg or theme.foreground, False), (look.bg or theme.background, True))
    return [_colour(colour, depth, ground=ground) for colour, ground in pair if colour]
