"""The themes by name, each with its palette: colours by what they stand for. No style and no look is decided here.

A new theme is a palette and a row of ``PALETTES``.

Every text colour keeps 4.5:1 against every ground it is drawn on (7:1 in ``high-contrast``; WCAG 2.2, 1.4.3 and
1.4.6), and the five levels and the areas of the gap chart stay apart to an eye without green cones: tests compute both.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

Palette = Mapping[str, str]

DARK: Palette = MappingProxyType({
    "background": "#0d1117", "text": "#c9d1d9", "bright": "#f0f6fc", "dim": "#8b949e", "rule": "#30363d",
    "green": "#3fb970", "greygreen": "#7aa586", "blue": "#58a6ff", "amber": "#e3b341", "red": "#ff6459",
    "teal": "#39c5bb", "alarm": "#9a1b1b", "on_alarm": "#ffffff", "alarm_row": "#571313", "sm": "#3fb950",
    "gap": "#7e5c12", "gap_alarm": "#8b2121", "gap_lane": "#9c6c14", "unknown": "#6e7681", "track": "#2d333b",
    "fill": "#d29922", "bar": "#161b22", "select": "#1f2c3d",
})  # fmt: skip
LIGHT: Palette = MappingProxyType({
    "background": "#ffffff", "text": "#24292f", "bright": "#000000", "dim": "#59636e", "rule": "#c8d1da",
    "green": "#116243", "greygreen": "#3f6b4b", "blue": "#0550ae", "amber": "#744200", "red": "#c5170a",
    "teal": "#0b6a66", "alarm": "#b3151f", "on_alarm": "#ffffff", "alarm_row": "#ffdcda", "sm": "#1f883d",
    "gap": "#eac54f", "gap_alarm": "#ff8f87", "gap_lane": "#c99400", "unknown": "#818b95", "track": "#dde3ea",
    "fill": "#9e6f00", "bar": "#eaeef2", "select": "#cfe3fb",
})  # fmt: skip
HIGH_CONTRAST: Palette = MappingProxyType({
    "background": "#000000", "text": "#f2f2f2", "bright": "#ffffff", "dim": "#d0d0d0", "rule": "#8a8a8a",
    "green": "#3dfc8b", "greygreen": "#a8f0c0", "blue": "#8cc8ff", "amber": "#ffe14d", "red": "#ffaaa2",
    "teal": "#52f2e4", "alarm": "#8f0000", "on_alarm": "#ffffff", "alarm_row": "#4d0000", "sm": "#2ee65c",
    "gap": "#a08000", "gap_alarm": "#b00000", "gap_lane": "#c89a00", "unknown": "#9a9a9a", "track": "#3c3c3c",
    "fill": "#ffd21f", "bar": "#1c1c1c", "select": "#002d5c",
})  # fmt: skip
COLOUR_BLIND: Palette = MappingProxyType({
    # Blue works, yellow warns, orange alarms: told apart by the blue cones and by lightness, not by red and green.
    "background": "#0d1117", "text": "#c9d1d9", "bright": "#f0f6fc", "dim": "#8b949e", "rule": "#30363d",
    "green": "#4ea5ff", "greygreen": "#88b6e3", "blue": "#d5d9ff", "amber": "#f5e04a", "red": "#ee7733",
    "teal": "#a5c8e4", "alarm": "#a33b00", "on_alarm": "#ffffff", "alarm_row": "#4a1f05", "sm": "#4ea5ff",
    "gap": "#a89a1a", "gap_alarm": "#8f3400", "gap_lane": "#8f8418", "unknown": "#6e7681", "track": "#2d333b",
    "fill": "#d9c53a", "bar": "#161b22", "select": "#1f2c3d",
})  # fmt: skip
ANSI: Palette = MappingProxyType({
    # Text in the terminal's own foreground: some palettes make "bright black" and "white" invisible.
    "background": "", "text": "", "bright": "", "dim": "", "rule": "", "green": "green", "greygreen": "cyan",
    "blue": "bright_blue", "amber": "yellow", "red": "bright_red", "teal": "cyan", "alarm": "red",
    "on_alarm": "bright_white", "alarm_row": "", "sm": "green", "gap": "yellow", "gap_alarm": "red",
    "gap_lane": "yellow", "unknown": "", "fill": "yellow", "track": "bright_black", "bar": "", "select": "",
})  # fmt: skip
NONE: Palette = MappingProxyType(dict.fromkeys(DARK, ""))


class ThemeRow(Struct, frozen=True):
    """A theme's palette, and for which ground it is made. ``about`` is what its name does not say.

    ``terminal`` leaves the ground, and what the palette leaves empty, to the terminal; ``colourless`` does without
    colours.
    """

    palette: Palette
    dark: bool = True
    terminal: bool = False
    colourless: bool = False
    about: str = ""


PALETTES: Mapping[str, ThemeRow] = MappingProxyType({
    "dark": ThemeRow(DARK),
    "light": ThemeRow(LIGHT, dark=False),
    "high-contrast": ThemeRow(HIGH_CONTRAST),
    "colour-blind": ThemeRow(COLOUR_BLIND),
    "ansi": ThemeRow(ANSI, terminal=True, about="the terminal's own sixteen colours"),
    "mono": ThemeRow(NONE, terminal=True, colourless=True),
})  # fmt: skip
THEME_NAMES = ("auto", *PALETTES)
"""What the setting may be; ``auto`` looks at the terminal, see ``terminal.choose``."""


def theme_words(*, explained: bool = False) -> str:
    """The names as a list in words, for help; ``explained`` adds what a name does not say."""
    names = [f"{n} ({row.about})" if explained and row.about else n for n, row in PALETTES.items()]
    return f"{', '.join(('auto', *names[:-1]))} or {names[-1]}"
