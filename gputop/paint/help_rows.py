"""The help, made of bindings, catalogue and rules.

Nothing is typed twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputop.diagnosis.types import NOT_WORKING, STATE_WORDS
from gputop.diagnosis.verdict.catalogue import badge_rows, verdict_rows
from gputop.model.clean_text import wrapped
from gputop.model.metrics import GPU_METRICS
from gputop.paint.glyphs import Glyphs, keys_shown
from gputop.paint.keys import KEYS, REPLAY_KEYS, Key
from gputop.paint.line import Line, Row, heading, text_row
from gputop.paint.process_columns import COLUMNS, DEFAULT

NUMBERS = (
    "UTIL is the share of time in which any kernel ran at all: one tiny kernel after the other makes it 100.",
    "SM is how much of the chip's processors, its streaming multiprocessors, had work meanwhile.",
    "GAP is UTIL - SM: the share of the chip that looks busy and does nothing; in a chart the area above the green.",
    "Efficiency is SM / UTIL. What is not measured is n/a, with the reason; never 0.",
    "--key-preset nvitop or htop (key_preset in the configuration) binds the keys of those programs.",
)
"""What the numbers of a GPU say, the first thing in the help."""


KEY_WIDTH, TWO_COLUMNS = 10, 76
SCREEN_WORDS: Mapping[str, str] = {
    NOT_WORKING: "UTIL of 80 or more with SM below 30, UTIL of 50 or more with SM below 0.3 of it, or UTIL of 10 or "
    "more with SM below 0.1 of it",
    "since 02:24, 8 of 13 min wasted": "since when the verdict holds, for how long, and how much GPU time of that was "
    "held by somebody and did no work",
    "efficiency": "SM / UTIL in percent. The right end of a title shows what its verdict is about: efficiency, the "
    "time idle, or how busy memory or NVLink is",
    "idle": "share of the last 30 s in which no kernel ran",
    "R S D": "beside the loaders of a GPU that waits for them: how many run or want to run (R), sleep (S) or wait for "
    "a disk (D)",
    "GPU%": "share of the time in which a kernel of this process ran, as the driver samples it",
    "waiting for a core": "share of the time in which some task could run and had no core (PSI cpu, some)",
    "for I/O": "share of the time in which some task waited for storage (PSI io, some)",
    "loaders work while the GPU waits": "their work and UTIL move in opposite directions, sample by sample",
    "GPUs' time": "'3.2 of 8 GPUs' time was wasted': of 8 GPUs over the last minutes, as much as 3.2 of them whole was "
    "held by somebody and not used; what nobody held is idle and no waste",
    STATE_WORDS[
        "unmeasured"
    ]: "too few samples yet, or no SM activity: counted neither as work nor as waste",
}
"""Words on the screen that are neither metrics nor verdicts."""
VERDICT_WIDTH = 32


def help_rows(glyphs: Glyphs, width: int, keys: Sequence[Key] = (*KEYS, *REPLAY_KEYS)) -> list[Row]:
    """Return all rows of the help at a width.

    The screen scrolls through them.
    """
    rows = [
        text_row(" gputop: its keys, and how to read it", width, "title"),
        *first_page(keys, width, glyphs),
    ]
    rows.append(Line().row(width))
    for text in NUMBERS:
        rows += [text_row(line, width, "text", 2) for line in wrapped(text, max(10, width - 4))]
    rows += [*legend_rows(glyphs, width), Line().row(width), *section_rows("glossary", width)]
    for metric in (metric for metric in GPU_METRICS.values() if metric.glossary):
        source = "" if metric.origin is None else f" [{metric.origin}]"
        rows += entry_rows(metric.label, metric.definition + source, width)
    for word, meaning in SCREEN_WORDS.items():
        rows += entry_rows(word, meaning, width, indent=20)
    rows += [
        Line().row(width),
        *key_rows(keys, width, glyphs),
        *section_rows("columns of the process table", width),
    ]
    for key in DEFAULT:
        rows += entry_rows(COLUMNS[key].head, COLUMNS[key].definition, width)
    rows += [
        Line().row(width),
        *section_rows("verdicts, in the order in which they are checked", width),
    ]
    titles = [verdict.title for verdict in verdict_rows()]
    for verdict in verdict_rows():
        helps = f" → {verdict.remedy}" if verdict.remedy else ""
        title = (
            verdict.title if titles.count(verdict.title) == 1 else f"{verdict.title} ({verdict.id})"
        )
        rows += entry_rows(title, f"{verdict.condition}{helps}", width, indent=VERDICT_WIDTH)
    rows += [Line().row(width), *section_rows("badges", width)]
    for badge in badge_rows():
        rows += entry_rows(badge.id, badge.condition, width)
    return rows


def legend_rows(glyphs: Glyphs, width: int) -> list[Row]:
    """Return the legend of the gap charts' colours."""
    rows, line = [], Line().to(2)
    for glyph, style, words in (
        ("█", "gap.sm", "SM active"),
        (glyphs.gap, "gap.gap", "busy, but no SM at work"),
        (glyphs.gap, "gap.alarm", NOT_WORKING),
        ("▒", "gap.unknown", "SM not measured"),
    ):
        if line.width > 2 and line.width + len(words) + 8 > width:
            rows.append(line.row(width))
            line = Line().to(2)
        line.add("   " if line.width > 2 else "").add(glyph * 4, style).add(f" {words}", "dim")
    return [*rows, line.row(width)]


def first_page(keys: Sequence[Key], width: int, glyphs: Glyphs) -> list[Row]:
    """The most used keys in two columns, where they fit."""
    shown_keys: dict[str, list[str]] = {}
    for key in keys:
        if key.short and key.first:
            shown_keys.setdefault(key.short, []).append(keys_shown(key.first, glyphs))
    entries = [(" ".join(shown), words) for words, shown in shown_keys.items()]
    columns = 2 if width >= TWO_COLUMNS else 1
    height = -(-len(entries) // columns)
    rows = []
    for y in range(height):
        line = Line()
        for column, (shown, words) in enumerate(entries[y::height]):
            begin = 1 + column * (width // columns)
            line.to(begin).add(f"{shown:<{KEY_WIDTH}} ", "key").add(words, "text")
        rows.append(line.row(width))
    return rows


def key_rows(keys: Sequence[Key], width: int, glyphs: Glyphs) -> list[Row]:
    """Return all keys by section, in the table's order."""
    rows: list[Row] = []
    for section in dict.fromkeys(key.section for key in keys):
        rows += section_rows(section, width)
        rows += [
            row
            for key in keys
            if key.section == section
            for row in entry_rows(keys_shown(key.shown, glyphs) or "–", key.does, width)
        ]
        rows.append(Line().row(width))
    return rows


def section_rows(name: str, width: int) -> list[Row]:
    """A heading."""
    return [heading(name, width)]


def entry_rows(head: str, text: str, width: int, indent: int = 16) -> list[Row]:
    """A word and what it means, folded to the width."""
    indent = min(indent, width // 3)
    lines = wrapped(text, max(10, width - indent - 4)) or [""]
    if len(head) >= indent:
        rows = [text_row(head, width, "key", 2)]
        return rows + [text_row(line, width, "text", indent + 2) for line in lines]
    rows = [Line().to(2).add(head, "key").to(indent + 2).add(lines[0], "text").row(width)]
    return rows + [text_row(line, width, "text", indent + 2) for line in lines[1:]]
