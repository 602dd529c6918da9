"""The exporter as a program, against the stand-in driver: its numbers, its cost, and a driver that hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from gputop.model.prometheus_names import gpu_series
from tests.nvml.stand_in import Scenario
from tests.support.export_program import ROOT, exporting
from tests.support.exported import read, value

pytestmark = [pytest.mark.slow, pytest.mark.nvml]
MakeScenario = Callable[..., Scenario]


def _gputop(*words: str, environment: dict[str, str]) -> str:
    command = [sys.executable, "-m", "gputop", *words]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_numbers_are_those_of_once(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(gpus=8)
    for index, gpu in enumerate(scenario.gpus):
        gpu.set(util=10 + index, temp_c=50 + index, power_w=300 + index)
    scenario.write()
    told = json.loads(_gputop("once", "--json", environment=scenario.environment()))
    text = _gputop("export", "--once", environment=scenario.environment())
    page = read(text)
    assert value(page, "gputop_up") == 1.0
    compared = 0
    for gpu in told["gpus"]:
        for series in gpu_series():
            number = value(page, series.name, uuid=gpu["uuid"], **dict(series.labels))
            known = gpu[series.key]
            if series.key.startswith("sm_") and series.key.endswith(("_s", "low_pct", "high_pct")):
                continue
            assert (number is None) == (known is None), series
            if known is not None and series.key != "energy_j":
                assert number == pytest.approx(known / series.divisor, rel=1e-6, abs=1e-6), series
                compared += 1
    assert compared > 8 * 25
    assert len(text) <= 60_000


def test_a_scrape_while_the_driver_hangs_is_answered_at_once_and_says_stale(
    nvml_scenario: MakeScenario,
) -> None:
    scenario = nvml_scenario(gpus=2)
    scenario.write()
    with exporting("--interval", "0.25", environment=scenario.environment()) as program:
        before = program.until("gputop_up", 1.0)
        assert len(before["gputop_gpu_power_watts"]) == 2
        time.sleep(1.0)
        scenario.hang("*", 30.0)
        scenario.write()
        late = program.until("gputop_up", 0.0)
        assert "gputop_gpu_power_watts" not in late
        assert sum(late["gputop_gpu_state_seconds_total"].values()) > 0.0
        for _ in range(5):
            begun = time.monotonic()
            program.text()
            assert time.monotonic() - begun < 5.0, "a call of the driver hangs for half a minute"


def test_a_machine_without_a_driver_is_exported_as_down() -> None:
    environment = {key: text for key, text in os.environ.items() if key != "LD_LIBRARY_PATH"}
    with exporting(environment=environment) as program:
        assert value(program.page(), "gputop_up") == 0.0
        assert program.text("/healthz") == "ok\n"
