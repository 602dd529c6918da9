"""Entering a watch waits for the first reading, and only where one can come."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gputop
from gputop.model.source import SourceError
from gputop.sources.simulation.simulated import SimulatedSource
from tests.nvml.stand_in import Scenario
from tests.support.watched import Scripted
from tests.support.watching_programs import program_on, said

PATIENT_S = 60.0
"""A wait that a test would notice, on the slowest machine as well."""
ENTER = """
    import json, time
    import gputop
    from gputop.api import watch
    watch.FIRST_READING_S = {wait_s}
    begun = time.monotonic()
    with gputop.watch(gpus={gpus!r}) as w:
        waited_s = time.monotonic() - begun
        print(json.dumps({{"available": w.available, "reason": w.reason, "waited_s": waited_s}}))
"""


@pytest.mark.nvml
@pytest.mark.parametrize("gpus", ["mine", "all"])
def test_a_watch_is_available_as_soon_as_it_is_entered(
    gpus: str, nvml_scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    program = program_on(nvml_scenario(gpus=2), tmp_path)
    found = said(program(ENTER.format(wait_s=PATIENT_S, gpus=gpus)))
    assert (found["available"], found["reason"]) == (True, None)


@pytest.mark.nvml
@pytest.mark.parametrize("lacks", ["driver", "devices"])
def test_without_devices_entering_does_not_wait(
    lacks: str, nvml_scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    scenario = nvml_scenario(gpus=2 if lacks == "driver" else 0)
    if lacks == "driver":
        # What NVML answers without its device nodes: driver not loaded.
        scenario.loads = 0
    found = said(program_on(scenario, tmp_path)(ENTER.format(wait_s=PATIENT_S, gpus="all")))
    assert not found["available"] and found["reason"]
    assert found["waited_s"] < PATIENT_S / 2


@pytest.mark.nvml
def test_a_driver_that_hangs_is_not_waited_for_longer_than_that(
    nvml_scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    scenario = nvml_scenario(gpus=1)
    scenario.hang("nvmlDeviceGetUtilizationRates", 3600.0)
    found = said(program_on(scenario, tmp_path)(ENTER.format(wait_s=0.1, gpus="all")))
    assert found["waited_s"] < PATIENT_S / 2


def test_without_the_library_entering_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise SourceError("no NVIDIA driver found: install it")

    monkeypatch.setattr("gputop.api.watcher.check_library", missing)
    monkeypatch.setattr("gputop.api.watch.FIRST_READING_S", PATIENT_S)
    begun = time.monotonic()
    with gputop.watch() as w:
        assert w.reason == "no NVIDIA driver found: install it"
    assert time.monotonic() - begun < PATIENT_S / 2


@pytest.mark.parametrize(
    ("source", "is_available"), [(SimulatedSource("healthy"), True), (Scripted(), False)]
)
def test_a_source_of_the_programs_own_is_asked_once(
    source: Any, is_available: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputop.api.watch.FIRST_READING_S", PATIENT_S)
    begun = time.monotonic()
    with gputop.watch(source=source, gpus="all") as w:
        assert w.available is is_available
    assert time.monotonic() - begun < PATIENT_S / 2
