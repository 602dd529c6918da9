"""The help of the fleet's screen: numbers, states, stragglers, exporters and keys."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.diagnosis.types import NOT_WORKING, STATE_WORDS
from gputop.features.fleet.exporter_names import DIALECTS
from gputop.paint.glyphs import Glyphs
from gputop.paint.help_rows import entry_rows, key_rows, legend_rows, section_rows
from gputop.paint.keys import Key
from gputop.paint.line import Line, Row

WORDS = (
    ("UTIL, SM, GAP", "means over 5 minutes and over the GPUs of the row; GAP is UTIL - SM: busy without SM activity"),
    ("WASTE 1 h", "GPU-hours of the last hour that somebody's job did not use; 'idle' beside it is what nobody used"),
    ("n/a", "no exporter gives it: dcgm-exporter leaves SM activity out unless its CSV names it"),
    ("last hour", "as the rules recorded it, else judged minute by minute; nodes with gputop count their own seconds"),
)
STATES = (
    ("down", "the engine's `up` was 0 in two scrapes in a row, or nothing new came; the last values stay, grey"),
    ("gputop", "where `gputop export` runs, its own state holds, and its verdict names the cause"),
    ("idle", "95 % of the time UTIL was below 5; 'idle, holding memory' from 1 GiB on"),
    (NOT_WORKING, "UTIL of 80 or more with SM below 30, or UTIL of 50 or more with SM below 0.3 of it"),
    ("starved", "UTIL of at most 80 on a GPU with a job"),
    (STATE_WORDS["unmeasured"], "busy, but no SM activity is exported: neither work nor waste"),
    ("working", "all others"),
)
"""The rules in the order in which they are checked; the first that holds over 5 minutes is the state."""
STRAGGLERS = (
    ("slow, by step", "the job's ranks announce their steps, and one's take more than 1.1 times the others' median; "
                      "without what each waited for others, where all of them say so"),
    ("slow", "all GPUs of a job at UTIL of 80 or more, and one does more than the median of the others, by 15 points "
             "and by three deviations"),
    ("starved", "one GPU's UTIL is more than 15 points below its job's median, all others at 80 or more"),
)  # fmt: skip


def help_rows(glyphs: Glyphs, width: int, keys: Sequence[Key]) -> list[Row]:
    """All rows of the help at a width."""
    rows = [Line().add(" gputop fleet: how to read it, and its keys", "title").row(width), Line().row(width)]
    rows += [*legend_rows(glyphs, width), Line().row(width), *key_rows(keys, width, glyphs)]
    names = [(dialect.id, dialect.words) for dialect in DIALECTS.values()]
    tables = (
        ("numbers", WORDS),
        ("states, in the order in which they are checked", STATES),
        ("stragglers, within one job", STRAGGLERS),
        ("exporters that gputop understands", names),
    )
    for title, table in tables:
        rows += section_rows(title, width)
        for word, text in table:
            rows += entry_rows(word, text, width, indent=20)
        rows.append(Line().row(width))
    return rows
