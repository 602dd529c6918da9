"""From style names to colours. The only place that knows a colour.

A style name is semantic (``gap.alarm``, ``level.yellow``, ``dim``); ``"a|b"`` lays b under a: what a leaves open, b
decides. A theme is a palette; the table of styles is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

# The themes by name, each with its palette: colours by what they stand for. No style and no look is decided here.
#
# A new theme is a palette and a row of ``PALETTES``.
#
# Every text colour keeps 4.5:1 against every ground it is drawn on (7:1 in ``high-contrast``; WCAG 2.2, 1.4.3 and
# 1.4.6), and the five levels and the areas of the gap chart stay apart to an eye without green cones: tests compute
# both.

Palette = Mapping[str, str]

DARK: Palette = MappingProxyType({
    "background": "#0d1117", "text": "#c9d1d9", "bright": "#f0f6fc", "dim": "#8b949e", "rule": "#30363d",
    "green": "#3fb970", "blue": "#58a6ff", "amber": "#e3b341", "red": "#ff6459",
    "teal": "#39c5bb", "alarm": "#9a1b1b", "on_alarm": "#ffffff", "alarm_row": "#571313", "sm": "#2e8b43",
    "gap": "#6b4c0c", "gap_alarm": "#b02b2b", "gap_lane": "#9c6c14", "unknown": "#6e7681", "track": "#2d333b",
    "bar": "#161b22", "select": "#1f2c3d",
})  # fmt: skip
LIGHT: Palette = MappingProxyType({
    "background": "#ffffff", "text": "#24292f", "bright": "#000000", "dim": "#59636e", "rule": "#c8d1da",
    "green": "#116243", "blue": "#0550ae", "amber": "#744200", "red": "#c5170a",
    "teal": "#0b6a66", "alarm": "#b3151f", "on_alarm": "#ffffff", "alarm_row": "#ffdcda", "sm": "#4aa566",
    "gap": "#eac54f", "gap_alarm": "#f2635a", "gap_lane": "#c99400", "unknown": "#818b95", "track": "#dde3ea",
    "bar": "#eaeef2", "select": "#cfe3fb",
})  # fmt: skip
HIGH_CONTRAST: Palette = MappingProxyType({
    "background": "#000000", "text": "#f2f2f2", "bright": "#ffffff", "dim": "#d0d0d0", "rule": "#8a8a8a",
    "green": "#3dfc8b", "blue": "#8cc8ff", "amber": "#ffe14d", "red": "#ffaaa2",
    "teal": "#52f2e4", "alarm": "#8f0000", "on_alarm": "#ffffff", "alarm_row": "#4d0000", "sm": "#2ee65c",
    "gap": "#a08000", "gap_alarm": "#b00000", "gap_lane": "#c89a00", "unknown": "#9a9a9a", "track": "#3c3c3c",
    "bar": "#1c1c1c", "select": "#002d5c",
})  # fmt: skip
COLOUR_BLIND: Palette = MappingProxyType({
    # Blue works, yellow warns, orange alarms: told apart by the blue cones and by lightness, not by red and green.
    "background": "#0d1117", "text": "#c9d1d9", "bright": "#f0f6fc", "dim": "#8b949e", "rule": "#30363d",
    "green": "#4ea5ff", "blue": "#d5d9ff", "amber": "#f5e04a", "red": "#ee7733",
    "teal": "#a5c8e4", "alarm": "#a33b00", "on_alarm": "#ffffff", "alarm_row": "#4a1f05", "sm": "#3b82cc",
    "gap": "#a89a1a", "gap_alarm": "#8f3400", "gap_lane": "#8f8418", "unknown": "#6e7681", "track": "#2d333b",
    "bar": "#161b22", "select": "#1f2c3d",
})  # fmt: skip
ANSI: Palette = MappingProxyType({
    # Text in the terminal's own foreground: some palettes make "bright black" and "white" invisible.
    "background": "", "text": "", "bright": "", "dim": "", "rule": "", "green": "green",
    "blue": "bright_blue", "amber": "yellow", "red": "bright_red", "teal": "cyan", "alarm": "red",
    "on_alarm": "bright_white", "alarm_row": "", "sm": "green", "gap": "yellow", "gap_alarm": "red",
    "gap_lane": "yellow", "unknown": "", "track": "bright_black", "bar": "", "select": "",
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


class Look(Struct, frozen=True):
    """How a span looks. Colours are ``#rrggbb`` or, in an ANSI theme, names of the sixteen; None is the default."""

    fg: str | None = None
    bg: str | None = None
    bold: bool = False
    reverse: bool = False
    underline: bool = False
    faint: bool = False


