"""Two recordings as a page: one sentence on the result and how certain it is, then both side by side."""

from __future__ import annotations

from itertools import zip_longest

from gputop import __version__
from gputop.model.quantity import of_hundred
from gputop.output.compare import Difference, compare, verdict_line
from gputop.output.html.blocks import table
from gputop.output.html.document import document
from gputop.output.html.markup import Markup, element
from gputop.output.report_html import gpu_section, headline, key, what_it_is
from gputop.report.certainty import change, sentence
from gputop.report.lanes import Pictured

LEVELS = {"better": "green", "worse": "red"}


def compare_html(before: Pictured, after: Pictured) -> str:
    """The whole page. GPUs stand beside those of the same place in the other recording."""
    comparison = compare(before.report, after.report)
    said = verdict_line(comparison)
    level = "green" if said.startswith("Better") else "red" if said.startswith("Worse") else "grey"
    known = [d for d in comparison.differences if not (d.before or 0.0) == (d.after or 0.0) == 0.0]
    pairs: list[Markup] = []
    for was, now in zip_longest(before.report.gpus, after.report.gpus):
        halves = (
            element("div", gpu_section(found, gpu) if gpu is not None else "", style="flex:1 1 20rem;min-width:0")
            for found, gpu in ((before, was), (after, now))
        )
        pairs.append(element("div", *halves, style="display:flex;flex-wrap:wrap;gap:1rem"))
    body = [
        element("h1", said),
        element("p", f"{sentence(change(before, after))}.", class_=f"level {level}"),
        element("p", f"before: {headline(before.report)} · {what_it_is(before)}", class_="dim"),
        element("p", f"after: {headline(after.report)} · {what_it_is(after)}", class_="dim"),
        key(max(before.column_s, after.column_s)),
        element("h2", "Before, and after"),
        *pairs,
        element("h2", "By measure"),
        table(("", "before", "after", "change", ""), [_row(d) for d in known], "tnnnt"),
        *(element("p", f"gone: {text}") for text in comparison.gone),
        *(element("p", f"new: {text}") for text in comparison.new),
    ]
    footer = f"Means over GPUs and time. gputop {__version__}"
    return document(f"gputop compare: {said}", *body, footer=footer)


def _row(d: Difference) -> tuple[object, ...]:
    was, now = (of_hundred(value) if d.unit == "%" else value for value in (d.before, d.after))
    moved = "" if was is None or now is None else f"{now - was:+.1f}"
    word = element("span", d.direction, class_=f"level {LEVELS[d.direction]}") if d.direction in LEVELS else ""
    label = f"{d.label}, {d.unit}" if d.unit else d.label
    return (label, *("n/a" if value is None else f"{value:.1f}" for value in (was, now)), moved, word)
