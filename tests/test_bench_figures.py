"""The benchmark's arithmetic, on figures that are known."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.bench import report, scaling, stage_report
from tests.bench.__main__ import arguments, loads, troubled
from tests.bench.line_fit import fit
from tests.bench.measure import OnceFailed, Results, Samples, turns
from tests.bench.programs import Program
from tests.bench.spread import Spread
from tests.bench.workload import Load


def results(**figures: float) -> Results:
    return Results({key: [value] for key, value in figures.items()})


def test_a_figure_is_the_median_of_its_samples_with_their_range() -> None:
    spread = Spread.of([30.0, 10.0, 11.0])
    assert spread == Spread(11.0, 10.0, 30.0, 3)
    assert spread.text(1) == "11.0 (10.0–30.0)"
    assert Spread.of([1234.5]).text(0) == "1,234"


def test_the_table_gives_ratios_of_medians_only_where_both_have_a_figure() -> None:
    measured = {"gputop": results(first_frame_ms=50, cpu_rest_pct=1), "nvitop": results(first_frame_ms=100)}
    assert report.ratios(measured) == {"gputop": {"first_frame_ms": 0.5}}
    frame, cpu = report.as_table(Load(), measured).splitlines()[2:4]
    assert frame.split()[-3:] == ["50", "100", "0.50"]
    assert cpu.split()[-2:] == ["1.00", "—"]
    data = report.as_data(Load(), measured)
    assert data["programs"]["gputop"]["ratio_to_nvitop"] == {"first_frame_ms": 0.5}
    assert data["programs"]["nvitop"]["figures"]["first_frame_ms"]["median"] == 100
    assert "ratio" not in report.as_table(Load(), {"gputop": results(cpu_rest_pct=1)})


A, B = Program("a", ("a",), (), ()), Program("b", ("b",), (), ())


def test_programs_take_turns_the_first_one_for_nothing_and_one_that_fails_leaves_the_others() -> None:
    order: list[str] = []

    def step(program: Program) -> Samples:
        order.append(program.name)
        if program is B and len(order) > 2:
            raise OnceFailed("b ended with 3")
        return {"x": [float(len(order))]}

    measured = {A: Results(), B: Results()}
    turns(measured, 2, step, warm=True)
    assert order == ["a", "b", "a", "b", "a"]
    assert measured[A] == Results({"x": [3.0, 5.0]})
    assert measured[B] == Results({}, "b ended with 3")
    assert "b failed: b ended with 3" in report.as_table(Load(), {p.name: r for p, r in measured.items()})
    data = {"comparison": [report.as_data(Load(), {"a": measured[A]})]}
    assert not troubled(data)
    data["comparison"].append(report.as_data(Load(), {"b": measured[B]}))
    assert troubled(data)


def test_the_plain_command_compares_every_load_at_every_latency() -> None:
    every = loads(arguments([]))
    assert [(load.gpus, load.processes, load.latency_ms) for load in every] == [
        (8, 64, 0), (8, 64, 1), (1, 2, 0), (1, 2, 1), (16, 512, 0), (16, 512, 1),
    ]  # fmt: skip
    assert loads(arguments(["--load", "4x1", "--latency-ms", "0.5", "--interval", "2"])) == [Load(4, 4, 0.5, 2.0)]


def test_a_straight_line_gives_its_slope_and_a_bend_is_told() -> None:
    line = fit([(x, 3 + 0.5 * x) for x in (1, 2, 4, 8, 16)])
    assert (line.slope, line.base, line.r2, line.late) == pytest.approx((0.5, 3.0, 1.0, 1.0))
    assert line.words("GPUs").startswith("a straight line: R² 1.000")
    bent = fit([(x, 0.1 * x * x) for x in (1, 2, 4, 8, 16)])
    assert not bent.straight
    assert bent.words("GPUs").startswith("NOT a straight line (its last stretch is 1.39 times as steep)")
    assert "at 8 GPUs" in bent.words("GPUs")
    assert bent.off_pct < -10


def test_a_cost_that_does_not_grow_is_a_straight_line() -> None:
    flat = fit([(1, 10.0), (2, 10.2), (4, 9.9), (8, 10.1)])
    assert flat.r2 is not None and flat.r2 < 0.5
    assert flat.straight
    level = fit([(1, 2.0), (2, 2.0)])
    assert (level.r2, level.late) == (None, None)


def test_no_bend_is_seen_in_what_differs_as_much_from_run_to_run() -> None:
    points = [(1, 10.0), (2, 12.0), (4, 11.0), (8, 14.0)]
    assert not fit(points).straight
    noisy = fit(points, noise=1.4)
    assert noisy.straight and noisy.noise_pct == pytest.approx(10)
    assert noisy.words("GPUs").endswith("runs differ by ±10.0 %")


def test_the_parts_of_the_cost_come_back_from_a_known_one() -> None:
    def cost(load: Load) -> Mapping[str, Spread]:
        ms = 1 + 0.2 * load.gpus + 0.01 * load.processes
        pct = (5 + ms / load.interval_s) / 10
        return {"cpu_ms_per_tick": Spread.of([ms]), "cpu_pct": Spread.of([pct])}

    costs = {load: cost(load) for load in scaling.LOADS}
    found = {(line.name, line.figure): line_fit.slope for line, line_fit in scaling.fits(costs)}
    assert found == pytest.approx(
        {
            ("one more GPU", "cpu_ms_per_tick"): 0.2,
            ("one more process", "cpu_ms_per_tick"): 0.01,
            ("one more tick a second", "cpu_pct"): 0.1 + 0.02 * 8 + 0.001 * 64,
        }
    )
    assert {load.gpus for load in scaling.LOADS} >= {1, 16}
    assert {load.processes for load in scaling.LOADS} >= {8, 1000}
    assert "NOT" not in scaling.as_table(costs)
    assert len(scaling.as_data(costs)["lines"]) == 3


STAGES = {"nvml": 1, "proc": 2, "host": 0.5, "schedule": 0.1, "looks": 0.3, "feed": 1.5, "diagnose": 0.6}
STAGES |= {"remember": 0.4, "paint": 1.2, "diff": 0.7, "write": 0.1}


def test_what_no_stage_accounts_for_is_what_remains_of_the_whole_program() -> None:
    rows = stage_report.completed(STAGES, 10.0)
    assert rows["derive"] == pytest.approx(0.9)
    # The host is part of the /proc thread: it is not counted twice.
    assert rows["stages"] == pytest.approx(1 + 2 + 0.1 + 0.3 + 1.5 + 0.4 + 1.2 + 0.7 + 0.1)
    assert rows["rest"] == pytest.approx(10 - rows["stages"])
    spreads = {key: Spread.of([value]) for key, value in rows.items()}
    assert stage_report.as_table({Load(): spreads}).count("\n") == len(rows)
