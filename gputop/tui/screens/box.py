"""Frame and colours of the small boxes over the screen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from textual.app import App
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES
from textual.theme import Theme as BoxTheme
from textual.widget import Widget

from gputop.model.text_table import table_rows
from gputop.paint.theme import PALETTES, Theme
from gputop.tui.screens.scrolling import is_ascii

LEAST_FRAMED = 16
"""A lower screen has no room for frames."""


def framed(screen: Screen[Any], box: Widget) -> None:
    """Frame a box, in ASCII if needed, unless the screen is low."""
    coloured(screen.app)
    if screen.app.size.height < LEAST_FRAMED:
        box.add_class("low")
    elif is_ascii(screen.app):
        box.styles.border = ("ascii", "white")


def coloured(app: App[Any]) -> None:
    """Give Textual's own widgets the colours of the screen below."""
    look = getattr(app, "look", None)
    # Where NO_COLOR is set Textual makes greys of its own theme, and black of a terminal's colours.
    if look is None or app.no_color or app.theme == (name := f"gputop-{look.name}"):
        return
    if name not in app.available_themes:
        app.register_theme(_box_theme(look, name))
    app.theme = name


def _box_theme(look: Theme, name: str) -> BoxTheme:
    row = PALETTES[look.name]
    colours = row.palette
    if row.terminal:
        # Named otherwise in the lowest Textual that is allowed.
        builtin = BUILTIN_THEMES.get("ansi-dark", BUILTIN_THEMES["textual-dark"])
        if not row.colourless:
            return replace(builtin, name=name)
        plain = dict.fromkeys(("scrollbar", "scrollbar-hover", "scrollbar-active"), "ansi_default")
        return replace(builtin, name=name, primary="ansi_default", variables={**builtin.variables, **plain})
    return BoxTheme(
        name=name,
        dark=row.dark,
        **cast("dict[str, Any]", {ours: colours[theirs] for ours, theirs in COLOURS.items()}),
        variables={ours: colours[theirs] for ours, theirs in CURSORS.items()},
    )


COLOURS = dict(
    table_rows("""
    primary     blue
    secondary   teal
    warning     amber
    error       red
    success     green
    accent      blue
    foreground  text
    background  background
    surface     bar
    panel       bar
""")
)
"""Textual's name of a colour -> the palette's."""
CURSORS = dict(
    table_rows("""
    block-cursor-background          select
    block-cursor-foreground          bright
    block-cursor-blurred-background  select
    block-cursor-blurred-foreground  bright
    input-cursor-background          text
    input-cursor-foreground          background
""")
)
