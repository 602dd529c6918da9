"""How the main screen's height is divided: a pure choice of rows, from roomy to tight.

It knows the size of the screen and the number of GPUs, never how many processes run: nothing jumps when a job starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

Density = Literal["standard", "compact"]

STACKED: Mapping[Density, tuple[tuple[int, int, int], ...]] = MappingProxyType({
    "standard": ((9, 9, 8), (6, 6, 8), (9, 3, 8), (6, 3, 5), (6, 1, 3), (3, 1, 2)),
    "compact": ((6, 1, 3), (3, 1, 2)),
})  # fmt: skip
"""(rows of the selected GPU's block, rows of the others', process rows kept), tried in this order."""
LEAST_GRID, COMPACT_GRID, TALLEST_GRID = 3, 3, 24
"""Rows of a pane side by side with others."""
TALLEST = 14
"""No chart of a single column grows beyond this."""
LEAST_PROCESSES = 8
"""Process rows that a chart leaves before it grows."""
LEAST_PROCESSES_OF_FEW, MOST_PROCESSES = 5, 24
"""Process rows that a chart of one or two GPUs leaves on a low screen, and those reserved on a high one."""
PROCESSES_OF_NONE, PROCESSES_OF_A_GPU = 4, 2
"""Process rows that are kept beside those of each GPU, and of each GPU: what is more is worth more in charts."""
LEAST_LISTED = 8
"""Fewer GPUs than this keep their panes even if that leaves less room for processes."""
WORDS_ROWS, TABLE_ROWS = 3, 5
"""Rows left below a list of GPUs: a title and two rows of words; the process table's heads and three rows."""


def density(name: str) -> Density:
    """The density of a setting; standard for every name but ``compact``."""
    return "compact" if name == "compact" else "standard"


def stacked(gpus: int, free: int, density: Density) -> tuple[int, int] | None:
    """Rows of the selected GPU's block and of each other one in ``free`` rows; None where not even the least fits.

    Where GPUs take one line each, the row of column heads is counted too.
    """
    for tall, other, process_rows in STACKED[density]:
        heads = 1 if other == 1 and gpus > 1 else 0
        if tall + heads + (gpus - 1) * other <= free - process_rows:
            if density == "compact":
                return tall, other
            return grown(tall, free - heads - (gpus - 1) * other, kept_processes(free, gpus)), other
    return None


def side_by_side(gpus: int, per_line: int, free: int, density: Density) -> int:
    """Rows of each line of so many panes beside each other; 0 where not even the least fits."""
    lines = -(-gpus // per_line)
    if density == "compact":
        return COMPACT_GRID if lines * COMPACT_GRID <= free - LEAST_PROCESSES else 0
    rows = min(TALLEST_GRID, (free - kept_processes(free, gpus)) // lines)
    return rows if rows >= LEAST_GRID else 0


def panes_beside(most_columns: int, gpus: int) -> int:
    """How many panes stand side by side: as many as divide the GPUs evenly, so that the grid has no hole."""
    return next((columns for columns in range(most_columns, 1, -1) if gpus % columns == 0), most_columns)


def kept_processes(free: int, gpus: int) -> int:
    """Process rows left below the GPUs: a third of the room, and no more than so many GPUs need as a rule.

    Whatever runs, so that nothing moves when a job starts.
    """
    return max(LEAST_PROCESSES, min(free // 3, MOST_PROCESSES, PROCESSES_OF_NONE + PROCESSES_OF_A_GPU * gpus))


def few_listed_chart(rows_below: int) -> int:
    """Rows of the selected one's chart below a list of one or two GPUs; enough for the four numbers beside it."""
    return min(rows_below - LEAST_PROCESSES_OF_FEW, TALLEST)


def big_chart(least: int, room: int, count: int, height: int) -> int:
    """Rows of each chart of one or two GPUs: what is left of ``room``, up to two fifths of a high screen."""
    return max(least, min(max(TALLEST, height * 2 // 5), room // count))


def grown(least: int, room: int, process_rows: int) -> int:
    """A block of at least ``least`` rows, taller where ``process_rows`` rows of processes leave some of the
    ``room``."""
    return max(least, min(room - process_rows, TALLEST))


def listed(gpus: int, rows_left: int) -> int:
    """GPUs on one line each in so many rows; a low screen gives all but two rows of words to them."""
    room = rows_left - WORDS_ROWS - TABLE_ROWS
    if room < LEAST_LISTED and rows_left - 2 < gpus <= rows_left:
        # Every GPU with its verdict is worth more than the words of one.
        return gpus
    return max(1, min(gpus, room if room >= LEAST_LISTED else rows_left - 2))


def bar_room(below: int, wanted_rows: int) -> int:
    """Rows that the time line of the past takes of those below GPUs and host, at most ``wanted_rows``.

    Where it fits as a whole it goes before the processes; where it cannot, they keep some rows.
    """
    process_rows = next((rows for rows, least in ((8, 20), (5, 12), (4, 7)) if below >= least), 0)
    return wanted_rows if wanted_rows <= below else max(1, below - process_rows)
