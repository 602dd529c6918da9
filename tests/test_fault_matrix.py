"""The fault matrix, one row a test."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from gputop.output.reference.faults import HEAD
from tests.faults.row import Row, World
from tests.faults.table import cells, rows
from tests.nvml.stand_in import Scenario


@pytest.mark.nvml
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=[pytest.mark.slow] if row.slow else [], id=row.name)
        for row in rows()
        if not isinstance(row.proof, str)
    ],
)
def test_the_promise_is_kept(row: Row, tmp_path: Path, nvml_scenario: Callable[..., Scenario]) -> None:
    assert not isinstance(row.proof, str)
    row.proof(row, World(tmp_path, nvml_scenario))


@pytest.mark.parametrize("row", [row for row in rows() if isinstance(row.proof, str)], ids=lambda row: row.name)
def test_a_promise_that_is_proven_elsewhere_still_is(row: Row) -> None:
    assert isinstance(row.proof, str)
    file, _, name = row.proof.partition("::")
    module = import_module(file.removesuffix(".py").replace("/", "."))
    assert callable(getattr(module, name, None)), row.proof


def test_rows_have_names_of_their_own_and_no_empty_cells() -> None:
    names = [row.name for row in rows()]
    assert len(set(names)) == len(names)
    assert all(row.happens and row.sees and row.goes_on for row in rows())


def test_the_table_for_readers_has_a_line_for_each_row() -> None:
    lines = cells()
    assert [line[0] for line in lines] == [row.name for row in rows()]
    assert all(len(line) == len(HEAD) and all(line) for line in lines)
