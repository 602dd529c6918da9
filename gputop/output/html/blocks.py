"""The parts that pages are made of: verdicts, stacked bars with their legend, figures, tables. All text is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gputop.output.html.markup import Markup, element, join, prose

_TOO_NARROW = 0.05
_NO_CLASS = re.compile(r"[^a-z_-]")
Part = tuple[str, str, float]
"""(colour, words, share in percent): the colour is a share's or a cause's name."""


def _colour(name: str) -> str:
    return f"background:var(--c-{_NO_CLASS.sub('', name)})"


def stacked_bar(parts: Iterable[Part], *, thin: bool = False) -> Markup:
    """Shares side by side; 100 fill the width. Each has its words as a tooltip and for screen readers."""
    spans = [
        element("span", style=f"width:{share:.3f}%;{_colour(colour)}", title=f"{words} {share:.1f} %")
        for colour, words, share in parts
        if share >= _TOO_NARROW
    ]
    said = ", ".join(f"{words} {share:.1f} %" for _, words, share in parts if share >= _TOO_NARROW)
    return element("div", *spans, class_="bar thin" if thin else "bar", role="img", aria_label=said)


def legend(parts: Iterable[Part]) -> Markup:
    """What each colour means, with its share."""
    rows = [
        element("li", element("i", style=_colour(colour)), f"{words} {share:.1f} %")
        for colour, words, share in parts
        if share >= _TOO_NARROW
    ]
    return element("ul", *rows, class_="legend")


def strip(spans: Iterable[tuple[float, float, str]]) -> Markup:
    """Moments on a line of time: (begin and length in percent of it, words)."""
    marks = [
        element("span", style=f"left:{begin:.3f}%;width:{width:.3f}%", title=words) for begin, width, words in spans
    ]
    return element("div", *marks, class_="strip", role="img", aria_label=f"{len(marks)} moments on a line of time")


def verdict(level: str, headline: str, said: str, evidence: Sequence[str], remedy: str, best: str) -> Markup:
    """A verdict with its evidence and its remedy; ``said`` is small print in the corner."""
    return element(
        "section",
        element("span", said, class_="id"),
        element("div", headline, class_="head"),
        *(element("p", line) for line in evidence),
        element("p", "→ ", prose(remedy), class_="do") if remedy else "",
        element("p", best, class_="best") if best else "",
        class_=f"verdict {_NO_CLASS.sub('', level)}",
    )


def facts(rows: Iterable[tuple[str, str, str]]) -> Markup:
    """Figures with their names and, in small print, their sources."""
    return element(
        "div",
        *(
            element("div", element("small", label), element("b", value), element("small", note))
            for label, value, note in rows
        ),
        class_="facts",
    )


def table(head: Sequence[str], rows: Iterable[Sequence[object]], kinds: str) -> Markup:
    """A table. ``kinds`` has a letter a column: ``t`` text, ``n`` number, ``w`` wide, for a bar."""
    classes = {"t": "name", "n": "n", "w": "wide"}
    first = element("tr", *(element("th", name, class_=classes[kind]) for name, kind in zip(head, kinds, strict=True)))
    body = [
        element("tr", *(element("td", cell, class_=classes[kind]) for cell, kind in zip(row, kinds, strict=True)))
        for row in rows
    ]
    return element("div", element("table", element("thead", first), element("tbody", *body)), class_="scroll")


def notes(lines: Sequence[str]) -> Markup:
    """Remarks as a list; nothing for none."""
    return element("ul", *(element("li", line) for line in lines), class_="notes") if lines else join(())
