"""Abilities of a terminal, judged from its environment: colours, characters, dark or light."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from gputop.paint.glyphs import ASCII, COLOUR, MONO, Glyphs

Depth = Literal["truecolor", "256", "16", "none"]


class Terminal(Struct, frozen=True):
    """The choice for one terminal: colour depth, theme name, character set."""

    depth: Depth
    theme: str
    glyphs: Glyphs
    is_guess: bool = False
    """Whether a dark background is assumed: the terminal itself may be asked."""


def colour_depth(env: Mapping[str, str]) -> Depth:
    """Return how many colours the terminal has.

    NO_COLOR counts first, then COLORTERM, then TERM.
    """
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


def choose(
    env: Mapping[str, str], encoding: str | None, *, theme: str, ascii_only: bool, no_color: bool
) -> Terminal:
    """Choose depth, theme and characters for a terminal.

    ``theme`` is a theme's name or ``auto``. The console of Linux knows of the blocks that charts are made of only
    the halves and the full one, whatever the encoding is (drivers/tty/vt/cp437.uni): the others would all be the
    same square.
    """
    depth: Depth = "none" if no_color else colour_depth(env)
    plain = (
        ascii_only
        or env.get("TERM") == "linux"
        or (encoding or "ascii").lower().replace("-", "") not in ("utf8", "utf16", "gb18030")
    )
    if depth == "none":
        return Terminal(depth, "mono", ASCII if plain else MONO)
    is_guess = theme == "auto" and depth != "16" and not env.get("COLORFGBG")
    if theme == "auto":
        theme = "ansi" if depth == "16" else "light" if is_light(env) else "dark"
    return Terminal(depth, theme, ASCII if plain else MONO if theme == "mono" else COLOUR, is_guess)
