"""The fault matrix, one row a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.row import Row, World
from tests.faults.table import rows
from tests.nvml.stand_in import Scenario


def _marks(row: Row) -> list[pytest.MarkDecorator]:
    slow = [pytest.mark.slow] if row.slow else []
    # Shares of single seconds, of a process that others would keep from its core.
    return [*slow, pytest.mark.alone] if row.name.endswith(": what is measured") else slow


@pytest.mark.nvml
@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=_marks(row), id=row.name) for row in rows()],
)
def test_the_promise_is_kept(row: Row, tmp_path: Path, nvml_scenario: Callable[..., Scenario]) -> None:
    row.proof(row, World(tmp_path, nvml_scenario))


def test_rows_have_names_of_their_own() -> None:
    names = [row.name for row in rows()]
    assert len(set(names)) == len(names)
