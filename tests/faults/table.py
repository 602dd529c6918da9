"""The whole fault matrix, as rows and as a table in Markdown."""

from __future__ import annotations

from tests.faults import changes, driver, hangs, machine, recordings, surroundings, terminals, viewers
from tests.faults.row import NOTHING, Row


def rows() -> list[Row]:
    """Every row, in the order of the table."""
    parts = (driver, hangs, changes, machine, surroundings, recordings, terminals, viewers)
    return [row for part in parts for row in part.rows()]


AS_USUAL = {"H100": "the usual values", " 7  H100": "the usual values", "15": "all of them", "GPU": "the usual screen"}
"""Texts that prove that the program goes on: the test looks for them, a reader is told what they stand for."""


def cells() -> list[list[str]]:
    """The matrix for readers: fault, what happens, what is seen, what goes on, exit status, terminal."""
    return [
        [
            row.name,
            row.happens,
            AS_USUAL.get(row.sees, row.sees),
            row.goes_on,
            "runs on" if row.status is None else str(row.status),
            "restored" if row.terminal else NOTHING,
        ]
        for row in rows()
    ]
