"""Every row of the fault matrix."""

from __future__ import annotations

from tests.faults import changes, driver, hangs, machine, surroundings, terminals
from tests.faults.row import Row


def rows() -> list[Row]:
    """Return every row, in the order of the modules."""
    parts = (driver, hangs, changes, machine, surroundings, terminals)
    return [row for part in parts for row in part.rows()]
