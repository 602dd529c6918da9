"""The characters that a screen is drawn with, in three sets: with colour, without colour, and plain ASCII."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

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
        return {"green": self.green, "info": self.info, "yellow": self.yellow}.get(
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
    text = text.translate(_ASCII_FORMS)
    return text.encode("ascii", "replace").decode("ascii")


def keys_shown(shown: str, glyphs: Glyphs) -> str:
    """Key names for people: an ASCII terminal has no arrows for the cursor keys."""
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


# What a terminal can show, judged from its environment: how many colours, which characters, dark or light.

Depth = Literal["truecolor", "256", "16", "none"]


class Terminal(Struct, frozen=True):
    """The choice for one terminal: colour depth, theme name, character set."""

    depth: Depth
    theme: str
    glyphs: Glyphs


def colour_depth(env: Mapping[str, str]) -> Depth:
    """How many colours the terminal has: NO_COLOR first, then COLORTERM, then TERM."""
    if env.get("NO_COLOR"):
        return "none"
    if env.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "truecolor"
    term = env.get("TERM", "")
    if term.endswith("-direct"):
        return "truecolor"
    return "256" if "256" in term or term in ("alacritty", "kitty", "foot", "xterm-kitty") else "16"


def is_light(env: Mapping[str, str]) -> bool:
    """Whether COLORFGBG (``foreground;background``, set by several terminals) names a light background.

    As Vim reads it: 0 to 6 and 8 of the sixteen are dark.
    """
    ground = env.get("COLORFGBG", "").rpartition(";")[2]
    return ground.isdecimal() and 7 <= int(ground) <= 15 and int(ground) != 8


def choose(env: Mapping[str, str], encoding: str | None, *, theme: str, ascii_only: bool, no_color: bool) -> Terminal:
    """The terminal to draw for. ``theme`` is a theme's name or ``auto``.

    The console of Linux knows of the blocks that charts are made of only the halves and the full one, whatever the
    encoding is (drivers/tty/vt/cp437.uni): the others would all be the same square.
    """
    depth: Depth = "none" if no_color else colour_depth(env)
    plain = (
        ascii_only
        or env.get("TERM") == "linux"
        or (encoding or "ascii").lower().replace("-", "") not in ("utf8", "utf16", "gb18030")
    )
    if depth == "none":
        return Terminal(depth, "mono", ASCII if plain else MONO)
    if theme == "auto":
        theme = "ansi" if depth == "16" else "light" if is_light(env) else "dark"
    return Terminal(depth, theme, ASCII if plain else MONO if theme == "mono" else COLOUR)
