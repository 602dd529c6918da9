"""An exporter as the source in use: partial, of MIG instances, late, silent, hostile."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.dcgm.exporter import TEXTS, SmallExporter, exporting, row
from tests.nvml.stand_in import Failure, Scenario, split, uuid_of
from tests.support.local_reader import read
from tests.support.sm_words import sm_words

pytestmark = pytest.mark.nvml
A100, SCRAPED = "NVIDIA A100-SXM4-80GB", 60.0
FIX = "uncomment DCGM_FI_PROF_SM_ACTIVE in the counters file of dcgm-exporter and restart it"
MakeScenario = Callable[..., Scenario]


def sm_active(value: float) -> str:
    return row("PROF_SM_ACTIVE", value / 100.0, uuid_of(0))


def counters(**values: float) -> str:
    return "".join(row(f"PROF_{name}", value, uuid_of(0)) for name, value in values.items())


@pytest.mark.slow
def test_an_exporter_without_sm_active_gives_the_rest_and_the_line_that_mends_it(
    nvml_scenario: MakeScenario,
) -> None:
    text = counters(GR_ENGINE_ACTIVE=0.9, PIPE_TENSOR_ACTIVE=0.3, DRAM_ACTIVE=0.4)
    with exporting(text) as exporter:
        (gpu,) = read(nvml_scenario(1, A100), "once", dcgm_url=exporter.url)[0]["gpus"]
        report = read(nvml_scenario(1, A100), "doctor", dcgm_url=exporter.url)[0]
        printed = command(nvml_scenario(1, A100), exporter, "once")
        data = json.loads(command(nvml_scenario(1, A100), exporter, "once", "--json"))["gpus"][0]
    assert (gpu["sm_source"], gpu["sm_active_pct"]) == ("dcgm-exporter", None)
    assert (gpu["tensor_active_pct"], gpu["dram_active_pct"], gpu["graphics_active_pct"]) == (
        30.0,
        40.0,
        90.0,
    )
    assert sm_words(gpu) == f"dcgm-exporter at {exporter.place} exports no SM activity; {FIX}"
    assert gpu["unavailable"]["sm_active_pct"] == sm_words(gpu)
    assert (gpu["sm_low_pct"], gpu["sm_high_pct"]) == (pytest.approx(90 / 108), 90.0)
    keys = ("sm_source", "sm_active_pct", "dram_active_pct")
    assert sm_words(data) == sm_words(gpu) and [data[key] for key in keys] == [
        gpu[key] for key in keys
    ]
    gpm, exporter_row, *_ = report["gpus"][0]["rungs"]
    assert gpm["reason"] == "it gave nothing, so another source is in use"
    assert (exporter_row["ok"], exporter_row["fix"]) == (False, FIX)
    assert "only TENSOR, DRAM, GR" in exporter_row["reason"]
    assert "SM n/a" in printed


def command(scenario: Scenario, exporter: SmallExporter, *arguments: str) -> str:
    scenario.write()
    done = subprocess.run(
        [sys.executable, "-m", "gputop", *arguments, "--dcgm-url", exporter.url],
        env={**scenario.environment(), "COLUMNS": "120"}, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout


def test_mig_instances_are_served_by_their_numbers_and_never_by_the_whole_gpu(
    nvml_scenario: MakeScenario,
) -> None:
    scenario = nvml_scenario(2, A100)
    split(scenario.gpus[0], 0, 3)
    with exporting((TEXTS / "exporter_4_mig.txt").read_text()) as exporter:
        gpus = read(scenario, "once", dcgm_url=exporter.url)[0]["gpus"]
    told = {gpu["static"]["mig_instance"] or gpu["static"]["index"]: gpu for gpu in gpus}
    assert {name: (gpu["sm_source"], gpu["sm_active_pct"]) for name, gpu in told.items()} == {
        0: ("none", None),
        1: ("dcgm-exporter", 42.0),
        "7/0": ("dcgm-exporter", 87.0),
        "8/0": ("dcgm-exporter", 0.0),
        "9/0": ("none", None),
    }
    assert "has no counters of this MIG instance" in sm_words(told["9/0"])


@pytest.mark.slow
def test_an_answer_that_comes_after_the_last_read_is_waited_for_once(
    nvml_scenario: MakeScenario,
) -> None:
    """GPM that claims support but gives no number is known at the second read only: the exporter is asked then."""
    scenario = nvml_scenario(1)
    scenario.gpus[0].gpm[2] = Failure(3)
    with exporting(sm_active(SCRAPED)) as exporter:
        (gpu,) = read(scenario, "once", dcgm_url=exporter.url)[0]["gpus"]
    assert (gpu["sm_source"], gpu["sm_active_pct"]) == ("dcgm-exporter", SCRAPED)


def test_an_exporter_that_does_not_answer_holds_nobody_up(nvml_scenario: MakeScenario) -> None:
    with exporting(sm_active(SCRAPED)) as exporter:
        exporter.delay_s = 60.0
        snapshot = read(nvml_scenario(1, A100), "once", dcgm_url=exporter.url)[0]
    assert snapshot["after"] < 10.0
    assert snapshot["gpus"][0]["sm_source"] == "bound"
    assert "timed out" in sm_words(snapshot["gpus"][0])


def test_once_says_that_a_stale_exporter_contradicts_utilisation(
    nvml_scenario: MakeScenario,
) -> None:
    scenario = nvml_scenario(1, A100)
    scenario.gpus[0].set(util=0, power_w=62)
    with exporting(sm_active(88.0)) as exporter:
        printed = command(scenario, exporter, "once")
        (gpu,) = json.loads(command(scenario, exporter, "once", "--json"))["gpus"]
    assert "UTIL   0  SM n/a" in printed and "contradicts utilisation 0 %" in printed
    assert gpu["sm_active_pct"] is None
    assert "SM activity 88 % of DCGM contradicts" in gpu["unavailable"]["sm_active_pct"]
