"""The themes: style names to colours.

A style name is semantic (``gap.alarm``, ``level.yellow``, ``dim``); ``"a|b"`` lays b under a: what a leaves open, b
decides. A theme is a palette; the table of styles is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

Palette = Mapping[str, str]

_THEMES = ("dark", "light", "high-contrast", "colour-blind", "ansi")
_COLOURS: Mapping[str, tuple[str, str, str, str, str]] = {
    "background": ("#0d1117", "#ffffff", "#000000", "#0d1117", ""),
    "text": ("#c9d1d9", "#24292f", "#f2f2f2", "#c9d1d9", ""),
    "bright": ("#f0f6fc", "#000000", "#ffffff", "#f0f6fc", ""),
    "dim": ("#8b949e", "#59636e", "#d0d0d0", "#8b949e", ""),
    "rule": ("#30363d", "#c8d1da", "#8a8a8a", "#30363d", ""),
    "green": ("#3fb970", "#116243", "#3dfc8b", "#4ea5ff", "green"),
    "blue": ("#58a6ff", "#0550ae", "#8cc8ff", "#d5d9ff", "bright_blue"),
    "amber": ("#e3b341", "#744200", "#ffe14d", "#f5e04a", "yellow"),
    "red": ("#ff6459", "#c5170a", "#ffaaa2", "#ee7733", "bright_red"),
    "teal": ("#39c5bb", "#0b6a66", "#52f2e4", "#a5c8e4", "cyan"),
    "alarm": ("#9a1b1b", "#b3151f", "#8f0000", "#a33b00", "red"),
    "on_alarm": ("#ffffff", "#ffffff", "#ffffff", "#ffffff", "bright_white"),
    "alarm_row": ("#571313", "#ffdcda", "#4d0000", "#4a1f05", ""),
    "sm": ("#2e8b43", "#4aa566", "#2ee65c", "#3b82cc", "green"),
    "gap": ("#6b4c0c", "#eac54f", "#a08000", "#a89a1a", "yellow"),
    "gap_alarm": ("#b02b2b", "#f2635a", "#b00000", "#8f3400", "red"),
    "gap_lane": ("#9c6c14", "#c99400", "#c89a00", "#8f8418", "yellow"),
    "unknown": ("#6e7681", "#818b95", "#9a9a9a", "#6e7681", ""),
    "track": ("#2d333b", "#dde3ea", "#3c3c3c", "#2d333b", "bright_black"),
    "bar": ("#161b22", "#eaeef2", "#1c1c1c", "#161b22", ""),
    "select": ("#1f2c3d", "#cfe3fb", "#002d5c", "#1f2c3d", ""),
}
"""Colour of each theme; an empty text leaves it to the terminal."""


class ThemeRow(Struct, frozen=True):
    """A theme's palette, and for which ground it is made.

    ``terminal`` leaves the ground, and what the palette leaves empty, to the terminal; ``colourless`` does without
    colours.
    """

    palette: Palette
    dark: bool = True
    terminal: bool = False
    colourless: bool = False


_PALETTES = {
    theme: {name: row[i] for name, row in _COLOURS.items()} for i, theme in enumerate(_THEMES)
}
PALETTES: Mapping[str, ThemeRow] = {
    "dark": ThemeRow(_PALETTES["dark"]),
    "light": ThemeRow(_PALETTES["light"], dark=False),
    "high-contrast": ThemeRow(_PALETTES["high-contrast"]),
    "colour-blind": ThemeRow(_PALETTES["colour-blind"]),
    "ansi": ThemeRow(_PALETTES["ansi"], terminal=True),
    "mono": ThemeRow({}, terminal=True, colourless=True),
}  # fmt: skip
THEME_NAMES = ("auto", *PALETTES)
"""What the setting may be; ``auto`` looks at the terminal, see ``terminal_kind.choose``."""


def theme_words() -> str:
    """The names as a list in words, for help."""
    return f"{', '.join(THEME_NAMES[:-1])} or {THEME_NAMES[-1]}"


class Look(Struct, frozen=True):
    """The look of a span.

    Colours are ``#rrggbb`` or, in an ANSI theme, names of the sixteen; None is the default.
    """

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
        """Return the look of names joined with ``|``.

        Raises KeyError for a name that does not exist.
        """
        return _resolve(self.name, style)


STYLES: Mapping[str, Look] = {
    "text": Look("text"),
    "value": Look("bright"),
    "strong": Look("bright", bold=True),
    "dim": Look("dim"),
    "rule": Look("rule"),
    "heading": Look("dim", bold=True),
    "title": Look("bright", bold=True),
    "title.key": Look("dim", underline=True),
    "key": Look("blue", bold=True),
    "evidence": Look("bright"),
    "remedy": Look("teal"),
    "brand": Look("bright", bold=True),
    "level.green": Look("green", bold=True),
    "level.info": Look("blue", bold=True),
    "level.yellow": Look("amber", bold=True),
    "level.red": Look("red", bold=True),
    "level.grey": Look("dim", bold=True),
    "value.sm": Look("green", bold=True),
    "value.gap": Look("amber", bold=True),
    "value.alarm": Look("red", bold=True),
    "alarm.title": Look("on_alarm", "alarm", bold=True),
    "alarm.row": Look(bg="alarm_row"),
    "gap.sm": Look("sm"),
    "gap.gap": Look("gap"),
    "gap.alarm": Look("gap_alarm"),
    "gap.sm_on_gap": Look("sm", "gap"),
    "gap.sm_on_alarm": Look("sm", "gap_alarm"),
    "gap.unknown": Look("unknown"),
    "bar.used": Look("blue", "track"),
    "bar.used.track": Look("dim", "track"),
    "bar.wait": Look("amber", "track"),
    "bar.wait.track": Look("dim", "track"),
    "bar.alarm": Look("red", "track"),
    "bar.alarm.track": Look("dim", "track"),
    "lane.idle": Look("unknown"),
    "lane.run": Look("blue"),
    "lane.wait": Look("gap_lane"),
    "lane.disk": Look("red"),
    "lane.main": Look("green"),
    "lane.bus": Look("teal"),
    "area.work": Look("sm"),
    "area.board": Look("blue"),
    "area.bus": Look("teal"),
    "area.mem": Look("blue"),
    "area.heat": Look("unknown"),
    "bar": Look("text", "bar"),
    "select": Look(bg="select"),
    "record": Look("red", bold=True),
}
"""Looks with names of the palette in place of colours."""


def _looks(palette: Palette) -> dict[str, Look]:
    return {
        name: replace(
            look, fg=palette.get(look.fg or "") or None, bg=palette.get(look.bg or "") or None
        )
        for name, look in STYLES.items()
    }


QUIET = ("dim", "title.key", "rule", "heading", "level.grey", "gap.unknown", "lane.idle")
"""Styles drawn faint where no colour of their own can be relied on."""


def _terminal_looks(palette: Palette) -> dict[str, Look]:
    """Return a theme's looks without its background.

    The terminal's own colours show where the palette is empty.
    """
    looks = _looks(palette)
    for name in QUIET:
        looks[name] = replace(looks[name], faint=True, bold=False)
    looks["alarm.title"] = replace(looks["alarm.title"], reverse=looks["alarm.title"].bg is None)
    looks["alarm.row"] = Look(palette.get("red") or None, bold=True)
    looks["bar"] = looks["select"] = Look(reverse=True)
    return looks


def _theme(name: str, row: ThemeRow) -> Theme:
    palette = row.palette
    if row.terminal:
        return Theme(name, row.dark, None, None, _terminal_looks(palette), row.colourless)
    return Theme(name, row.dark, palette["background"], palette["text"], _looks(palette))


THEMES: Mapping[str, Theme] = {name: _theme(name, row) for name, row in PALETTES.items()}
"""All themes by name; ``auto`` in the settings picks one of them, see ``terminal_kind.choose``."""


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
    """Lay a look on another one.

    On reversed ground text leaves its colour, which would become a block of that colour.
    """
    if below.reverse:
        return (
            look
            if area
            else Look(bold=look.bold or below.bold, reverse=True, underline=look.underline)
        )
    return replace(
        look,
        fg=look.fg or below.fg,
        bg=look.bg or below.bg,
        bold=look.bold or below.bold,
        underline=look.underline or below.underline,
    )
