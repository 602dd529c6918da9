"""Tables that are written as text, where a row of code would say no more. Standard library only."""

from __future__ import annotations

import re


def table_rows(table: str) -> list[list[str]]:
    """The rows of a table: cells at least two blanks apart; a line that is indented further goes on with the last."""
    lines = table.strip("\n").rstrip().split("\n")
    indent = len(lines[0]) - len(lines[0].lstrip())
    rows: list[list[str]] = []
    for line in lines:
        if line[indent:].startswith(" "):
            rows[-1][-1] += f" {line.strip()}"
        else:
            rows.append(re.split("  +", line.strip()))
    return rows
