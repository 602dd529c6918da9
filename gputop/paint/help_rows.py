"""The help, made of bindings, catalogue and rules.

Nothing is typed twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from gputop.diagnosis.catalogue import badge_rows, verdict_rows
from gputop.diagnosis.types import NOT_WORKING, STATE_WORDS
from gputop.model.metrics import GPU_METRICS
from gputop.model.quantity import terminal_safe, wrapped
from gputop.model.snapshot import ProcessSample
from gputop.model.text_table import table_rows
from gputop.paint.glyphs import Glyphs, keys_shown
from gputop.paint.keys import KEYS, REPLAY_KEYS, Key
from gputop.paint.line import Line, Row, heading, text_row
from gputop.paint.process_columns import COLUMNS, DEFAULT, existing_columns

NUMBERS = (
    "UTIL is the share of time in which any kernel ran at all: one tiny kernel after the other makes it 100.",
    "SM is how much of the chip's processors, its streaming multiprocessors, had work meanwhile.",
    "GAP is UTIL - SM: the share of the chip that looks busy and does nothing; in a chart the area above the green.",
    "Efficiency is SM / UTIL. What is not measured is n/a, with the reason; never 0.",
)
"""What the numbers of a GPU say, the first thing in the help."""


FIRST_PAGE = tuple(
    (ids.split(), words)
    for ids, words in table_rows("""
    help                        this help; / searches in it
    palette                     every command by name
    quit                        quit
    up down                     up, down
    page_up page_down           a page up, down
    first last                  first, last row
    details                     the process in full
    gpu_details                 the GPU in full
    previous_gpu next_gpu       previous, next GPU
    counted                     next GPU in need of a look
    release                     go back
    section                     counts, GPUs, processes
    longer shorter              longer, shorter charts
    layout_panes layout_list    panes, a line a GPU
    findings                    findings
    copy copy_json              copy the verdict, as JSON
    theme                       theme
    record                      record
    screenshot                  save a picture
    sort                        sort
    sort_next sort_previous     sort: next, previous column
    invert                      reverse the order
    filter                      filter
    search                      search
    match_next match_previous   next, previous match
    tree                        loaders and helpers
    columns                     choose columns
    users                       by user and by job
    tag untag                   tag, untag all
    signal                      send a signal, asks first
    environment                 environment variables
    stacks                      Python stacks, threads
    command_left command_right  scroll long commands
    pause                       pause and look back
    play                        paused: play
    back on                     paused: a frame back, on
    next_change previous_change  paused: next, last verdict
    jump                        paused: jump to a time
    slower faster               paused: slower, faster
    begin end                   paused: to begin, to end
    redraw                      draw everything again
    suspend                     suspend
""")
)
"""Keys of the help's first page, of 80×24 cells: ids and what they do in a few words."""
KEY_WIDTH, TWO_COLUMNS = 10, 76
SCREEN_WORDS = dict(
    table_rows(f"""
    {NOT_WORKING}                     UTIL of 80 or more with SM below 30, or UTIL of 50 or more with SM below 0.3 of
      it
    efficiency                        SM / UTIL, in percent; at the right of a title stands what its verdict is about:
      efficiency, the time idle, or how busy memory or NVLink is
    idle                              share of the last 30 s in which no kernel ran
    R S D                             beside the loaders of a GPU that waits for them: how many run or want to run (R),
      sleep (S) or wait for a disk (D)
    GPU% time                         share of the time in which a kernel of this process ran, as the driver samples it
    waiting for a core                share of the time in which some task could run and had no core (PSI cpu, some)
    for I/O                           share of the time in which some task waited for storage (PSI io, some)
    loaders work while the GPU waits  their work and UTIL move in opposite directions, sample by sample
    GPUs' time                        '3.2 of 8 GPUs' time was lost': of 8 GPUs over the last minutes, as much as 3.2
      of them whole
    {STATE_WORDS["unmeasured"]}       too few samples yet, or no SM activity: counted neither as work nor as waste
""")
)
"""Words on the screen that are neither metrics nor verdicts."""


ROLES = dict(
    table_rows("""
    gpu     it holds a GPU context
    loader  a worker that prepares batches for the process above it
    helper  a child of a GPU process that is not a worker
    orphan  a worker whose GPU process has ended
""")
)


