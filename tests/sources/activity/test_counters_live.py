"""The hardware counters under a running program: NVML and the performance libraries stand in, the rest is real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.nvml.stand_in import Scenario
from tests.nvperf.stand_in import Counters
from tests.support.sm_words import sm_words

pytestmark = [pytest.mark.nvml, pytest.mark.slow]
A100 = "NVIDIA A100-SXM4-80GB"
NOBODY = "http://127.0.0.1:1/metrics"
MakeScenario = Callable[..., Scenario]


def scenario_of(make: MakeScenario, model: str = A100) -> Scenario:
    scenario = make(gpus=1, model=model)
    scenario.gpus[0].pci = "00000000:01:00.0"
    return scenario


PATIENT = """
import sys
from gputop.cli import main
from gputop.sources import local
local.SM_READER_WAIT_S = 30.0
sys.exit(main())
"""
"""gputop, which otherwise waits 3 s for a helper: on a crowded machine its start takes longer."""


def once(scenario: Scenario, *options: str) -> dict[str, Any]:
    scenario.write()
    done = subprocess.run(
        [sys.executable, "-c", PATIENT, "once", "--json", "--dcgm-url", NOBODY, "--wait", "30", *options],
        env={**os.environ, **scenario.environment()}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data: dict[str, Any] = json.loads(done.stdout)
    return data


def test_once_waits_for_the_first_value_and_leaves_nothing(
    nvml_scenario: MakeScenario, counters: Counters
) -> None:
    gpu = once(scenario_of(nvml_scenario), "--perf", "--perf-lib", str(counters.libraries))["gpus"][
        0
    ]
    assert (gpu["sm_source"], gpu["sm_active_pct"]) == ("counters", 41.2)
    assert not counters.is_locked()


@pytest.mark.parametrize(
    ("choice", "source"), [("auto", "gpm"), ("counters", "counters"), ("bound", "bound")]
)
def test_a_source_can_be_forced(
    nvml_scenario: MakeScenario, counters: Counters, choice: str, source: str
) -> None:
    scenario = scenario_of(nvml_scenario, "NVIDIA H100 80GB HBM3")
    gpu = once(scenario, "--sm-source", choice, "--perf-lib", str(counters.libraries))["gpus"][0]
    assert gpu["sm_source"] == source
    if choice == "bound":
        assert sm_words(gpu) == "not asked for: --sm-source bound"
