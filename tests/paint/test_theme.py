"""Themes: text can be read on every ground, levels and chart areas are told apart, the right one is picked."""

from __future__ import annotations

from itertools import combinations

import pytest

from gputop.config import declared
from gputop.output.ansi import sgr
from gputop.paint.detail_page import DetailsView
from gputop.paint.gpu_page import gpu_details
from gputop.paint.main_screen import main_screen
from gputop.paint.process_page import process_details
from gputop.paint.process_table import key_of
from gputop.paint.terminal_kind import choose
from gputop.paint.theme import THEME_NAMES, THEMES, Look, Theme
from gputop.paint.view import View
from tests.support.colour import contrast, difference, linear, without_green_cones
from tests.support.frames import MOMENT, demo_frame
from tests.support.scenes import SOME_THREADS

COLOURED = [theme for theme in THEMES.values() if theme.background]
LEVELS = ("level.green", "level.info", "level.yellow", "level.red", "level.grey")
AREAS = ("gap.sm", "gap.gap", "gap.alarm", "gap.unknown")
GROUNDS = ("", "|bar", "|select", "|alarm.row")
NOT_TEXT = ("rule", "gap.", "bar.", "lane.", "area.")
"""Areas, bars and rules; the track of a bar is no text either."""
TEXTS = [
    name
    for name in THEMES["dark"].looks
    if not name.startswith(NOT_TEXT) and name not in ("bar", "select", "alarm.row")
]
WIDE = {"colour-blind": 20.0}
"""What this theme is made for; the others keep at least ``NARROW``: their glyphs and words say it, too."""
NARROW = 7.0


def _colours(theme: Theme, style: str) -> tuple[str, str]:
    look = theme.look(style)
    fg, bg = look.fg or theme.foreground, look.bg or theme.background
    assert fg and bg
    return fg, bg


@pytest.mark.parametrize("theme", COLOURED, ids=lambda theme: theme.name)
def test_every_text_can_be_read_on_every_ground(theme: Theme) -> None:
    least = 7.0 if theme.name == "high-contrast" else 4.5
    styles = [
        text + ground for text in TEXTS for ground in GROUNDS if text != "alarm.title" or not ground
    ]
    poor = {
        style: found
        for style in styles
        if (found := round(contrast(*_colours(theme, style)), 2)) < least
    }
    assert not poor


@pytest.mark.parametrize("theme", COLOURED, ids=lambda theme: theme.name)
def test_levels_and_chart_areas_are_told_apart_with_and_without_green_cones(theme: Theme) -> None:
    least = WIDE.get(theme.name, NARROW)
    for group in (LEVELS, AREAS):
        for one, other in combinations(group, 2):
            a, b = (linear(_colours(theme, style)[0]) for style in (one, other))
            assert difference(a, b) >= 25, (one, other)
            assert difference(without_green_cones(a), without_green_cones(b)) >= least, (one, other)


@pytest.mark.parametrize("theme", COLOURED, ids=lambda theme: theme.name)
def test_bars_areas_and_grounds_stand_out(theme: Theme) -> None:
    for style in AREAS:
        assert (
            difference(linear(_colours(theme, style)[0]), linear(theme.background or "")) >= 25
        ), style
    for style in (
        "bar.used",
        "bar.alarm",
        "area.work",
        "area.board",
        "area.bus",
        "area.mem",
        "area.heat",
    ):
        # WCAG 2.2, 1.4.11: parts of a graphic that carry meaning.
        assert contrast(*_colours(theme, style)) >= 3, style
    for style in ("bar", "select", "alarm.row"):
        assert difference(linear(_colours(theme, style)[1]), linear(theme.background or "")) >= 4, (
            style
        )


@pytest.mark.parametrize("depth", ["truecolor", "256"])
@pytest.mark.parametrize("theme", COLOURED, ids=lambda theme: theme.name)
def test_levels_keep_colours_of_their_own_in_fewer_colours(theme: Theme, depth: str) -> None:
    for group in (LEVELS, AREAS):
        assert len({sgr(theme.look(style), theme, depth) for style in group}) == len(group)  # type: ignore[arg-type]