class Selected(Struct, frozen=True):
    """The selection that the help begins with.

    The selected GPU's verdict, the chosen process, the columns and their order.
    """

    verdict_id: str | None = None
    process: ProcessSample | None = None
    columns: tuple[str, ...] = DEFAULT
    sort: str | None = None
    shows_past: bool = False
    """Whether the screen shows the past, whose keys come first then."""


VERDICT_WIDTH = 32
PAST = REPLAY_KEYS[0].section


def help_rows(
    glyphs: Glyphs, width: int, keys: Sequence[Key] = (*KEYS, *REPLAY_KEYS), selected: Selected | None = None
) -> list[Row]:
    """Return all rows of the help at a width.

    The screen scrolls through them.
    """
    rows = [text_row(" gputop: its keys, and how to read it", width, "title"), *first_page(keys, width, glyphs)]
    rows.append(Line().row(width))
    selected = selected or Selected()
    verdict_id, columns = selected.verdict_id, _column_rows(selected, width)
    for text in NUMBERS:
        rows += [text_row(line, width, "text", 2) for line in wrapped(text, max(10, width - 4))]
    rows += [*legend_rows(glyphs, width), Line().row(width)]
    for verdict in verdict_rows():
        if verdict.id == verdict_id:
            rows += section_rows("the verdict of the selected GPU", width)
            rows += entry_rows(verdict.title, verdict.remedy or "nothing has to be done", width, indent=VERDICT_WIDTH)
            rows.append(Line().row(width))
    if selected.process is not None:
        rows += _process_rows(selected.process, width) + columns
    rows += section_rows("glossary", width)
    for metric in (metric for metric in GPU_METRICS.values() if metric.glossary):
        source = "" if metric.origin is None else f" [{metric.origin}]"
        rows += entry_rows(metric.label, metric.definition + source, width)
    for word, meaning in SCREEN_WORDS.items():
        rows += entry_rows(word, meaning, width, indent=20)
    rows.append(Line().row(width))
    # What counts on the screen as it is comes first.
    past = [key for key in keys if key.section == PAST]
    others = [key for key in keys if key.section != PAST]
    rows += key_rows([*past, *others] if selected.shows_past else [*others, *past], width, glyphs)
    if selected.process is None:
        rows += columns
    rows += section_rows("verdicts, in the order in which they are checked", width)
    titles = [verdict.title for verdict in verdict_rows()]
    for verdict in verdict_rows():
        helps = f" → {verdict.remedy}" if verdict.remedy else ""
        title = verdict.title if titles.count(verdict.title) == 1 else f"{verdict.title} ({verdict.id})"
        rows += entry_rows(title, f"{verdict.condition}{helps}", width, indent=VERDICT_WIDTH)
    rows.append(Line().row(width))
    rows += section_rows("badges", width)
    for badge in badge_rows():
        rows += entry_rows(badge.id, badge.condition, width)
    return rows


def _process_rows(process: ProcessSample, width: int) -> list[Row]:
    """Return the chosen process's role and its rule."""
    rows = section_rows(f"process {process.pid}, which is selected", width)
    rows += entry_rows("role", f"{process.role}: {ROLES.get(process.role, 'a process near the GPU')}", width)
    if process.static.why:
        rows += entry_rows("why", terminal_safe(process.static.why), width)
    return [*rows, Line().row(width)]


def _column_rows(selected: Selected, width: int) -> list[Row]:
    """Return the table's columns with their definitions.

    The sorted one comes first.
    """
    rows = section_rows("columns of the process table", width)
    for key in sorted(existing_columns(selected.columns), key=lambda key: key != selected.sort):
        order = " (it is sorted by this)" if key == selected.sort else ""
        rows += entry_rows(COLUMNS[key].head, COLUMNS[key].definition + order, width)
    return [*rows, Line().row(width)]


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
    key_of = {key.id: key for key in keys}
    entries = []
    for ids, words in FIRST_PAGE:
        shown = " ".join(key_of[key_id].first for key_id in ids if key_id in key_of and key_of[key_id].first)
        if shown:
            entries.append((keys_shown(shown, glyphs), words))
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
