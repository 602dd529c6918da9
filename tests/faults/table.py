"""The whole fault matrix, as rows and as a table in Markdown."""

from __future__ import annotations

from tests.faults import changes, driver, hangs, machine, surroundings, terminals, viewers
from tests.faults.row import Row


def rows() -> list[Row]:
    """Every row, in the order of the table."""
    parts = (driver, hangs, changes, machine, surroundings, terminals, viewers)
    return [row for part in parts for row in part.rows()]


def markdown() -> str:
    """The matrix for readers."""
    lines = ["| fault | what happens | what you see | what goes on | exit | terminal |", "|---|---|---|---|---|---|"]
    for row in rows():
        status = "runs on" if row.status is None else str(row.status)
        cells = (row.name, row.happens, row.sees, row.goes_on, status, "restored" if row.terminal else "–")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
