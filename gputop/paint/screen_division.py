"""Division of the main screen's height between GPUs, processes and the time line.

Pure: it knows the size of the screen and the number of GPUs, never how many processes run. Nothing jumps when a job
starts.
"""

from __future__ import annotations

from gputop.paint.panes import LEAST_WITH_LANES

STACKED = ((9, 9, 8), (6, 6, 8), (9, 3, 8), (6, 3, 3), (6, 1, 3), (3, 1, 2))
"""(rows of the selected GPU's block, rows of the others', process rows kept), tried in this order: process rows give
way to panes."""
LEAST_CHART_LINE, MORE_FOR_THE_WORST = 9, 4
"""Rows of a line of panes side by side at least, and rows that the selected GPU's line takes from the others."""
FORCED = (6, 3)
"""Rows of the selected GPU's pane, and of the others, where panes are forced and scrolled."""
KEPT_WHEN_FORCED = 6
"""Rows that forced panes leave: their place, the host, the table's two heads and two processes."""
LEAST_PANE_WIDTH = 96
"""Cells of a pane; on a narrower screen the GPUs are a list."""
LEAST_FULL, LEAST_BESIDE = 9, 3
"""Rows of a pane with its words below the chart, and beside it."""
TALLEST, TALLEST_FULL = 14, 24
"""A chart with its words beside it grows no higher, nor do panes with charts of their whole width beyond this or
three fifths of the room."""
MOST_PROCESSES, LEAST_PROCESSES, LEAST_OF_FEW = 24, 8, 5
"""Process rows that are kept at most, and on a low screen at least; the host's lanes of one or two GPUs are worth more
than the sixth process."""
LEAST_LISTED = 8
"""Fewer GPUs than this keep their panes even if that leaves less room for processes."""
KEPT_IN_THE_PAST = 7
"""Rows of the process table beside the time line of the past: title, heads and five processes."""
WORDS_ROWS, TABLE_ROWS = 3, 5
"""Rows left below a list of GPUs: a title and two rows of words; the process table's heads and three rows."""


def panes_per_line(width: int, gpus: int) -> int:
    """Return how many panes a line has.

    As many as divide the GPUs evenly, so that the grid has no hole.
    """
    if width < 2 * LEAST_PANE_WIDTH + 8:
        return 1
    most = max(1, min(width // LEAST_PANE_WIDTH, 3, gpus))
    return next((columns for columns in range(most, 1, -1) if gpus % columns == 0), most)


def pane_heights(gpus: int, selected: int, width: int, free: int) -> list[int]:
    """Return the rows of each line of panes in ``free`` rows.

    A GPU of one row is a line of a list, whose heads take one row more. Empty where not even the least fits.
    """
    if width < LEAST_PANE_WIDTH:
        return []
    per_line = panes_per_line(width, gpus)
    lines = -(-gpus // per_line)
    rows, more = divmod(free - kept_processes(free // 2, gpus), lines)
    if gpus <= 2 and rows < LEAST_WITH_LANES <= (free - LEAST_OF_FEW) // lines:
        rows, more = LEAST_WITH_LANES, 0
    if rows >= LEAST_FULL and (gpus <= 2 or per_line > 1):
        most = max(TALLEST_FULL, free * 3 // 5)
        # What the lines cannot share evenly goes to the first ones, so that no row stays empty.
        shared = [min(most, rows + (line < more)) for line in range(lines)]
        return _with_tallest(shared, selected // per_line, most) if per_line > 1 else shared
    if per_line > 1:
        return [rows + (line < more) for line in range(lines)] if rows >= LEAST_BESIDE else []
    for tall, other, process_rows in STACKED:
        room = free - (gpus - 1) * other - (other == 1 and gpus > 1)
        if tall <= room - process_rows:
            tall = max(tall, min(room - kept_processes(free, gpus), TALLEST))
            return [tall if i == selected else other for i in range(gpus)]
    return []


def _with_tallest(heights: list[int], tallest: int, most: int) -> list[int]:
    """Return the heights with more rows for one line, taken from the others as far as they can."""
    left = [min(MORE_FOR_THE_WORST, max(0, rows - LEAST_CHART_LINE)) for rows in heights]
    wanted = min(MORE_FOR_THE_WORST, most - heights[tallest])
    changed = list(heights)
    for _ in range(max(0, wanted)):
        giver = max(
            (line for line in range(len(heights)) if line != tallest and left[line] > 0),
            key=lambda line: (changed[line], line),
            default=None,
        )
        if giver is None:
            break
        changed[giver] -= 1
        left[giver] -= 1
        changed[tallest] += 1
    return changed


def forced_panes(gpus: int, selected: int, free: int) -> tuple[int, list[int]]:
    """Return the first GPU of a scrolled column of panes, and the rows of each pane from there.

    The selected one is among them; all are, where there is room.
    """
    tall, other = FORCED
    room = free - KEPT_WHEN_FORCED
    tall = max(other, min(tall, room))
    shown = max(1, min(gpus, 1 + (room - tall) // other))
    first = max(0, min(selected - shown // 2, gpus - shown))
    return first, [tall if i == selected else other for i in range(first, first + shown)]


def chart_below_list(gpus: int, free: int, room: int) -> int:
    """Return the height of the selected GPU's chart below a list of GPUs.

    Below 1 where there is no room for one.
    """
    return min(room - (LEAST_OF_FEW if gpus <= 2 else kept_processes(free, gpus)), TALLEST)


def kept_processes(free: int, gpus: int) -> int:
    """Return the process rows kept below the GPUs.

    A third of the room, and no more than so many GPUs need as a rule. Whatever runs, so that nothing moves when a
    job starts.
    """
    return max(
        LEAST_OF_FEW if gpus <= 2 else LEAST_PROCESSES, min(free // 3, MOST_PROCESSES, 4 + 2 * gpus)
    )


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
