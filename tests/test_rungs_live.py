"""Rungs that come and go under a running program: library, exporter and dcgmi stand in, everything else is real."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gputop.sources.activity.dcgm_exporter import Exporter
from gputop.sources.activity.ladder import Waiting
from tests.dcgm.exporter import TEXTS, SmallExporter, exporting, row
from tests.nvml.stand_in import Failure, Scenario, split, uuid_of

pytestmark = pytest.mark.nvml

A100 = "NVIDIA A100-SXM4-80GB"
TIMED_OUT = 10
GPM, SCRAPED, DMON = 25.0, 60.0, 37.5
"""The SM activity of each source, so that a value tells where it is from."""
LIMITS = {"PROBE_AGAIN_S": 1.0, "CLOSEST_S": 0.1, "LEAST_PATIENCE_S": 1.0, "FARTHEST_S": 0.3, "LONGEST_BACK_OFF_S": 0.2}
FIX = "uncomment DCGM_FI_PROF_SM_ACTIVE in the counters file of dcgm-exporter and restart it"
NOBODY = "http://127.0.0.1:1/metrics"
MakeScenario = Callable[..., Scenario]


class Running:
    """A program that prints a line a frame."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self._program = program
        self.frames: list[dict[str, Any]] = []

    def until(self, source: str, sm: float | None) -> dict[str, Any]:
        """The first frame with a source and its value; at most 200 frames on."""
        assert self._program.stdout is not None
        for _ in range(200):
            self.frames.append(json.loads(self._program.stdout.readline()))
            last = self.frames[-1]
            if last["source"] == source and (last["sm"] is None) == (sm is None):
                assert sm is None or abs(last["sm"] - sm) < 0.5, last
                return last
        raise AssertionError([(frame["source"], frame["sm"], frame["reason"]) for frame in self.frames[-20:]])


@contextmanager
def running(scenario: Scenario, **options: Any) -> Iterator[Running]:
    scenario.write()
    environment = {**scenario.environment(), "PATH": f"{TEXTS}:{os.environ['PATH']}"}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.rungs_reader", json.dumps({**options, "limits": LIMITS})],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        yield Running(program)
        assert program.stdin is not None
        program.stdin.close()
        assert program.stdout is not None
        program.stdout.read()
        assert program.wait(10.0) == 0


def sm_active(value: float) -> str:
    return row("PROF_SM_ACTIVE", value / 100.0, uuid_of(0))


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