def test_sixteen_colours_and_none_still_tell_levels_apart() -> None:
    ansi, mono = THEMES["ansi"], THEMES["mono"]
    assert len({sgr(ansi.look(style), ansi, "16") for style in LEVELS}) == len(LEVELS)
    assert len({(ansi.look(style).fg, ansi.look(style).bg) for style in AREAS}) == len(AREAS)
    codes = {sgr(mono.look(style), mono, "none") for style in mono.looks}
    assert max(len(part) for code in codes for part in code[2:-1].split(";")) == 1, (
        "a colour has two digits"
    )
    assert mono.look("dim").faint
    assert mono.look("alarm.title").reverse
    assert mono.look("dim|select") == Look(reverse=True)


@pytest.mark.parametrize("name", ["ansi", "mono"])
def test_a_reversed_row_keeps_its_charts_and_drops_the_colours_of_its_text(name: str) -> None:
    theme = THEMES[name]
    assert theme.look("gap.sm|select") == theme.look("gap.sm")
    assert theme.look("level.red|bar") == Look(bold=True, reverse=True)


def test_the_ansi_theme_keeps_text_in_the_terminals_own_foreground() -> None:
    # Bright black is the background's colour in some palettes, white in others.
    for style in TEXTS:
        assert THEMES["ansi"].look(style).fg not in ("bright_black", "black", "white"), style


def test_all_themes_know_the_same_styles_and_the_settings_name_them_all() -> None:
    described = declared()["theme"].description
    assert ("auto", *THEMES) == THEME_NAMES
    assert [name for name in THEME_NAMES if name not in described] == []
    assert {frozenset(theme.looks) for theme in THEMES.values()} == {
        frozenset(THEMES["dark"].looks)
    }


@pytest.mark.parametrize(
    ("env", "theme"),
    [
        ({"TERM": "xterm-256color"}, "dark"), ({"TERM": "xterm-256color", "COLORFGBG": "15;0"}, "dark"),
        ({"TERM": "xterm-256color", "COLORFGBG": "0;15"}, "light"),
        ({"TERM": "xterm-256color", "COLORFGBG": "0;default;7"}, "light"),
        ({"TERM": "xterm-256color", "COLORFGBG": "15;8"}, "dark"),
        ({"TERM": "xterm-256color", "COLORFGBG": "nonsense"}, "dark"),
        ({"TERM": "xterm", "COLORTERM": "truecolor", "COLORFGBG": "0;15"}, "light"), ({"TERM": "linux"}, "ansi"),
        ({"TERM": "screen"}, "ansi"), ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "mono"),
    ],
    ids=lambda value: " ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else value,
)  # fmt: skip
def test_the_theme_is_picked_from_the_terminal(env: dict[str, str], theme: str) -> None:
    assert choose(env, "utf-8", theme="auto", ascii_only=False, no_color=False).theme == theme


def test_the_console_of_linux_and_what_is_not_unicode_are_drawn_in_ascii() -> None:
    def glyphs(term: str, encoding: str) -> str:
        return choose(
            {"TERM": term}, encoding, theme="auto", ascii_only=False, no_color=False
        ).glyphs.name

    assert glyphs("linux", "utf-8") == glyphs("xterm", "latin-1") == "ascii"
    assert glyphs("xterm", "utf-8") == "colour"


def test_a_theme_that_was_asked_for_is_taken_unless_there_is_no_colour() -> None:
    env = {"TERM": "screen"}
    assert (
        choose(env, "utf-8", theme="colour-blind", ascii_only=False, no_color=False).theme
        == "colour-blind"
    )
    assert (
        choose(env, "utf-8", theme="colour-blind", ascii_only=False, no_color=True).theme == "mono"
    )
    assert (
        choose(env, "utf-8", theme="mono", ascii_only=False, no_color=False).glyphs.name == "mono"
    )


def test_every_style_that_is_painted_exists_in_every_theme() -> None:
    view, frame = View(), demo_frame()
    painted = [
        main_screen(demo_frame(scenario), view, *size).rows
        for scenario in (None, "one_gpu", "lost_gpu")
        for size in ((80, 24), (160, 48))
    ]
    state = DetailsView(view, 0, MOMENT - 30.0)
    for scenario in (None, "lost_gpu", "no_sm_counter", "memory_leak"):
        node = demo_frame(scenario)
        painted.append(gpu_details(node, state, node.snapshot.gpus[0].static.uuid, 160, 160).rows)
    painted += [
        process_details(frame, state, key_of(p), p, SOME_THREADS, 120, 150).rows
        for p in frame.snapshot.processes
    ]
    styles = {style for rows in painted for row in rows for _, style in row}
    assert len(styles) > 30
    for theme in THEMES.values():
        for style in styles:
            theme.look(style)