class Theme(Struct, frozen=True):
    """A named palette and the looks made of it."""

    name: str
    dark: bool
    background: str | None
    foreground: str | None
    looks: Mapping[str, Look]
    colourless: bool = False

    def look(self, style: str) -> Look:
        """The look of a style name or of names joined with ``|``. Raises KeyError for a name that does not exist."""
        return _resolve(self.name, style)


STYLES: Mapping[str, str] = MappingProxyType({
    "text": "text", "value": "bright", "strong": "bright bold", "dim": "dim", "rule": "rule", "heading": "dim bold",
    "title": "bright bold", "key": "blue bold", "evidence": "bright", "remedy": "teal", "brand": "bright bold",
    "level.green": "green bold", "level.grey-green": "text bold", "level.info": "blue bold",
    "level.yellow": "amber bold", "level.red": "red bold", "level.grey": "dim bold", "value.sm": "green bold",
    "value.gap": "amber bold", "value.alarm": "red bold", "alarm.title": "on_alarm/alarm bold",
    "alarm.row": "/alarm_row", "gap.sm": "sm", "gap.gap": "gap", "gap.alarm": "gap_alarm", "gap.sm_on_gap": "sm/gap",
    "gap.sm_on_alarm": "sm/gap_alarm", "gap.unknown": "unknown", "bar.mem": "blue/track",
    "bar.mem.track": "dim/track", "bar.run": "blue/track", "bar.run.track": "dim/track", "bar.alarm": "red/track",
    "bar.alarm.track": "dim/track", "lane.idle": "unknown", "lane.run": "blue", "lane.wait": "gap_lane",
    "lane.disk": "red", "lane.main": "green", "lane.bus": "teal", "area.work": "sm", "area.board": "blue",
    "area.bus": "teal", "area.mem": "blue", "area.heat": "unknown", "bar": "text/bar", "select": "/select",
    "record": "red bold",
})  # fmt: skip
"""Style -> palette entries of the text and, behind a stroke, of its ground; and whether it is bold."""


def _looks(palette: Palette) -> dict[str, Look]:
    looks = {}
    for name, spec in STYLES.items():
        colours, _, bold = spec.partition(" ")
        text, _, ground = colours.partition("/")
        looks[name] = Look(palette.get(text) or None, palette.get(ground) or None, bold=bool(bold))
    return looks


QUIET = ("dim", "rule", "heading", "level.grey", "gap.unknown", "lane.idle")
"""Styles drawn faint where no colour of their own can be relied on."""


def _terminal_looks(palette: Palette) -> dict[str, Look]:
    """The looks of a theme that leaves the ground, and what its palette leaves empty, to the terminal."""
    looks = _looks(palette)
    for name in QUIET:
        looks[name] = replace(looks[name], faint=True, bold=False)
    looks["alarm.title"] = replace(looks["alarm.title"], reverse=looks["alarm.title"].bg is None)
    looks["alarm.row"] = Look(palette["red"] or None, bold=True)
    looks["bar"] = looks["select"] = Look(reverse=True)
    return looks


def _theme(name: str, row: ThemeRow) -> Theme:
    palette = row.palette
    if row.terminal:
        return Theme(name, row.dark, None, None, MappingProxyType(_terminal_looks(palette)), row.colourless)
    return Theme(name, row.dark, palette["background"], palette["text"], MappingProxyType(_looks(palette)))


THEMES: Mapping[str, Theme] = MappingProxyType({name: _theme(name, row) for name, row in PALETTES.items()})
"""All themes by name; ``auto`` in the settings picks one of them, see ``gputop.paint.glyphs``."""


AREAS = ("gap.", "bar.", "lane.")
"""Styles of block characters: reversed, a solid area would turn into a hole."""


@lru_cache(maxsize=1024)
def _resolve(theme: str, style: str) -> Look:
    looks = THEMES[theme].looks
    top, *under = style.split("|")
    look = looks[top]
    for name in under:
        look = _laid(look, looks[name], area=top.startswith(AREAS))
    return look


def _laid(look: Look, below: Look, *, area: bool) -> Look:
    """A look on another one. On reversed ground text leaves its colour, which would become a block of that colour."""
    if below.reverse:
        return look if area else Look(bold=look.bold or below.bold, reverse=True, underline=look.underline)
    return replace(
        look,
        fg=look.fg or below.fg,
        bg=look.bg or below.bg,
        bold=look.bold or below.bold,
        underline=look.underline or below.underline,
    )
