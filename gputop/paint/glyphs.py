"""The characters that a screen is drawn with, in three sets: with colour, without colour, and plain ASCII."""

from __future__ import annotations

from msgspec import Struct


class Glyphs(Struct, frozen=True):
    """One set. ``lower`` are the nine heights of a cell; with ``solid`` False a boundary cannot lie inside a cell."""

    name: str
    solid: bool
    lower: str = " ▁▂▃▄▅▆▇█"
    left: str = " ▏▎▍▌▋▊▉█"
    sm: str = "█"
    gap: str = "█"
    unknown: str = "▒"
    track: str = " "
    rule: str = "─"
    mark: str = "│"
    branch: str = "├"
    last_branch: str = "└"
    because: str = "↳"
    remedy: str = "→"
    down: str = "↓"
    up: str = "↑"
    sorted: str = "▾"
    sorted_up: str = "▴"
    more: str = "…"
    dash: str = "–"
    times: str = "×"
    dot: str = "·"
    here: str = "▸"
    at_most: str = "≤"
    degree: str = "°C"
    record: str = "●"
    green: str = "●"
    info: str = "i"
    yellow: str = "▲"
    red: str = "■"
    grey: str = "·"

    def level(self, level: str) -> str:
        """The glyph of a level; each level has its own, so that colour is never alone."""
        return {"green": self.green, "grey-green": self.green, "info": self.info, "yellow": self.yellow}.get(
            level, self.red if level == "red" else self.grey
        )


COLOUR = Glyphs("colour", solid=True)
MONO = Glyphs("mono", solid=False, gap="░", unknown="▒", track="·")
ASCII = Glyphs(
    "ascii",
    solid=False,
    lower=" ___===##",
    left=" ----=###",
    sm="#",
    gap=".",
    unknown=":",
    track="-",
    rule="-",
    mark="|",
    branch="|",
    last_branch="`",
    because=">",
    remedy="=>",
    down="in",
    up="out",
    sorted="v",
    sorted_up="^",
    more="~",
    dash="-",
    times="x",
    dot="-",
    here=">",
    at_most="<=",
    degree="C",
    record="(R)",
    green="*",
    info="i",
    yellow="!",
    red="#",
    grey=".",
)


def ascii_only(text: str) -> str:
    """gputop's own text for an ASCII terminal."""
    if text.isascii():
        return text
    for char, plain in _ASCII_FORMS:
        text = text.replace(char, plain)
    return text.encode("ascii", "replace").decode("ascii")


def keys_shown(shown: str, glyphs: Glyphs) -> str:
    """Key names for people: an ASCII terminal has no arrows for the cursor keys."""
    if glyphs.name == "ascii":
        for arrow, word in zip("↑↓←→", ("up", "down", "left", "right"), strict=True):
            shown = shown.replace(arrow, word)
    return shown


_ASCII_FORMS = (
    ("→", "=>"), ("↳", ">"), ("≤", "<="), ("≥", ">="), ("·", "-"), ("–", "-"), ("−", "-"), ("—", "-"), ("…", "..."),
    ("×", "x"), ("°", ""), ("↓", "in"), ("↑", "out"), ("“", '"'), ("”", '"'), ("’", "'"), ("µ", "u"), ("²", "2"),
    ("±", "+-"),
)  # fmt: skip
