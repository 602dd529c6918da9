"""A card as an SVG of 1200 × 630, the size that chats and pages show.

Everything is measured in characters of one width, so that text is wrapped and its size chosen before it is drawn: long
names make the text smaller and cut nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from msgspec import Struct

from gputop.diagnosis.types import Role
from gputop.model.clean_text import wrapped
from gputop.output.card import Card, CardCause
from gputop.output.picture import BACKGROUND, FONTS
from gputop.paint.cells import cells
from gputop.paint.theme import Theme

WIDTH, HEIGHT = 1200, 630
_MARGIN = 48.0
_INNER = WIDTH - 2 * _MARGIN
_CHAR = 0.6
"""Width of a character by its font size, as that of the fonts in ``FONTS``."""
_LINE = 1.32
"""Distance of lines by font size."""
_FIGURE_SIZE = 92.0
_BAR = 24.0
_BOX = 46.0
_TITLE = 1.25
"""Size of a cause's title by that of its evidence: at half size the titles alone are read."""
_LARGEST, _LARGEST_ALONE, _SMALLEST = 25.0, 36.0, 4.0
"""Sizes of text below the bar, and of remarks without causes; 4 holds whatever a file may contain."""
_ON_DARK: Mapping[Role, str] = {
    "work": "level.green",
    "waiting": "level.yellow",
    "not_working": "level.red",
    "information": "gap.unknown",
    "unknown": "rule",
}
_ON_LIGHT: Mapping[Role, str] = {
    **_ON_DARK,
    "work": "area.work",
    "waiting": "lane.wait",
    "not_working": "gap.alarm",
}
"""Styles of areas: the colours of text are too dark for areas on a light ground."""


class _Line(Struct, frozen=True):
    """A line of text with its style, distance from the left and size.

    ``indent`` is in characters, ``scale`` by the size of other text.
    """

    text: str
    style: str
    indent: int = 0
    scale: float = 1.0


class _Block(Struct, frozen=True):
    """Lines that stay together, with the colour and share before them."""

    lines: tuple[_Line, ...]
    role: Role | None = None
    share: str = ""


def card_svg(card: Card, theme: Theme) -> str:
    """The card as one SVG document."""
    pen = _Pen(theme)
    top = _head(pen, card)
    top = _figures(pen, card, top)
    top = _bar(pen, card, top)
    bottom = HEIGHT - _MARGIN + 8.0
    if card.worth:
        bottom -= _worth(pen, card.worth, bottom)
    _body(pen, card, top, bottom)
    label = escape(f"{card.figure} {card.headline}, {card.place}".strip(), quote=True)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
            f'height="{HEIGHT}" role="img" aria-label="{label}">',
            f"<title>{label}</title>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{theme.background or BACKGROUND}"/>',
            f'<g font-family="{FONTS}" xml:space="preserve">',
            *pen.elements,
            "</g>",
            "</svg>\n",
        ]
    )


class _Pen:
    """Collects the elements of a picture."""

    def __init__(self, theme: Theme) -> None:
        self.elements: list[str] = []
        self._theme = theme
        self._areas = _ON_DARK if theme.dark else _ON_LIGHT

    def text(self, x: float, y: float, size: float, style: str, words: str) -> None:
        """Draw a line of text with its baseline at ``y``."""
        if not words:
            return
        look = self._theme.look(style)
        weight = ' font-weight="bold"' if look.bold else ""
        long = cells(words) * size * _CHAR
        self.elements.append(
            f'<text x="{_px(x)}" y="{_px(y)}" font-size="{_px(size)}" fill="{self._colour(style)}"{weight} '
            f'textLength="{_px(long)}" lengthAdjust="spacingAndGlyphs">{escape(words)}</text>'
        )

    def area(self, x: float, y: float, width: float, height: float, role: Role) -> None:
        """Draw a part of the time as an area."""
        fill = self._colour(self._areas[role])
        self.elements.append(
            f'<rect x="{_px(x)}" y="{_px(y)}" width="{_px(width)}" height="{_px(height)}" '
            f'rx="{_px(min(4.0, width / 2))}" fill="{fill}"/>'
        )

    def ground(self, x: float, y: float, width: float, height: float) -> None:
        """Draw the ground of a row that stands out."""
        fill = self._theme.look("bar").bg or BACKGROUND
        self.elements.append(
            f'<rect x="{_px(x)}" y="{_px(y)}" width="{_px(width)}" height="{_px(height)}" '
            f'rx="8" fill="{fill}"/>'
        )

    def _colour(self, style: str) -> str:
        return self._theme.look(style).fg or self._theme.foreground or "#c9d1d9"


