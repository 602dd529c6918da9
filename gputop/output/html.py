"""Building blocks of HTML pages; all text is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from gputop.model.clean_text import clean_text


class Markup(str):
    """Text that is HTML already.

    Only ``element`` and ``join`` make it, so that no text from outside becomes HTML.
    """

    __slots__ = ()


def text(value: object) -> Markup:
    """Escape a value for HTML, unless it is markup already."""
    return (
        value if isinstance(value, Markup) else Markup(escape(clean_text(str(value)), quote=True))
    )


def join(parts: Iterable[object], separator: str = "") -> Markup:
    """Join values to markup."""
    return Markup(str(text(separator)).join(map(text, parts)))


def prose(words: str) -> Markup:
    """Gputop's own words as HTML; `backticks` mark code."""
    parts = words.split("`")
    if len(parts) % 2 == 0:
        return text(words)
    return join(element("code", part) if place % 2 else part for place, part in enumerate(parts))


def element(name: str, *inside: object, **attributes: object) -> Markup:
    """An element: ``<name …>inside</name>``.

    ``class_`` is ``class``, ``_`` becomes ``-``, None is left out.
    """
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{attribute_text}>{join(inside)}</{name}>")


LEAST_SHARE = 0.05
"""Percent below which a share is not shown."""
_NO_CLASS = re.compile(r"[^a-z_-]")
Part = tuple[str, str, float]
"""(colour, words, share in percent): the colour is a share's or a cause's name."""


def _colour(name: str) -> str:
    return f"background:var(--c-{_NO_CLASS.sub('', name)})"


def stacked_bar(parts: Iterable[Part], *, thin: bool = False) -> Markup:
    """Shares side by side; 100 % fill the width, and no share is drawn wider.

    Each has its words as a tooltip and for screen readers.
    """
    spans = [
        element(
            "span",
            style=f"width:{min(100.0, share):.3f}%;{_colour(colour)}",
            title=f"{words} {share:.1f} %",
        )
        for colour, words, share in parts
        if share >= LEAST_SHARE
    ]
    label = ", ".join(f"{words} {share:.1f} %" for _, words, share in parts if share >= LEAST_SHARE)
    return element(
        "div", *spans, class_="bar thin" if thin else "bar", role="img", aria_label=label
    )


def legend(parts: Iterable[Part]) -> Markup:
    """Colours with their meanings and shares."""
    rows = [
        element("li", element("i", style=_colour(colour)), f"{words} {share:.1f} %")
        for colour, words, share in parts
        if share >= LEAST_SHARE
    ]
    return element("ul", *rows, class_="legend")


def strip(spans: Iterable[tuple[float, float, str]]) -> Markup:
    """Moments on a line of time.

    Each is (begin and length in percent of the line, words).
    """
    marks = [
        element("span", style=f"left:{begin:.3f}%;width:{width:.3f}%", title=words)
        for begin, width, words in spans
    ]
    label = f"{len(marks)} moments on a line of time"
    return element("div", *marks, class_="strip", role="img", aria_label=label)


def verdict(
    level: str, headline: str, aside: str, texts: Sequence[str], remedy: str, gain: str
) -> Markup:
    """A verdict with evidence and remedy; ``aside`` is small print."""
    return element(
        "section",
        element("span", aside, class_="id"),
        element("div", headline, class_="head"),
        *(element("p", line) for line in texts),
        element("p", "→ ", prose(remedy), class_="do") if remedy else "",
        element("p", gain, class_="best") if gain else "",
        class_=f"verdict {_NO_CLASS.sub('', level)}",
    )


def tiles(rows: Iterable[tuple[str, str, str, str]]) -> Markup:
    """Figures as cards: (level or empty, figure, name, remark)."""
    cards = (
        element(
            "div",
            element("b", value),
            element("small", name),
            element("small", note, class_="dim"),
            class_=f"tile {_NO_CLASS.sub('', level)}".strip(),
        )
        for level, value, name, note in rows
    )
    return element("div", *cards, class_="tiles")


def table(
    head: Sequence[str], rows: Iterable[Sequence[object]], kinds: str, *, stacks: bool = False
) -> Markup:
    """A table.

    ``kinds`` has a letter a column: ``t`` text, ``n`` number, ``w`` wide, for a bar, ``k`` a short name, which is not
    broken. One that ``stacks`` shows its cells below each other on a narrow screen, each with the name of its column.
    """
    classes = {"t": "name", "n": "n", "w": "wide", "k": "key"}
    first = element(
        "tr",
        *(
            element("th", name, class_=classes[kind])
            for name, kind in zip(head, kinds, strict=True)
        ),
    )
    body = [
        element(
            "tr",
            *(
                element("td", cell, class_=classes[kind], data_name=name if stacks else None)
                for cell, kind, name in zip(row, kinds, head, strict=True)
            ),
        )
        for row in rows
    ]
    inside = element(
        "table",
        element("thead", first),
        element("tbody", *body),
        class_="stacks" if stacks else None,
    )
    return element("div", inside, class_="scroll")


def notes(lines: Sequence[str]) -> Markup:
    """Remarks as a list; empty without any."""
    return (
        element("ul", *(element("li", line) for line in lines), class_="notes")
        if lines
        else join(())
    )
