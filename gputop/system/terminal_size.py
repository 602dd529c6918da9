"""The size of the terminal, within limits.

A window of 65,535 columns took 298 MB to draw, and COLUMNS can be any number.
"""

from __future__ import annotations

import os
import shutil

MOST_COLUMNS, MOST_ROWS = 500, 200
"""No monitor shows more in a readable size [judged]: an 8K screen has 480 columns of 16 pixels."""


def window_size(descriptor: int) -> tuple[int, int]:
    """Return columns and rows of a terminal as the kernel has them, 0 where it has none.

    COLUMNS and LINES, exported, stay as they are when the window is resized. Raises OSError.
    """
    columns, rows = os.get_terminal_size(descriptor)
    return min(columns, MOST_COLUMNS), min(rows, MOST_ROWS)


def output_width(usual: int) -> int:
    """Return the columns of printed text: COLUMNS, else the terminal's, else ``usual``."""
    return min(shutil.get_terminal_size((usual, 24)).columns, MOST_COLUMNS)