def _px(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _columns(width: float, size: float) -> int:
    """Characters of a size in a width."""
    return max(1, int(width / (size * _CHAR)))


def _wrap(text: str, columns: int) -> list[str]:
    """Wrap a text into lines of so many cells."""
    # A wide character takes two cells: half as many characters fit in any case.
    is_wide = cells(text) > len(text)
    return wrapped(text, max(1, columns // 2) if is_wide else columns)


def _fitted(text: str, width: float, largest: float, most_lines: int) -> tuple[float, list[str]]:
    """The largest size in which a text takes so many lines, and the lines."""
    size = largest
    while True:
        lines = _wrap(text, _columns(width, size))
        if len(lines) <= most_lines or size <= _SMALLEST:
            return size, lines
        size -= 1.0


def _head(pen: _Pen, card: Card) -> float:
    """Draw host, GPUs and time; return the bottom."""
    brand, first = "gputop", 64.0
    size = 24.0
    pen.text(WIDTH - _MARGIN - len(brand) * size * _CHAR, first, size, "level.grey", brand)
    place_width = _INNER - (len(brand) + 2) * size * _CHAR
    size, lines = _fitted(card.place, place_width, 24.0, 2)
    y = first
    for line in lines:
        pen.text(_MARGIN, y, size, "strong", line)
        y += size * _LINE
    y += max(0.0, 20.0 - size) * _LINE
    pen.text(_MARGIN, y, 20.0, "dim", card.span)
    return y + 20.0


def _figures(pen: _Pen, card: Card, top: float) -> float:
    """Draw the share that worked and its amounts; return the bottom."""
    left = _MARGIN
    number, _, unit = card.figure.partition(" ")
    if number:
        baseline = top + 80.0
        pen.text(left, baseline, _FIGURE_SIZE, "level.green", number)
        left += (len(number) + 0.12) * _FIGURE_SIZE * _CHAR
        pen.text(left, baseline, _FIGURE_SIZE / 2, "level.green", unit)
        left += _FIGURE_SIZE / 2 * _CHAR + 32.0
    room = WIDTH - _MARGIN - left
    has_cost = card.cost != ""
    y = top + (36.0 if has_cost else 42.0)
    size, lines = _fitted(card.headline, room, 34.0, 1)
    pen.text(left, y, size, "strong", lines[0])
    y += 30.0 if has_cost else 38.0
    for words, style in ((card.amounts, "text"), (card.cost, "dim")):
        size, lines = _fitted(words, room, 21.0, 1)
        for line in lines:
            pen.text(left, y, size, style, line)
        y += 28.0
    return top + 110.0


def _bar(pen: _Pen, card: Card, top: float) -> float:
    """Draw the parts of all GPU time beside each other; return the bottom."""
    if not card.parts:
        return top
    gap = 4.0
    x, room = _MARGIN, _INNER - gap * (len(card.parts) - 1)
    for part in card.parts:
        width = part.share * room
        pen.area(x, top, width, _BAR, part.role)
        x += width + gap
    return top + _BAR


def _worth(pen: _Pen, words: str, bottom: float) -> float:
    """Draw the worth of the first cure at the bottom; return its height."""
    size, lines = _fitted(words, _INNER - 40.0, 22.0, 1)
    height = max(_BOX, len(lines) * size * _LINE + 18.0)
    pen.ground(_MARGIN, bottom - height, _INNER, height)
    y = bottom - height / 2 - (len(lines) - 1) * size * _LINE / 2 + 0.35 * size
    for line in lines:
        pen.text(_MARGIN + 20.0, y, size, "key", line)
        y += size * _LINE
    return height + 16.0


_SHARE_COLUMNS = 10
"""Characters before a cause: its colour and its share."""


def _body(pen: _Pen, card: Card, top: float, bottom: float) -> None:
    """Draw causes and remarks, as large as they fit."""
    room = bottom - top
    size = _LARGEST if card.causes else _LARGEST_ALONE
    blocks = _blocks(card, size)
    while _height(blocks, size) > room and size > _SMALLEST:
        size -= 0.5
        blocks = _blocks(card, size)
    if not blocks:
        return
    spare = max(0.0, room - _height(blocks, size))
    extra = min(size, spare / (len(blocks) + 1))
    space = _gap(size) + extra
    # What is left is above and below: one sentence stands in the middle.
    y = top + (spare - extra * (len(blocks) + 1)) / 2
    for block in blocks:
        y += space
        _draw_block(pen, block, y, size)
        y += _block_height(block, size)


def _gap(size: float) -> float:
    """Least space before a block and at the end."""
    return 0.7 * size


def _height(blocks: Sequence[_Block], size: float) -> float:
    """Height of all blocks with the least space between them."""
    heights = [_block_height(block, size) + _gap(size) for block in blocks]
    return sum(heights) + _gap(size)


def _block_height(block: _Block, size: float) -> float:
    return sum(line.scale for line in block.lines) * size * _LINE


def _blocks(card: Card, size: float) -> list[_Block]:
    """The rows below the bar, wrapped for a font size."""
    blocks = [_cause_block(cause, size) for cause in card.causes]
    if card.others:
        blocks.append(_Block(_lines(card.others, size, "dim", _SHARE_COLUMNS)))
    return blocks + [_Block(_lines(remark, size, "text", 0)) for remark in card.remarks]


def _lines(
    text: str, size: float, style: str, indent: int, scale: float = 1.0
) -> tuple[_Line, ...]:
    """Lines of a text behind its indent."""
    columns = _columns(_INNER - indent * size * _CHAR, size * scale)
    return tuple(_Line(line, style, indent, scale) for line in _wrap(text, columns))


def _cause_block(cause: CardCause, size: float) -> _Block:
    """A cause with its evidence and remedy."""
    title = _lines(cause.title, size, "strong", _SHARE_COLUMNS, _TITLE)
    evidence = _lines(cause.evidence, size, "dim", _SHARE_COLUMNS)
    remedy = f"→ {cause.remedy}" if cause.remedy else ""
    return _Block(
        title + evidence + _lines(remedy, size, "remedy", _SHARE_COLUMNS),
        cause.role,
        cause.share,
    )


def _draw_block(pen: _Pen, block: _Block, top: float, size: float) -> None:
    """Draw a block below ``top``."""
    y = top
    if block.role is not None:
        title = size * _TITLE
        side = 0.72 * title
        baseline = y + 0.98 * title
        pen.area(_MARGIN, baseline - side, side, side, block.role)
        left = _MARGIN + (_SHARE_COLUMNS - 1.4) * size * _CHAR
        left -= len(block.share) * title * _CHAR
        pen.text(left, baseline, title, "strong", block.share)
    for line in block.lines:
        line_size = size * line.scale
        left = _MARGIN + line.indent * size * _CHAR
        pen.text(left, y + 0.98 * line_size, line_size, line.style, line.text)
        y += line_size * _LINE
