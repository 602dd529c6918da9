"""The three sets of characters that screens are drawn with.

With colour, without colour, and plain ASCII.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

LOWER, LEFT = " ▁▂▃▄▅▆▇█", " ▏▎▍▌▋▊▉█"
"""A cell filled from below, or from the left, in eighths."""
_LEVELS = {"green": "●", "info": "i", "yellow": "▲", "red": "■"}


def level_glyph(level: str) -> str:
    """Return the glyph of a level.

    Each level has its own, so that colour is never alone.
    """
    return _LEVELS.get(level, "·")


class Glyphs(Struct, frozen=True):
    """One set of characters.

    With ``solid`` False a boundary cannot lie inside a cell.
    """

    name: str
    solid: bool = False

    @property
    def gap(self) -> str:
        """Character of a chart's gap above SM."""
        return "█" if self.solid else "░"

    @property
    def track(self) -> str:
        """Character of a bar's empty part."""
        return " " if self.solid else "·"


COLOUR = Glyphs("colour", solid=True)
MONO = Glyphs("mono")
ASCII = Glyphs("ascii")


def ascii_only(text: str) -> str:
    """gputop's own text for an ASCII terminal."""
    return _ascii(text, _ASCII_FORMS)


def ascii_cells(text: str) -> str:
    """Convert a row's text for an ASCII terminal.

    Every character of gputop takes one cell there, too.
    """
    return _ascii(text, _CELL_FORMS)


def _ascii(text: str, forms: Mapping[int, str | int | None]) -> str:
    return (
        text if text.isascii() else text.translate(forms).encode("ascii", "replace").decode("ascii")
    )


def keys_shown(shown: str, glyphs: Glyphs) -> str:
    """Return key names for people.

    An ASCII terminal has no arrows for the cursor keys.
    """
    if glyphs.name == "ascii":
        for arrow, word in zip("↑↓←→", ("up", "down", "left", "right"), strict=True):
            shown = shown.replace(arrow, word)
    return shown


_ASCII_FORMS = str.maketrans({
    "→": "=>", "↳": ">", "≤": "<=", "≥": ">=", "·": "-", "–": "-", "−": "-", "—": "-", "…": "...", "×": "x", "°": "",
    "↓": "in", "↑": "out", "“": '"', "”": '"', "’": "'", "µ": "u", "²": "2", "±": "+-", "≈": "~", "←": "<=", "✓": "+",
    "✗": "x", "⏎": "|", "●": "*", "▲": "!", "■": "#", "█": "#", "▏": "", "▎": "", "▍": "", "▌": "=", "▋": "=",
    "▊": "=", "▉": "=",
})  # fmt: skip
_CELL_FORMS = _ASCII_FORMS | str.maketrans(
    "→↳≤≥…°↓↑←░▒▁▂▃▄▅▆▇▏▎▍▌▋▊▉─│├└▸▾▴", ">-<>~ v^<.:___===#----=##-||`>v^"
)
