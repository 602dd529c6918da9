"""gputop beside nvitop in one run on this machine: what docs/design/speed.md says must hold here too, roughly."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.bench import report
from tests.bench.measure import Effort, Results, measure
from tests.bench.programs import CHECKOUT, CannotInstall, gputop, nvitop
from tests.bench.report import (
    MOST_CALLS,
    MOST_TIMES,
    ONCE_WINDOW_MS,
    ONE_GPU_AT_REST,
    WRITTEN_ROWS,
    compared,
    regressions,
    written_ratios,
)
from tests.bench.workload import Load, machine

SHORT = Effort(
    starts=4, rounds=1, warm_up_s=2.0, rest_s=15.0, answers=1, held_s=2.0, onces=4, unattended=0
)
"""A minute and three quarters for both programs."""
AT_REST = Effort(
    starts=0, rounds=1, warm_up_s=3.0, rest_s=5.0, answers=1, held_s=0.1, onces=0, unattended=0
)
"""A minute and a quarter for both."""


def test_the_bounds_are_those_of_the_written_table_and_a_cost_beyond_them_is_named() -> None:
    wanted = written_ratios((CHECKOUT / "docs/design/speed.md").read_text(encoding="utf-8"))
    assert wanted.keys() == set(WRITTEN_ROWS.values())
    assert wanted["cpu_key_pct"] < 1.0 < wanted["pss_mb"]
    assert regressions(wanted, wanted) == []
    (said,) = regressions({**wanted, "pss_mb": MOST_TIMES * wanted["pss_mb"] + 0.01}, wanted)
    assert said.startswith("pss_mb: ") and "speed.md" in said
    assert compared({"once_ms": ONCE_WINDOW_MS + 100.0}, {"once_ms": 200.0}) == {"once_ms": 0.5}
    assert regressions({}, {"pss_mb": 1.0}) == ["pss_mb: not measured"]


def test_what_runs_without_a_screen_stands_beside_the_reference_at_rest() -> None:
    results = {
        "gputop": Results({"record_pct": [0.5], "cpu_rest_pct": [1.0]}), "nvitop": Results({"cpu_rest_pct": [2.0]}),
    }  # fmt: skip
    assert report.ratios(results) == {"gputop": {"record_pct": 0.25, "cpu_rest_pct": 0.5}}


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.nvml
def test_beside_nvitop_it_costs_what_is_written(tmp_path: Path) -> None:
    trouble = None if shutil.which("cc") else "no C compiler (cc) for the stand-in driver"
    try:
        reference = nvitop(tmp_path)
    except CannotInstall as reason:
        trouble = f"nvitop cannot be had from the package index: {reason}"
    if trouble is not None:
        if os.environ.get("GPUTOP_TEST_EVERYTHING"):
            pytest.fail(trouble)
        pytest.skip(f"not compared: {trouble}")
    wanted = written_ratios((CHECKOUT / "docs/design/speed.md").read_text(encoding="utf-8"))
    programs = [gputop(sys.executable, tmp_path), reference]
    # What disturbs one run, and hits nvitop less, does not come twice.
    for _ in range(2):
        tables: list[str] = []
        measured: dict[str, dict[str, float]] = {program.name: {} for program in programs}
        for load, effort in ((Load(), SHORT), (Load(1, 1), AT_REST)):
            with machine(load, tmp_path / "machine") as scenario:
                results = measure(programs, scenario, load.interval_s, effort, warm=effort is SHORT)
            tables.append(report.as_table(load, results))
            print(tables[-1])
            assert [result.trouble for result in results.values()] == [None, None]
            # A count, which no load of the machine changes.
            assert report.ratios(results)["gputop"]["nvml_calls_per_s"] <= MOST_CALLS, tables[-1]
            for name, result in results.items():
                medians = {key: figure.median for key, figure in result.figures().items()}
                measured[name] |= (
                    medians if effort is SHORT else {ONE_GPU_AT_REST: medians["cpu_rest_pct"]}
                )
        beyond = regressions(compared(*measured.values()), wanted)
        if not beyond:
            break
    assert beyond == [], "\n".join(tables)
