"""Painted rows as an SVG that looks the same everywhere.

Block elements, rules, branches and level glyphs are drawn as shapes, so no font decides how a chart looks. Text runs
carry ``textLength``, so columns stay aligned in whatever monospaced font the viewer has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from gputop.paint.cells import cells
from gputop.paint.line import Row
from gputop.paint.theme import Look, Theme

CELL_WIDTH, CELL_HEIGHT, FONT_SIZE, BASELINE = 8.4, 18.0, 14.0, 13.4
FONTS = "'DejaVu Sans Mono','JetBrains Mono',Menlo,Consolas,'Liberation Mono',monospace"
MARGIN = 8.0

_LOWER = "▁▂▃▄▅▆▇█"
_LEFT = "▏▎▍▌▋▊▉"
_SHADES = {"░": 0.25, "▒": 0.5, "▓": 0.75}
_SOLID = f"{_LOWER}{_LEFT}─├└■"
_MARKS = "●▲▾▴"
"""Shapes with round or slanting edges."""
_DRAWN = f"{_SOLID}{_MARKS}{''.join(_SHADES)}"
_PIECE = re.compile(
    rf"([─{_LOWER}{''.join(_SHADES)}])\1*|[{_LEFT}├└■{_MARKS}]| +|[^ {_DRAWN}](?:[^ {_DRAWN}]| (?! ))*"
)
"""A run of one shape that may be drawn as one, a shape by itself, spaces, or words."""
BACKGROUND = "#0d1117"


def svg(rows: Sequence[Row], theme: Theme, title: str) -> str:
    """One SVG document. ``title`` is its accessible name."""
    return "\n".join([*head([rows], theme, title), *drawn(rows, theme), "</svg>"]) + "\n"


def head(screens: Sequence[Sequence[Row]], theme: Theme, title: str) -> list[str]:
    """The root element, as large as the largest screen."""
    columns = max(
        (sum(cells(text) for text, _ in row) for rows in screens for row in rows), default=1
    )
    height = max(map(len, screens)) * CELL_HEIGHT + 2 * MARGIN
    width = columns * CELL_WIDTH + 2 * MARGIN
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_px(width)} {_px(height)}" '
        f'width="{_px(width)}" height="{_px(height)}" role="img" aria-label="{escape(title, quote=True)}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="100%" height="100%" rx="6" fill="{theme.background or BACKGROUND}"/>',
    ]


def drawn(rows: Sequence[Row], theme: Theme) -> list[str]:
    """The elements that show painted rows."""
    drawing = _Drawing()
    for y, row in enumerate(rows):
        x, top = 0, MARGIN + y * CELL_HEIGHT
        for text, style in row:
            look = theme.look(style)
            fg, bg = look.fg or theme.foreground or "#c9d1d9", look.bg
            if look.reverse:
                fg, bg = bg or theme.background or BACKGROUND, fg
            if bg:
                drawing.grounds.setdefault(bg, []).append(_rect(x, top, cells(text)))
            drawing.add(text, x, top, fg, look)
            x += cells(text)
    return drawing.elements()


class _Drawing:
    """Shapes by colour and opacity, and runs of other characters."""

    def __init__(self) -> None:
        self.grounds: dict[str, list[str]] = {}
        self._shapes: dict[tuple[str, float], list[str]] = {}
        self._marks: dict[str, list[str]] = {}
        self._texts: list[str] = []

    def add(self, text: str, x: int, top: float, fill: str, look: Look) -> None:
        """One run of a row, from a cell on."""
        solid = self._shapes.setdefault((fill, 1.0), [])
        weight = (' font-weight="bold"' * look.bold) + (
            ' text-decoration="underline"' * look.underline
        )
        for match in _PIECE.finditer(text):
            piece = match[0]
            char, size = piece[0], cells(piece)
            if char in _SHADES:
                self._shapes.setdefault((fill, _SHADES[char]), []).append(_rect(x, top, size))
            elif char in _MARKS:
                self._marks.setdefault(fill, []).append(_shape(char, x, top, size))
            elif char in _SOLID:
                solid.append(_shape(char, x, top, size))
            elif words := piece.rstrip(" "):
                length = (
                    f'textLength="{_px(cells(words) * CELL_WIDTH)}" lengthAdjust="spacingAndGlyphs"'
                )
                place = f'x="{_px(MARGIN + x * CELL_WIDTH)}" y="{_px(top + BASELINE)}"'
                self._texts.append(
                    f'<text {place} fill="{fill}"{weight} {length}>{escape(words)}</text>'
                )
            x += size
        if not solid:
            del self._shapes[(fill, 1.0)]

    def elements(self) -> list[str]:
        return [
            '<g shape-rendering="crispEdges">',
            *(_path(fill, paths) for fill, paths in self.grounds.items()),
            *(
                _path(fill, paths, "" if opacity == 1 else f' fill-opacity="{opacity}" ')
                for (fill, opacity), paths in self._shapes.items()
            ),
            "</g>",
            # With crisp edges a browser makes a square of a small circle.
            *(_path(fill, paths) for fill, paths in self._marks.items()),
            f'<g font-family="{FONTS}" font-size="{_px(FONT_SIZE)}" xml:space="preserve">',
            *self._texts,
            "</g>",
        ]


def _path(fill: str, paths: Sequence[str], more: str = "") -> str:
    return f'<path fill="{fill}"{more} d="{"".join(paths)}"/>'


def _px(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _rect(x: float, top: float, size: float, height: float = CELL_HEIGHT) -> str:
    """A rectangle from a cell on, so many cells wide."""
    width = size * CELL_WIDTH
    return f"M{_px(MARGIN + x * CELL_WIDTH)} {_px(top)}h{_px(width)}v{_px(height)}h{_px(-width)}z"


def _shape(char: str, x: int, top: float, count: int) -> str:
    x_px, middle = MARGIN + x * CELL_WIDTH, top + CELL_HEIGHT / 2
    centre = x_px + CELL_WIDTH / 2
    if char in _LOWER:
        height = CELL_HEIGHT * (_LOWER.index(char) + 1) / 8
        return _rect(x, top + CELL_HEIGHT - height, count, height)
    if char in _LEFT:
        return _rect(x, top, (_LEFT.index(char) + 1) / 8)
    if char == "─":
        return _rect(x, middle - 0.5, count, 1)
    if char in "├└":
        end = CELL_HEIGHT if char == "├" else CELL_HEIGHT / 2
        arm = _px(CELL_WIDTH / 2)
        return (
            f"M{_px(centre)} {_px(top)}h1v{_px(end)}h-1zM{_px(centre)} "
            f"{_px(middle)}h{arm}v1h-{arm}z"
        )
    if char == "●":
        r = 3.4
        return f"M{_px(centre - r)} {_px(middle)}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z"
    if char == "■":
        return f"M{_px(centre - 3.5)} {_px(middle - 3.5)}h7v7h-7z"
    if char == "▲":
        return f"M{_px(centre)} {_px(middle - 4)}l4 8h-8z"
    if char == "▾":
        return f"M{_px(centre - 3)} {_px(middle - 1.5)}h6l-3 4z"
    return f"M{_px(centre - 3)} {_px(middle + 2)}h6l-3 -4z"
