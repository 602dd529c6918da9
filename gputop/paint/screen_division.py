"""Division of the main screen's height between GPUs, processes and the time line.

Pure: it knows the size of the screen and the number of GPUs, never how many processes run. Nothing jumps when a job
starts.
"""

from __future__ import annotations

from collections.abc import Mapping

from gputop.paint.panes import LEAST_WITH_LANES
from gputop.paint.view import Density

STACKED: Mapping[Density, tuple[tuple[int, int, int], ...]] = {
    "standard": ((9, 9, 8), (6, 6, 8), (9, 3, 8), (6, 3, 5), (6, 1, 3), (3, 1, 2)),
    "compact": ((6, 1, 3), (3, 1, 2)),
}  # fmt: skip
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
KEPT_IN_THE_PAST = 7
"""Rows of the process table beside the time line of the past: title, heads and five processes."""
WORDS_ROWS, TABLE_ROWS = 3, 5
"""Rows left below a list of GPUs: a title and two rows of words; the process table's heads and three rows."""


LEAST_PANE_WIDTH = 96


def are_few(gpus: int, width: int, height: int) -> bool:
    """Return whether one or two GPUs get a chart over the whole width."""
    return width >= 80 and ((gpus == 1 and height >= 28) or (gpus == 2 and height >= 46))


def rows_of_few(gpus: int, room: int, height: int) -> int:
    """Return the rows of the pane of each of one or two GPUs.

    The host's lanes are worth more than the sixth process.
    """
    with_lanes = min(gpus * LEAST_WITH_LANES, room - LEAST_PROCESSES_OF_FEW)
    return min(max(room - kept_processes(room // 2, gpus), with_lanes) // gpus, max(TALLEST_GRID, height * 3 // 5))


def chart_below_list(gpus: int, free: int, room: int) -> int:
    """Return the rows of the selected GPU's chart below a list of GPUs; below 1 where there is none."""
    return min(room - (LEAST_PROCESSES_OF_FEW if gpus <= 2 else kept_processes(free, gpus)), TALLEST)


def panes_per_line(width: int, gpus: int) -> int:
    """Return how many panes a line has.

    As many as divide the GPUs evenly, so that the grid has no hole.
    """
    if width < 2 * LEAST_PANE_WIDTH + 8:
        return 1
    most = max(1, min(width // LEAST_PANE_WIDTH, 3, gpus))
    return next((columns for columns in range(most, 1, -1) if gpus % columns == 0), most)


def stacked(gpus: int, free: int, density: Density) -> tuple[int, int] | None:
    """Return the rows of the selected GPU and of others.

    In ``free`` rows; None where not even the least fits. Where GPUs take one line each, the row of column heads is
    counted too.
    """
    for tall, other, process_rows in STACKED[density]:
        heads = 1 if other == 1 and gpus > 1 else 0
        if tall + heads + (gpus - 1) * other <= free - process_rows:
            if density == "compact":
                return tall, other
            return grown(tall, free - heads - (gpus - 1) * other, kept_processes(free, gpus)), other
    return None


def side_by_side(gpus: int, per_line: int, free: int, density: Density) -> list[int]:
    """Return the rows of each line of panes.

    Empty where not even the least fits. What the lines cannot share evenly goes to the first ones, so that no row
    stays empty.
    """
    lines = -(-gpus // per_line)
    if density == "compact":
        return [COMPACT_GRID] * lines if lines * COMPACT_GRID <= free - LEAST_PROCESSES else []
    # Beside each other GPUs take fewer rows: a sixth of the room is enough for their processes.
    rows, more = divmod(free - kept_processes(free // 2, gpus), lines)
    return [min(TALLEST_GRID, rows + (line < more)) for line in range(lines)] if rows >= LEAST_GRID else []


def kept_processes(free: int, gpus: int) -> int:
    """Return the process rows kept below the GPUs.

    A third of the room, and no more than so many GPUs need as a rule. Whatever runs, so that nothing moves when a
    job starts.
    """
    return max(LEAST_PROCESSES, min(free // 3, MOST_PROCESSES, PROCESSES_OF_NONE + PROCESSES_OF_A_GPU * gpus))


def grown(least: int, room: int, process_rows: int) -> int:
    """Return a block's rows, at least ``least``.

    It is taller where ``process_rows`` rows of processes leave some of the ``room``.
    """
    return max(least, min(room - process_rows, TALLEST))


def listed(gpus: int, rows_left: int) -> int:
    """Return how many GPUs get a line each.

    A low screen gives all but two rows of words to them.
    """
    room = rows_left - WORDS_ROWS - TABLE_ROWS
    if room < LEAST_LISTED and rows_left - 2 < gpus <= rows_left:
        # Every GPU with its verdict is worth more than the words of one.
        return gpus
    return max(1, min(gpus, room if room >= LEAST_LISTED else rows_left - 2))


def bar_room(below: int, wanted_rows: int) -> int:
    """Return the rows of the time line of the past.

    At most ``wanted_rows`` of those ``below`` GPUs and host. Whoever looks back wants to see who ran: title, heads
    and five processes stay where the live screen has them.
    """
    return min(wanted_rows, max(1, below - KEPT_IN_THE_PAST))