@pytest.mark.slow
def test_dcgmi_takes_over_from_an_exporter_and_back(
    nvml_scenario: MakeScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DCGMI_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("DCGMI_DOES", "rows")
    scenario = nvml_scenario(1, A100)
    with exporting(sm_active(SCRAPED)) as exporter, running(scenario, dcgm_url=exporter.url, dcgmi=True) as program:
        program.until("dcgm-exporter", SCRAPED)
        assert not (tmp_path / "log").exists(), "dcgmi is not run while an exporter measures"
        exporter.status = 503
        program.until("dcgmi", DMON)
        exporter.status = 200
        program.until("dcgm-exporter", SCRAPED)
        last = program.until("dcgm-exporter", SCRAPED)
    assert "SM source: dcgmi → dcgm-exporter" in last["marks"]
    assert last["marked"]
    assert_one_line_each(last, DMON, SCRAPED)


@pytest.mark.slow
def test_dcgmi_takes_over_from_gpm_and_leaves_the_bound(
    nvml_scenario: MakeScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DCGMI_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("DCGMI_DOES", "brief")
    scenario = nvml_scenario(1)
    with running(scenario, dcgm_url=NOBODY, dcgmi=True) as program:
        program.until("gpm", GPM)
        scenario.error("nvmlGpmSampleGet", TIMED_OUT)
        scenario.write()
        program.until("dcgmi", DMON)
        assert "dmon ended" in program.until("bound", None)["reason"]
        scenario.clear_trouble()
        scenario.write()
        program.until("gpm", GPM)
        last = program.until("gpm", GPM)
    steps = [text.removeprefix("SM source: ") for text in last["marks"]]
    assert steps[:2] == ["gpm → dcgmi", "dcgmi → bound"]
    assert steps[-1] in ("bound → gpm", "dcgmi → gpm")
    assert last["marked"]
    assert_one_line_each(last, GPM, DMON)


def read(scenario: Scenario, mode: str, **options: Any) -> Any:
    scenario.write()
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.local_reader", mode, json.dumps(options)],
        env=scenario.environment(), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return json.loads(done.stdout.splitlines()[0])


def counters(**values: float) -> str:
    return "".join(row(f"PROF_{name}", value, uuid_of(0)) for name, value in values.items())


@pytest.mark.slow
def test_an_exporter_without_sm_active_gives_the_rest_and_the_line_that_mends_it(nvml_scenario: MakeScenario) -> None:
    text = counters(GR_ENGINE_ACTIVE=0.9, PIPE_TENSOR_ACTIVE=0.3, DRAM_ACTIVE=0.4)
    with exporting(text) as exporter:
        (gpu,) = read(nvml_scenario(1, A100), "once", dcgm_url=exporter.url)["gpus"]
        report = read(nvml_scenario(1, A100), "doctor", dcgm_url=exporter.url)
        printed = command(nvml_scenario(1, A100), exporter, "once")
        data = json.loads(command(nvml_scenario(1, A100), exporter, "once", "--json"))["gpus"][0]
    assert (gpu["sm_source"], gpu["sm_active_pct"]) == ("dcgm-exporter", None)
    assert (gpu["tensor_active_pct"], gpu["dram_active_pct"], gpu["graphics_active_pct"]) == (30.0, 40.0, 90.0)
    assert gpu["sm_reason"] == f"dcgm-exporter at {exporter.place} exports no SM activity; {FIX}"
    assert gpu["unavailable"]["sm_active_pct"] == gpu["sm_reason"]
    assert (gpu["sm_low_pct"], gpu["sm_high_pct"]) == (pytest.approx(90 / 108), 90.0)
    assert {key: data[key] for key in ("sm_source", "sm_reason", "sm_active_pct", "dram_active_pct")} == {
        key: gpu[key] for key in ("sm_source", "sm_reason", "sm_active_pct", "dram_active_pct")
    }
    gpm, rung, *_ = report["gpus"][0]["rungs"]
    assert gpm["reason"] == "it gave nothing, so another source is in use"
    assert (rung["ok"], rung["fix"]) == (False, FIX)
    assert "only TENSOR, DRAM, GR" in rung["reason"]
    assert "not measured · DCGM lacks SM_ACTIVE" in printed
    assert "≤ 90 (not measured)" in printed
    assert FIX in " ".join(printed.split())


def command(scenario: Scenario, exporter: SmallExporter, *arguments: str) -> str:
    scenario.write()
    done = subprocess.run(
        [sys.executable, "-m", "gputop", *arguments, "--dcgm-url", exporter.url],
        env={**scenario.environment(), "COLUMNS": "120"}, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout


def test_mig_instances_are_served_by_their_numbers_and_never_by_the_whole_gpu(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(2, A100)
    split(scenario.gpus[0], 0, 3)
    with exporting((TEXTS / "exporter_4_mig.txt").read_text()) as exporter:
        gpus = read(scenario, "once", dcgm_url=exporter.url)["gpus"]
        report = read(scenario, "doctor", dcgm_url=exporter.url, dcgmi=True)["gpus"]
    told = {gpu["static"]["mig_instance"] or gpu["static"]["index"]: gpu for gpu in gpus}
    assert {name: (gpu["sm_source"], gpu["sm_active_pct"]) for name, gpu in told.items()} == {
        0: ("none", None),
        1: ("dcgm-exporter", 42.0),
        "7/0": ("dcgm-exporter", 87.0),
        "8/0": ("dcgm-exporter", 0.0),
        "9/0": ("none", None),
    }
    assert "has no counters of this MIG instance" in told["9/0"]["sm_reason"]
    parent = {rung["rung"]: rung["reason"] for rung in report[0]["rungs"]}
    assert parent["gpm"] == parent["dcgm-exporter"] == parent["dcgmi"] == "split into MIG instances: see each instance"
    instance = next(gpu for gpu in report if gpu["sm_active_pct"] == 87.0)
    rungs = {rung["rung"]: rung for rung in instance["rungs"]}
    assert rungs["dcgm-exporter"]["ok"]
    assert not rungs["dcgmi"]["ok"]


@pytest.mark.slow
def test_rows_of_the_whole_gpu_are_not_an_instances(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(1, A100)
    split(scenario.gpus[0], 0, 1)
    with exporting(sm_active(SCRAPED)) as exporter:
        parent, instance = read(scenario, "once", dcgm_url=exporter.url)["gpus"]
    assert parent["sm_active_pct"] is None and instance["sm_active_pct"] is None
    assert "let dcgm-exporter export MIG instances" in instance["sm_reason"]


@pytest.mark.slow
def test_an_answer_that_takes_a_moment_is_waited_for_once(nvml_scenario: MakeScenario) -> None:
    with exporting(sm_active(SCRAPED)) as exporter:
        exporter.delay_s = 0.6
        (gpu,) = read(nvml_scenario(1, A100), "once", dcgm_url=exporter.url)["gpus"]
    assert (gpu["sm_source"], gpu["sm_active_pct"]) == ("dcgm-exporter", SCRAPED)


@pytest.mark.slow
def test_an_answer_that_comes_after_the_last_read_is_waited_for_once(nvml_scenario: MakeScenario) -> None:
    """GPM that claims support but gives no number is known at the second read only: the exporter is asked then."""
    scenario = nvml_scenario(1)
    scenario.gpus[0].gpm[2] = Failure(3)
    with exporting(sm_active(SCRAPED)) as exporter:
        (gpu,) = read(scenario, "once", dcgm_url=exporter.url)["gpus"]
    assert (gpu["sm_source"], gpu["sm_active_pct"]) == ("dcgm-exporter", SCRAPED)


def test_an_exporter_that_does_not_answer_holds_nobody_up(nvml_scenario: MakeScenario) -> None:
    with exporting(sm_active(SCRAPED)) as exporter:
        exporter.delay_s = 60.0
        snapshot = read(nvml_scenario(1, A100), "once", dcgm_url=exporter.url)
    assert snapshot["after"] < 10.0
    assert snapshot["gpus"][0]["sm_source"] == "bound"
    assert "timed out" in snapshot["gpus"][0]["sm_reason"]


def test_an_exporter_that_nobody_needs_any_more_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputop.sources.activity.dcgm_exporter.UNUSED_S", 0.1)
    monkeypatch.setattr("gputop.sources.activity.dcgm_exporter.CLOSEST_S", 0.05)
    with exporting(sm_active(SCRAPED)) as small:
        exporter, others = Exporter(small.url), set(threading.enumerate())
        for _ in range(2):
            while isinstance(got := exporter.activity((uuid_of(0), None), time.monotonic()), Waiting):
                time.sleep(0.01)
            assert got.values["sm_active_pct"] == SCRAPED
            deadline = time.monotonic() + 60.0
            while any(t.name == "gputop-dcgm-exporter" for t in set(threading.enumerate()) - others):
                assert time.monotonic() < deadline
                time.sleep(0.01)
        exporter.stop()


@pytest.mark.slow
def test_nothing_that_an_exporter_says_reaches_the_terminal_as_it_is(nvml_scenario: MakeScenario) -> None:
    hostile = sm_active(SCRAPED).replace('Hostname="n"', 'Hostname="\x1b]0;owned\x07\x1b[2J"')
    with exporting(hostile + "\x1b[2J\n") as exporter:
        printed = command(nvml_scenario(1, A100), exporter, "once")
        exporter.status = 500
        refused = command(nvml_scenario(1, A100), exporter, "once")
    for text in (printed, refused):
        assert "\x1b" not in text and "\x07" not in text and "owned" not in text
    assert "answers 500" in " ".join(refused.split())
