"""The fault matrix, one row a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.output.reference_pages import FAULTS_HEAD
from tests.faults.row import Row, World
from tests.faults.table import cells, rows
from tests.nvml.stand_in import Scenario
from tests.support.pty_program import ROOT

LEFT_TO_SLOW = frozenset((
    "16 GPUs", "NVML cannot count its GPUs", "NVML error 15 at the start", "NVML error 15 from every call",
    *(f"NVML error {code} from one call of one GPU" for code in (3, 9, 15)), "NVML error 9 from every call",
    "GPM: above 100", "GPM: a refused metric", "GPM: zeros", "process list with sentinels", "a hang of one GPU: once",
    "a hang of the event set", "a hang of a process list", "a hang while GPUs are looked for again",
    "a hang while MIG instances are looked for", "a GPU appears", "a GPU appears that was not asked for",
    "the driver is reloaded with other GPUs", "the driver is upgraded under us", "MIG switched off while running",
    *(f"{stream} closed" for stream in ("stdin", "stdout", "stderr")),
    *(f"no terminal on {stream}" for stream in ("stdin", "stdout")), "a full disk behind stdout",
    "the reader goes away", "no HOME", "locale C: once", "root", "not root", "no configuration there",
    "a size without a unit", "a clock set back within a recording: `screenshot`", "an NVML error while a GPU is found",
    "a recording that cannot be written", "the terminal is gone", "a terminal of one cell",
))  # fmt: skip
"""Quick rows that the slow part alone has, since one like them is in the quick part."""


def _marks(row: Row) -> list[pytest.MarkDecorator]:
    slow = [pytest.mark.slow] if row.slow or row.name in LEFT_TO_SLOW else []
    # Shares of single seconds, of a process that others would keep from its core.
    return [*slow, pytest.mark.alone] if row.name.endswith(": what is measured") else slow


@pytest.mark.nvml
@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=_marks(row), id=row.name) for row in rows() if not isinstance(row.proof, str)],
)
def test_the_promise_is_kept(row: Row, tmp_path: Path, nvml_scenario: Callable[..., Scenario]) -> None:
    assert not isinstance(row.proof, str)
    row.proof(row, World(tmp_path, nvml_scenario))


def test_a_promise_that_is_proven_elsewhere_still_is() -> None:
    proofs = [row.proof for row in rows() if isinstance(row.proof, str)]
    assert len(proofs) > 50
    for proof in proofs:
        file, _, name = proof.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text("utf-8"), proof


def test_rows_have_names_of_their_own_and_no_empty_cells() -> None:
    names = [row.name for row in rows()]
    assert len(set(names)) == len(names)
    assert all(row.happens and row.sees and row.goes_on for row in rows())
    assert set(names) >= LEFT_TO_SLOW


def test_the_table_for_readers_has_a_line_for_each_row() -> None:
    lines = cells()
    assert [line[0] for line in lines] == [row.name for row in rows()]
    assert all(len(line) == len(FAULTS_HEAD) and all(line) for line in lines)
