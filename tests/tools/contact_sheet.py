"""Pictures of the screen matrix, to be looked at with Pillow: ``python -m tests.tools.contact_sheet FOLDER [SIZE …]``.

One sheet a terminal size: a row a theme (and one in ASCII), a column a number of GPUs; the number of processes goes
round. Cells are drawn as in ``gputop.output.picture``: blocks as rectangles, the rest in DejaVu Sans Mono.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from gputop.paint.glyphs import ASCII, COLOUR, MONO, Glyphs
from gputop.paint.line import Row, cells
from gputop.paint.main_screen import main_screen
from gputop.paint.theme import THEMES, Theme
from gputop.paint.view import View
from tests.support.screen_matrix import GPUS, PROCESSES, SIZES, matrix_frame

CELL_WIDTH, CELL_HEIGHT, FONT_SIZE, GAP = 7, 14, 11, 12
LOWER, LEFT = "▁▂▃▄▅▆▇█", "▏▎▍▌▋▊▉█"
TERMINAL = {
    "black": "#000000", "red": "#cd3131", "green": "#0dbc79", "yellow": "#e5e510", "blue": "#2472c8",
    "magenta": "#bc3fbc", "cyan": "#11a8cd", "white": "#e5e5e5", "bright_black": "#666666", "bright_red": "#f14c4c",
    "bright_green": "#23d18b", "bright_yellow": "#f5f543", "bright_blue": "#3b8eea", "bright_magenta": "#d670d6",
    "bright_cyan": "#29b8db", "bright_white": "#ffffff",
}  # fmt: skip
"""One terminal's sixteen colours."""
KINDS: tuple[tuple[str, Glyphs], ...] = (
    *((name, MONO if theme.colourless else COLOUR) for name, theme in THEMES.items()),
    ("dark", ASCII),
)


def picture(rows: Sequence[Row], theme: Theme) -> Image.Image:
    """The rows as they look in a terminal."""
    width = sum(cells(text) for text, _ in rows[0])
    ground = theme.background or "#101010"
    image = Image.new("RGB", (width * CELL_WIDTH, len(rows) * CELL_HEIGHT), ground)
    draw = ImageDraw.Draw(image)
    plain, bold = (ImageFont.truetype(f"DejaVuSansMono{kind}.ttf", FONT_SIZE) for kind in ("", "-Bold"))
    for y, row in enumerate(rows):
        x = 0
        for text, style in row:
            look = theme.look(style)
            fg, bg = (TERMINAL.get(colour or "", colour) for colour in (look.fg, look.bg))
            fg, bg = fg or theme.foreground or "#d0d0d0", bg or ground
            if look.faint:
                fg = "#808080"
            if look.reverse:
                fg, bg = bg, fg
            for char in text:
                left, top, size = x * CELL_WIDTH, y * CELL_HEIGHT, cells(char)
                right, bottom = left + size * CELL_WIDTH - 1, top + CELL_HEIGHT - 1
                if bg != ground:
                    draw.rectangle([left, top, right, bottom], fill=bg)
                if char in LOWER:
                    height = round(CELL_HEIGHT * (LOWER.index(char) + 1) / 8)
                    draw.rectangle([left, bottom + 1 - height, right, bottom], fill=fg)
                elif char in LEFT:
                    draw.rectangle([left, top, left + CELL_WIDTH * LEFT.index(char) // 8, bottom], fill=fg)
                elif char == "─":
                    draw.line([left, top + CELL_HEIGHT // 2, right, top + CELL_HEIGHT // 2], fill=fg)
                elif char != " ":
                    draw.text((left, top), char, fill=fg, font=bold if look.bold else plain)
                x += size
    return image


def sheet(size: tuple[int, int]) -> Image.Image:
    """All machines in all themes at one terminal size."""
    width, height = size[0] * CELL_WIDTH + GAP, size[1] * CELL_HEIGHT + GAP
    image = Image.new("RGB", (width * len(GPUS), height * len(KINDS)), "#707070")
    for line, (name, glyphs) in enumerate(KINDS):
        for column, gpus in enumerate(GPUS):
            frame = matrix_frame(gpus, PROCESSES[(column + line) % len(PROCESSES)])
            rows = main_screen(frame, View(glyphs=glyphs, demo=True), *size).rows
            image.paste(picture(rows, THEMES[name]), (column * width, line * height))
    return image


def write(folder: Path, sizes: Sequence[tuple[int, int]] = SIZES) -> list[Path]:
    """One PNG a size."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for size in sizes:
        paths.append(folder / f"{size[0]}x{size[1]}.png")
        sheet(size).save(paths[-1])
    return paths


if __name__ == "__main__":
    chosen = [size for size in SIZES if not sys.argv[2:] or f"{size[0]}x{size[1]}" in sys.argv[2:]]
    for written in write(Path(sys.argv[1]), chosen):
        print(written)
