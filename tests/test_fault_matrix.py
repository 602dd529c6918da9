"""The fault matrix, one row a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import changes, driver, hangs, machine, surroundings
from tests.faults.row import Row, World
from tests.nvml.stand_in import Scenario

ROWS = [row for part in (driver, hangs, changes, machine, surroundings) for row in part.rows()]


@pytest.mark.nvml
@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=[pytest.mark.slow] if row.slow else [], id=row.name) for row in ROWS],
)
def test_the_promise_is_kept(
    row: Row, tmp_path: Path, nvml_scenario: Callable[..., Scenario]
) -> None:
    row.proof(row, World(tmp_path, nvml_scenario))
