"""How the main screen's height is given out: a pure choice of rows, from roomy to tight.

What is left over goes to the charts in steps, so that they do not change their height with every process that comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

Density = Literal["standard", "compact"]

STACKED: Mapping[Density, tuple[tuple[int, int, int], ...]] = MappingProxyType({
    "standard": ((9, 9, 8), (6, 6, 8), (6, 3, 5), (6, 1, 3), (3, 1, 2)),
    "compact": ((6, 1, 3), (3, 1, 2)),
})  # fmt: skip
"""(rows of the selected GPU's block, rows of the others', process rows kept), tried in this order."""
GRID: Mapping[Density, tuple[int, ...]] = MappingProxyType({"standard": (9, 8, 7, 6, 5, 4, 3), "compact": (3,)})
"""Heights of panes side by side, tried in this order."""
GRID_PROCESSES = 8
"""Process rows kept below panes side by side."""
TALLEST = 14
"""No chart grows beyond this."""
PROCESS_STEP = 4


def density(name: str) -> Density:
    """The density of a setting; standard for every name but ``compact``."""
    return "compact" if name == "compact" else "standard"


def stacked(gpus: int, free: int, processes: int, density: Density) -> tuple[int, int] | None:
    """Rows of the selected GPU's block and of each other one in ``free`` rows; None where not even the least fits."""
    for tall, other, kept in STACKED[density]:
        if tall + (gpus - 1) * other <= free - min(processes, kept):
            if density == "compact":
                return tall, other
            return grown(tall, free - (gpus - 1) * other, processes), other
    return None


def side_by_side(lines: int, free: int, processes: int, density: Density) -> int:
    """Rows of each of so many lines of panes; 0 where not even the least fits."""
    room = free - min(processes, GRID_PROCESSES)
    return next((rows for rows in GRID[density] if lines * rows <= room), 0)


def grown(least: int, room: int, processes: int) -> int:
    """A block of at least ``least`` rows, taller where the processes leave more of ``room``."""
    kept = -(-max(1, processes) // PROCESS_STEP) * PROCESS_STEP
    return max(least, min(room - kept, TALLEST))
