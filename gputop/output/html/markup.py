"""HTML that cannot be broken by what is in it: every text is escaped unless it is markup already."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from gputop.model.text import clean_text


class Markup(str):
    """Text that is HTML. Made only by ``element`` and ``join``, so that no text from outside becomes HTML."""

    __slots__ = ()


def text(value: object) -> Markup:
    """A value as HTML: markup as it is, all else escaped, control and direction characters replaced."""
    return value if isinstance(value, Markup) else Markup(escape(clean_text(str(value)), quote=True))


def join(parts: Iterable[object], between: str = "") -> Markup:
    """Values one after the other."""
    return Markup(str(text(between)).join(map(text, parts)))


def prose(words: str) -> Markup:
    """gputop's own words as HTML; `backticks` mark code."""
    parts = words.split("`")
    if len(parts) % 2 == 0:
        return text(words)
    return join(element("code", part) if place % 2 else part for place, part in enumerate(parts))


def element(name: str, *inside: object, **attributes: object) -> Markup:
    """``<name …>inside</name>``. ``class_`` is ``class``, ``_`` becomes ``-``, None is left out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{join(inside)}</{name}>")
