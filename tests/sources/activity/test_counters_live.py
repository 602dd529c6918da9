"""The hardware counters under a running program: NVML and the performance libraries stand in, the rest is real."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from gputop.model.snapshot import GpuStatic
from gputop.sources.activity.counters.counters_client import CountersClient as Client
from gputop.sources.activity.fallback_chain import MeasuredActivity, SmReadFailed
from tests.nvml.stand_in import Scenario
from tests.nvperf.stand_in import Counters
from tests.support.pace import slowness
from tests.support.sm_words import sm_words
from tests.support.sources_reader import NOBODY, running

pytestmark = [pytest.mark.nvml, pytest.mark.slow]
MOST_SHARE_PCT = 0.1
"""Of a core, for asking eight GPUs once a second."""
A100 = "NVIDIA A100-SXM4-80GB"
MakeScenario = Callable[..., Scenario]


def scenario_of(make: MakeScenario, model: str = A100) -> Scenario:
    scenario = make(gpus=1, model=model)
    scenario.gpus[0].pci = "00000000:01:00.0"
    return scenario


def test_counters_come_and_go_under_a_running_screen(nvml_scenario: MakeScenario, counters: Counters) -> None:
    with running(scenario_of(nvml_scenario), dcgm_url=NOBODY, perf=True, perf_lib=str(counters.libraries)) as program:
        measured = program.until("counters", 41.2)
        assert "SM measured · counters (exclusive)" in measured["header"]
        counters.write(begin=17, trigger=17)
        left = program.until("bound", None)
        assert "only administrators" in left["reason"]
    assert not counters.is_locked()


def test_the_source_costs_next_to_nothing_and_the_helper_says_what_it_takes(counters: Counters) -> None:
    counters.write(gpus=8)
    gpus = [
        GpuStatic(i, f"GPU-{i}", "NVIDIA A10", pci_bus_id=f"00000000:0{i + 1}:00.0", driver="580.65") for i in range(8)
    ]
    reader = Client(1.0, str(counters.libraries))

    def ask(seconds: float) -> float:
        """Which share of the questions had an answer."""
        values, asked, until = 0, 0, time.monotonic() + seconds
        while time.monotonic() < until:
            for gpu in gpus:
                asked += 1
                with contextlib.suppress(SmReadFailed):
                    values += isinstance(reader.activity(gpu, time.monotonic()), MeasuredActivity)
            time.sleep(1.0)
        return values / asked

    try:
        deadline = time.monotonic() + 60.0
        while ask(0.5) < 1.0:
            assert time.monotonic() < deadline
        answered, shares = [], []
        # The least of three: what else this process does on a busy machine counts as well.
        for _ in range(3):
            begun, used = time.monotonic(), time.process_time()
            answered.append(ask(4.0))
            shares.append(100.0 * (time.process_time() - used) / (time.monotonic() - begun))
        said = reader.cost
    finally:
        reader.stop()
    slow = slowness()
    assert sum(answered) / len(answered) >= 0.8, "every GPU was measured all the time"
    assert said is not None and 0.0 <= said.cpu_pct < 20.0 * slow and said.rss > 2**20
    helper = f"its helper {said.cpu_pct:.2f} % and {said.rss / 2**20:.0f} MiB"
    print(f"for 8 GPUs the source takes {min(shares):.3f} % of a core, {helper}")
    assert min(shares) <= MOST_SHARE_PCT * slow
    assert reader.cost is None, "a helper that has ended takes nothing"


def test_counters_that_lie_end_the_source(nvml_scenario: MakeScenario, counters: Counters) -> None:
    scenario = scenario_of(nvml_scenario)
    scenario.gpus[0].values["util"] = 10
    counters.write(sm=90)
    with running(scenario, dcgm_url=NOBODY, perf=True, perf_lib=str(counters.libraries)) as program:
        program.until("counters", 90)
        left = program.until("bound", None)
        assert "contradict NVML (90 % of the chip at 10 % utilisation)" in left["reason"]


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


def test_once_waits_for_the_first_value_and_leaves_nothing(nvml_scenario: MakeScenario, counters: Counters) -> None:
    gpu = once(scenario_of(nvml_scenario), "--perf", "--perf-lib", str(counters.libraries))["gpus"][0]
    assert (gpu["sm_source"], gpu["sm_active_pct"]) == ("counters", 41.2)
    assert not counters.is_locked()


@pytest.mark.parametrize(
    ("choice", "source"), [("auto", "gpm"), ("gpm", "gpm"), ("counters", "counters"), ("bound", "bound")]
)
def test_a_source_can_be_forced(nvml_scenario: MakeScenario, counters: Counters, choice: str, source: str) -> None:
    scenario = scenario_of(nvml_scenario, "NVIDIA H100 80GB HBM3")
    gpu = once(scenario, "--sm-source", choice, "--perf-lib", str(counters.libraries))["gpus"][0]
    assert gpu["sm_source"] == source
    if choice == "bound":
        assert sm_words(gpu) == "not asked for: --sm-source bound"
