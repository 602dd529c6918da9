"""Sources that come and go under a running program: library, exporter and dcgmi stand in, everything else is real."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tests.dcgm.exporter import exporting
from tests.nvml.stand_in import Scenario
from tests.support.sources_reader import GPM, SCRAPED, running, sm_active

pytestmark = pytest.mark.nvml
TIMED_OUT = 10
MakeScenario = Callable[..., Scenario]


def assert_one_line_each(frame: dict[str, Any], *allowed: float) -> None:
    """No column is of two sources, and no column of one stands beside a column of another."""
    for columns in frame["columns"]:
        rounded = [None if value is None else min(allowed, key=lambda known: abs(known - value)) for value in columns]
        for value, known in zip(columns, rounded, strict=True):
            assert value is None or abs(value - (known or 0.0)) < 0.5, value
        beside = [pair for pair in itertools.pairwise(rounded) if None not in pair and pair[0] != pair[1]]
        assert beside == []


@pytest.mark.slow
def test_each_change_between_gpm_exporter_and_bound_breaks_and_marks_the_line(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(1)

    def gpm_fails() -> None:
        scenario.error("nvmlGpmSampleGet", TIMED_OUT)
        scenario.write()

    def gpm_works() -> None:
        scenario.clear_trouble()
        scenario.write()

    with exporting(sm_active(SCRAPED)) as exporter, running(scenario, dcgm_url=exporter.url) as program:
        assert program.until("gpm", GPM)["marks"] == []
        assert exporter.asked == 0, "an exporter is not asked while GPM works"
        gpm_fails()
        first = program.until("dcgm-exporter", SCRAPED)
        assert "DCGM" in first["header"]
        exporter.status = 500
        bound = program.until("bound", None)
        assert "answers 500" in bound["reason"]
        assert "SM not measured" in bound["header"]
        exporter.status = 200
        program.until("dcgm-exporter", SCRAPED)
        gpm_works()
        program.until("gpm", GPM)
        exporter.status = 500
        for _ in range(8):  # until its last values are no longer believed
            program.until("gpm", GPM)
        gpm_fails()
        program.until("bound", None)
        gpm_works()
        program.until("gpm", GPM)
        last = program.until("gpm", GPM)
    # Both ways through the pairs. Holes of failing ticks, and the look for an exporter, are no changes.
    steps = [text.removeprefix("SM source: ").split(" → ") for text in last["marks"]]
    assert all(before[1] == after[0] for before, after in itertools.pairwise(steps))
    pairs = {tuple(step) for step in steps}
    assert steps[0] == ["gpm", "dcgm-exporter"]
    assert {("gpm", "bound"), ("bound", "gpm"), ("dcgm-exporter", "gpm")} <= pairs
    assert {("dcgm-exporter", "bound"), ("bound", "dcgm-exporter")} <= pairs
    assert len(steps) <= 7, steps
    assert last["marked"]
    assert_one_line_each(last, GPM, SCRAPED)
