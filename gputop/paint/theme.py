"""From style names to colours. The only place that knows a colour.

A style name is semantic (``gap.alarm``, ``level.yellow``, ``dim``); ``"a|b"`` lays b under a: what a leaves open, b
decides. A theme is a palette; the table of styles is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple


class Look(NamedTuple):
    """How a span looks. Colours are ``#rrggbb`` or, in an ANSI theme, names of the sixteen; None is the default."""

    fg: str | None = None
    bg: str | None = None
    bold: bool = False
    reverse: bool = False
    underline: bool = False


@dataclass(frozen=True, slots=True)
class Theme:
    """A named palette and the looks made of it."""

    name: str
    dark: bool
    background: str | None
    foreground: str | None
    looks: Mapping[str, Look] = field(repr=False)
    colourless: bool = False

    def look(self, style: str) -> Look:
        """The look of a style name or of names joined with ``|``. Raises KeyError for a name that does not exist."""
        return _resolve(self.name, style)


def _looks(p: Mapping[str, str]) -> dict[str, Look]:
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
        "bar.cpu": Look(p["amber"], p["track"]),
        "bar.cpu.track": Look(p["dim"], p["track"]),
        "bar.run": Look(p["amber"], p["track"]),
        "bar.run.track": Look(p["dim"], p["track"]),
        "lane.idle": Look(p["unknown"]),
        "lane.run": Look(p["amber"]),
        "lane.wait": Look(p["gap_lane"]),
        "lane.disk": Look(p["red"]),
        "lane.main": Look(p["green"]),
        "lane.bus": Look(p["teal"]),
        "bar": Look(p["text"], p["bar"]),
        "select": Look(None, p["select"]),
        "record": Look(p["red"], bold=True),
    }


_DARK = {
    "text": "#c9d1d9", "bright": "#f0f6fc", "dim": "#7d8590", "rule": "#30363d", "green": "#3fb950",
    "greygreen": "#7aa586", "blue": "#58a6ff", "amber": "#d29922", "red": "#f85149", "teal": "#39c5bb",
    "alarm": "#9a1b1b", "on_alarm": "#ffffff", "alarm_row": "#571313", "sm": "#3fb950", "gap": "#70500f",
    "gap_alarm": "#8b2121", "gap_lane": "#9c6c14", "unknown": "#6e7681", "track": "#2d333b", "bar": "#161b22",
    "select": "#1f2c3d",
}  # fmt: skip
_LIGHT = {
    "text": "#24292f", "bright": "#000000", "dim": "#59636e", "rule": "#c8d1da", "green": "#116329",
    "greygreen": "#3f6b4b", "blue": "#0550ae", "amber": "#7d4e00", "red": "#b3151f", "teal": "#0b6a66",
    "alarm": "#b3151f", "on_alarm": "#ffffff", "alarm_row": "#ffd7d5", "sm": "#2da44e", "gap": "#eac54f",
    "gap_alarm": "#f0605a", "gap_lane": "#bf8700", "unknown": "#8c959f", "track": "#dde3ea", "bar": "#eaeef2",
    "select": "#cfe3fb",
}  # fmt: skip
_ANSI = {
    "text": "", "bright": "", "dim": "bright_black", "rule": "bright_black", "green": "green",
    "greygreen": "cyan", "blue": "bright_blue", "amber": "yellow", "red": "bright_red", "teal": "cyan",
    "alarm": "red", "on_alarm": "bright_white", "alarm_row": "", "sm": "green", "gap": "yellow", "gap_alarm": "red",
    "gap_lane": "yellow", "unknown": "bright_black", "track": "bright_black", "bar": "", "select": "",
}  # fmt: skip
_NONE = dict.fromkeys(_DARK, "")


def _open(looks: dict[str, Look]) -> dict[str, Look]:
    """Empty palette entries become the terminal's own colours."""
    return {name: look._replace(fg=look.fg or None, bg=look.bg or None) for name, look in looks.items()}


def _ansi_looks() -> dict[str, Look]:
    looks = _open(_looks(_ANSI))
    looks["bar"] = Look(reverse=True)
    looks["select"] = Look(reverse=True)
    looks["alarm.row"] = Look("bright_red", bold=True)
    return looks


def _mono_looks() -> dict[str, Look]:
    """No colour at all: bold, reverse and the glyphs carry the meaning."""
    looks = _open(_looks(_NONE))
    looks["alarm.title"] = Look(bold=True, reverse=True)
    looks["alarm.row"] = Look(bold=True)
    looks["select"] = Look(reverse=True)
    looks["bar"] = Look(reverse=True)
    return looks


THEMES: dict[str, Theme] = {
    "dark": Theme("dark", True, "#0d1117", "#c9d1d9", _looks(_DARK)),
    "light": Theme("light", False, "#ffffff", "#24292f", _looks(_LIGHT)),
    "ansi": Theme("ansi", True, None, None, _ansi_looks()),
    "mono": Theme("mono", True, None, None, _mono_looks(), colourless=True),
}


@lru_cache(maxsize=1024)
def _resolve(theme: str, style: str) -> Look:
    looks = THEMES[theme].looks
    top, *under = style.split("|")
    look = looks[top]
    for name in under:
        below = looks[name]
        look = Look(
            look.fg or below.fg,
            look.bg or below.bg,
            look.bold or below.bold,
            look.reverse or below.reverse,
            look.underline or below.underline,
        )
    return look
