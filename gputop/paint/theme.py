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

from gputop.paint.palettes import PALETTES, Palette, ThemeRow


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


def _looks(p: Palette) -> dict[str, Look]:
    """The table of styles, by palette entry."""
    return {
        "text": Look(p["text"]),
        "value": Look(p["bright"]),
        "strong": Look(p["bright"], bold=True),
        "dim": Look(p["dim"]),
        "rule": Look(p["rule"]),
        "heading": Look(p["dim"], bold=True),
        "title": Look(p["bright"], bold=True),
        "key": Look(p["blue"], bold=True),
        "evidence": Look(p["bright"]),
        "remedy": Look(p["teal"]),
        "brand": Look(p["bright"], bold=True),
        "level.green": Look(p["green"], bold=True),
        "level.grey-green": Look(p["greygreen"], bold=True),
        "level.info": Look(p["blue"], bold=True),
        "level.yellow": Look(p["amber"], bold=True),
        "level.red": Look(p["red"], bold=True),
        "level.grey": Look(p["dim"], bold=True),
        "value.sm": Look(p["green"], bold=True),
        "value.gap": Look(p["amber"], bold=True),
        "value.alarm": Look(p["red"], bold=True),
        "alarm.title": Look(p["on_alarm"], p["alarm"], bold=True),
        "alarm.row": Look(None, p["alarm_row"]),
        "gap.sm": Look(p["sm"]),
        "gap.gap": Look(p["gap"]),
        "gap.alarm": Look(p["gap_alarm"]),
        "gap.sm_on_gap": Look(p["sm"], p["gap"]),
        "gap.sm_on_alarm": Look(p["sm"], p["gap_alarm"]),
        "gap.unknown": Look(p["unknown"]),
        "bar.mem": Look(p["blue"], p["track"]),
        "bar.mem.track": Look(p["dim"], p["track"]),
        "bar.cpu": Look(p["fill"], p["track"]),
        "bar.cpu.track": Look(p["dim"], p["track"]),
        "bar.run": Look(p["fill"], p["track"]),
        "bar.run.track": Look(p["dim"], p["track"]),
        "bar.alarm": Look(p["red"], p["track"]),
        "bar.alarm.track": Look(p["dim"], p["track"]),
        "lane.idle": Look(p["unknown"]),
        "lane.run": Look(p["fill"]),
        "lane.wait": Look(p["gap_lane"]),
        "lane.disk": Look(p["red"]),
        "lane.main": Look(p["green"]),
        "lane.bus": Look(p["teal"]),
        "area.work": Look(p["sm"]),
        "area.board": Look(p["fill"]),
        "area.bus": Look(p["teal"]),
        "area.mem": Look(p["blue"]),
        "area.heat": Look(p["unknown"]),
        "bar": Look(p["text"], p["bar"]),
        "select": Look(None, p["select"]),
        "record": Look(p["red"], bold=True),
    }


QUIET = ("dim", "rule", "heading", "level.grey", "gap.unknown", "lane.idle")
"""Styles drawn faint where no colour of their own can be relied on."""


def _terminal_looks(palette: Palette) -> dict[str, Look]:
    """The looks of a theme that leaves the ground, and what its palette leaves empty, to the terminal."""
    looks = {name: replace(look, fg=look.fg or None, bg=look.bg or None) for name, look in _looks(palette).items()}
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
"""All themes by name; ``auto`` in the settings picks one of them, see ``gputop.paint.terminal``."""


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
