"""Parse tables that are written as text.

Used where a row of code would say no more. Standard library only.
"""

from __future__ import annotations

import re


def table_rows(table: str) -> list[list[str]]:
    """Return the rows of a table.

    Cells are at least two blanks apart; a line that is indented further continues the last row.
    """
    lines = table.strip("\n").rstrip().split("\n")
    indent = len(lines[0]) - len(lines[0].lstrip())
    rows: list[list[str]] = []
    for line in lines:
        if line[indent:].startswith(" "):
            rows[-1][-1] += f" {line.strip()}"
        else:
            rows.append(re.split("  +", line.strip()))
    return rows
