"""Frame and colours of the small boxes over the screen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from textual.app import App
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES
from textual.theme import Theme as BoxTheme
from textual.widget import Widget

from gputop.paint.theme import PALETTES, Theme
from gputop.tui.screens.scrolling import is_ascii

LEAST_FRAMED = 16
"""A lower screen has no room for frames."""


def framed(screen: Screen[Any], box: Widget) -> None:
    """Frame a box, in ASCII if needed, unless the screen is low."""
    coloured(screen.app)
    look = getattr(screen.app, "look", None)
    box.set_class(look is not None and look.colourless, "plain")
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
    row, colours = PALETTES[look.name], PALETTES[look.name].palette
    if row.terminal:
        # Named otherwise in the lowest Textual that is allowed.
        builtin = BUILTIN_THEMES.get("ansi-dark", BUILTIN_THEMES["textual-dark"])
        if not row.colourless:
            return replace(builtin, name=name)
        plain = dict.fromkeys(("scrollbar", "scrollbar-hover", "scrollbar-active"), "ansi_default")
        return replace(
            builtin, name=name, primary="ansi_default", variables={**builtin.variables, **plain}
        )
    cursor = {f"block-cursor-{kind}background": colours["select"] for kind in ("", "blurred-")}
    cursor |= {f"block-cursor-{kind}foreground": colours["bright"] for kind in ("", "blurred-")}
    cursor |= {
        "input-cursor-background": colours["text"],
        "input-cursor-foreground": colours["background"],
    }
    return BoxTheme(
        name=name,
        dark=row.dark,
        primary=colours["blue"],
        secondary=colours["teal"],
        warning=colours["amber"],
        error=colours["red"],
        success=colours["green"],
        accent=colours["blue"],
        foreground=colours["text"],
        background=colours["background"],
        surface=colours["bar"],
        panel=colours["bar"],
        variables=cursor,
    )
