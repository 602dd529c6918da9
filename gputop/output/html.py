"""Building blocks of HTML pages; all text is escaped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from html import escape
from itertools import groupby

from gputop.model.quantity import clean_text
from gputop.report.lanes import LaneColumn

# HTML that cannot be broken by what is in it: every text is escaped unless it is markup already.


class Markup(str):
    """Text that is HTML already.

    Only ``element`` and ``join`` make it, so that no text from outside becomes HTML.
    """

    __slots__ = ()


def text(value: object) -> Markup:
    """Escape a value for HTML, unless it is markup already."""
    return value if isinstance(value, Markup) else Markup(escape(clean_text(str(value)), quote=True))


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
    """Shares side by side; 100 % fill the width.

    Each has its words as a tooltip and for screen readers.
    """
    spans = [
        element("span", style=f"width:{share:.3f}%;{_colour(colour)}", title=f"{words} {share:.1f} %")
        for colour, words, share in parts
        if share >= LEAST_SHARE
    ]
    label = ", ".join(f"{words} {share:.1f} %" for _, words, share in parts if share >= LEAST_SHARE)
    return element("div", *spans, class_="bar thin" if thin else "bar", role="img", aria_label=label)


def legend(parts: Iterable[Part]) -> Markup:
    """Colours with their meanings and shares."""
    rows = [
        element("li", element("i", style=_colour(colour)), f"{words} {share:.1f} %")
        for colour, words, share in parts
        if share >= LEAST_SHARE
    ]
    return element("ul", *rows, class_="legend")


def verdict(level: str, headline: str, aside: str, texts: Sequence[str], remedy: str, gain: str) -> Markup:
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


def table(head: Sequence[str], rows: Iterable[Sequence[object]], kinds: str, *, stacks: bool = False) -> Markup:
    """A table.

    ``kinds`` has a letter a column: ``t`` text, ``n`` number, ``w`` wide, for a bar, ``k`` a short name, which is not
    broken. One that ``stacks`` shows its cells below each other on a narrow screen, each with the name of its column.
    """
    classes = {"t": "name", "n": "n", "w": "wide", "k": "key"}
    first = element("tr", *(element("th", name, class_=classes[kind]) for name, kind in zip(head, kinds, strict=True)))
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
    inside = element("table", element("thead", first), element("tbody", *body), class_="stacks" if stacks else None)
    return element("div", inside, class_="scroll")


def notes(lines: Sequence[str]) -> Markup:
    """Remarks as a list; empty without any."""
    return element("ul", *(element("li", line) for line in lines), class_="notes") if lines else join(())


# The frame of every page: its colours, light and dark, its fonts, and how it prints. No script, no request.

# Levels, shares and causes each have one colour, here only; text keeps 4.5:1 on its ground in both (WCAG 2.2, 1.4.3).
_STYLE = """
:root { color-scheme: light dark;
  --ground: #ffffff; --card: #f6f8fa; --text: #1f2328; --dim: #59636e; --rule: #d1d9e0; --track: #e6eaef;
  --green: #116243; --yellow: #744200; --red: #b3151f; --info: #0550ae; --grey: #59636e;
  --c-compute: #1f883d; --c-comm: #0969da; --c-copy: #8250df; --c-idle: #d29922;
  --c-data: #cf222e; --c-after_sync: #bc4c00; --c-allocator: #9a6700; --c-launching: #8250df;
  --c-module_load: #6e5494; --c-host_work: #a40e26;
  --c-work: #1f883d; --c-not_working: #a8201f; --c-waiting: #d29922; --c-information: #4a90d9;
  --c-launch_latency: #bf3989; --c-dependency: #0969da; --c-kernel_gap: #57606a; --c-unknown: #afb8c1; }
@media (prefers-color-scheme: dark) { :root {
  --ground: #0d1117; --card: #161b22; --text: #d8dee4; --dim: #9198a1; --rule: #30363d; --track: #262c34;
  --green: #3fb970; --yellow: #e3b341; --red: #ff7b72; --info: #58a6ff; --grey: #9198a1;
  --c-compute: #3fb950; --c-comm: #58a6ff; --c-copy: #bc8cff; --c-idle: #d29922;
  --c-data: #ff7b72; --c-after_sync: #f0883e; --c-allocator: #d4a72c; --c-launching: #bc8cff;
  --c-module_load: #a98fd1; --c-host_work: #ffa198; --c-work: #3fb950;
  --c-launch_latency: #f778ba; --c-dependency: #58a6ff; --c-kernel_gap: #8b949e; --c-unknown: #6e7681; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.5rem 3rem; max-width: 68rem; background: var(--ground); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.35rem; margin: 0 0 .2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 2rem 0 .6rem; }
h3 { font-size: .95rem; margin: 1.4rem 0 .4rem; }
p { margin: .3rem 0; } .dim, footer { color: var(--dim); } footer { margin-top: 2.5rem; font-size: .85rem; }
code, .mono { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: .92em; }
.verdict { border: 1px solid var(--rule); border-left: .4rem solid var(--level); border-radius: .4rem;
  padding: .8rem 1rem; background: var(--card); margin: 1rem 0; }
.verdict .head { font-weight: 650; color: var(--level); font-size: 1.08rem; }
.verdict .id { float: right; margin-left: 1rem; color: var(--dim); font-size: .85rem; }
.verdict .do { margin-top: .5rem; font-weight: 600; } .verdict .best { color: var(--green); font-weight: 600; }
.red { --level: var(--red); } .yellow { --level: var(--yellow); } .green { --level: var(--green); }
.info { --level: var(--info); } .grey, .grey-green { --level: var(--grey); }
.level { color: var(--level); font-weight: 600; }
.bar { display: flex; height: 1.5rem; border-radius: .25rem; overflow: hidden; background: var(--track); }
.bar.thin { height: .8rem; min-width: 6rem; }
.bar span { display: block; height: 100%; min-width: 0; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.2rem; margin: .5rem 0 0; padding: 0; list-style: none; }
.legend i { display: inline-block; width: .8em; height: .8em; border-radius: .15em; margin-right: .4em; }
.scroll { overflow-x: auto; margin: .7rem 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.2rem, 1fr)); gap: .8rem; margin: 1.2rem 0; }
.tile { border: 1px solid var(--rule); border-radius: .5rem; padding: .7rem .9rem; background: var(--card); }
.tile b { display: block; font-size: 1.25rem; line-height: 1.4; font-weight: 700; white-space: nowrap;
  color: var(--level, var(--text)); }
.tile small { display: block; font-size: .82rem; line-height: 1.35; }
.gpu { border: 1px solid var(--rule); border-radius: .5rem; overflow: hidden; margin: .9rem 0; break-inside: avoid; }
.gpu header { display: flex; flex-wrap: wrap; gap: .1rem .9rem; padding: .45rem .8rem; background: var(--card); }
.gpu header span:last-child { margin-left: auto; }
.gpu header.alarm { background: #a01b1b; color: #ffffff; font-weight: 600; }
.gpu .chart { display: grid; grid-template-columns: 5.2rem 1fr; gap: 0 .6rem; padding: .6rem .8rem 0; }
.gpu dl { margin: 0; display: grid; grid-template-columns: 1fr auto; gap: .1rem .4rem; align-content: start;
  font-size: .85rem; font-variant-numeric: tabular-nums; }
.gpu dt { color: var(--dim); } .gpu dd { margin: 0; text-align: right; font-weight: 700; }
.gpu .said { padding: .2rem .8rem .6rem; margin-left: calc(5.2rem + .6rem); }
@media (max-width: 34rem) { .gpu .chart { grid-template-columns: 1fr; } .gpu .said { margin-left: 0; }
  .gpu dl { grid-template-columns: repeat(6, auto); justify-content: start; gap: 0 .5rem; margin-bottom: .3rem; }
  .tiles { grid-template-columns: repeat(2, 1fr); } body { padding: 1.2rem .9rem 2rem; } }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { color: var(--dim); font-weight: 500; font-size: .85rem; text-align: left; vertical-align: bottom; }
th, td { padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--rule); }
td.n, th.n { text-align: right; white-space: nowrap; padding-right: 1.1rem; }
td.wide { width: 38%; min-width: 4rem; } td.name { overflow-wrap: anywhere; min-width: 7.5rem; }
td.key { white-space: nowrap; }
@media (max-width: 44rem) { .stacks thead { display: none; } .stacks tr { display: block; padding: .5rem 0;
  border-bottom: 1px solid var(--rule); } .stacks td { display: inline-block; border: 0; padding: .1rem .9rem .1rem 0;
  min-width: 0; text-align: left; white-space: normal; } .stacks td.name { display: block; }
  .stacks td:not(.name)::before { content: attr(data-name) " "; color: var(--dim); font-size: .85rem; } }
pre { background: var(--card); padding: .5rem .8rem; overflow-x: auto; }
ul.notes { padding-left: 1.2rem; margin: .4rem 0; }
@media print { html { font-size: 11.7px; } body { max-width: none; padding: 0; font-size: 11px; }
  h2 { break-after: avoid; }
  .verdict, tr, .bar { break-inside: avoid; } .scroll { overflow: visible; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; } }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Nothing is loaded and nothing runs, whatever the texts in the page contain."""


def document(title: str, *body: object, footer: str = "") -> str:
    """A whole page."""
    head = (
        '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{text(title)}</title>\n<style>{_STYLE}</style>\n"
    )
    inside = join((*body, element("footer", footer) if footer else ""))
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}</head>\n<body>\n{inside}\n</body>\n</html>\n'


# The gap chart and the lane of verdicts under it, as SVG on one axis of time. No script; values on pointing.

HEIGHT, LANE = 100, 12
GREEN, AMBER, RED, GREY = "var(--c-compute)", "#bf8f4a", "#a8201f", "var(--c-unknown)"

MARKS = 4
"""Intervals of equal length between the labels of the axis."""
WITH_SECONDS_S, DAY_S = 60.0, 86400.0

Columns = Sequence[LaneColumn | None]


def chart(columns: Columns, label: str) -> Markup:
    """Utilisation and SM activity over time; gaps stay empty."""
    areas = (
        _area(columns, lambda c: c.util_pct if c.sm_pct is None else None, GREY),
        _area(columns, lambda c: c.util_pct if c.sm_pct is not None and not c.is_flagged else None, AMBER),
        _area(columns, lambda c: c.util_pct if c.sm_pct is not None and c.is_flagged else None, RED),
        _area(columns, lambda c: c.sm_pct, GREEN),
    )
    return _svg(columns, HEIGHT, areas, "height:90px;background:var(--track)", label)


def lane(columns: Columns) -> Markup:
    """Verdicts over the same time, with tooltips."""
    at, parts = 0, []
    for verdict, run in groupby(columns, lambda c: None if c is None else (c.role, c.title)):
        width = len(list(run))
        if verdict is not None:
            role, title = verdict
            rect = {"x": at, "y": 0, "width": width, "height": LANE, "fill": f"var(--c-{role})"}
            parts.append(element("rect", element("title", title), **rect))
        at += width
    style = "height:.5rem;margin-top:.2rem;border-radius:.2rem;background:var(--track)"
    return _svg(columns, LANE, parts, style, "verdicts over the same time")


def _svg(columns: Columns, height: int, parts: Iterable[Markup], style: str, label: str) -> Markup:
    """A drawing that fills the width."""
    return element(
        "svg",
        *parts,
        viewBox=f"0 0 {len(columns)} {height}",
        preserveAspectRatio="none",
        style=f"display:block;width:100%;{style}",
        role="img",
        aria_label=label,
    )


def clock(begin: float, end: float) -> Markup:
    """Evenly spaced times of day (UTC) below a chart."""
    span = end - begin
    form = "%H:%M:%S" if span < 4 * WITH_SECONDS_S else "%H:%M" if span < DAY_S else "%m-%d %H:%M"
    times = [datetime.fromtimestamp(begin + span * i / MARKS, timezone.utc) for i in range(MARKS + 1)]
    labels = [element("span", f"{t:{form}}") for t in times]
    style = "display:flex;justify-content:space-between;color:var(--dim);font-size:.75rem"
    return element("div", *labels, style=style, aria_label="UTC")


def _area(columns: Columns, read: Callable[[LaneColumn], float | None], colour: str) -> Markup:
    """An area of columns; a column without a value is empty."""
    heights = [0 if c is None else round(min(100.0, max(0.0, read(c) or 0.0))) for c in columns]
    x, path = 0, ""
    for height, run in groupby(heights):
        width = len(list(run))
        if height:
            path += f"M{x} {HEIGHT}v-{height}h{width}v{height}z"
        x += width
    # gputop's own text, which may be longer than text from outside may be.
    return element("path", d=Markup(path), fill=colour)
