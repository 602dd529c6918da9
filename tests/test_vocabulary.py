"""Vocabularies agree with their types, with NVML and between the node and the fleet."""

from __future__ import annotations

from typing import get_args

from gputop.diagnosis.catalogue import titles
from gputop.diagnosis.types import STATE_WORDS
from gputop.features.fleet.gpu_state import WORDS as FLEET_WORDS
from gputop.model.derived import NOT_THROTTLING, WORDS, throttle_words
from gputop.model.sm import MEASURED, SM_SOURCES, SmSource

_NVML_NAMES = {
    0x1: "nvmlClocksEventReasonGpuIdle",
    0x2: "nvmlClocksEventReasonApplicationsClocksSetting",
    0x4: "nvmlClocksEventReasonSwPowerCap",
    0x8: "nvmlClocksThrottleReasonHwSlowdown",
    0x10: "nvmlClocksEventReasonSyncBoost",
    0x20: "nvmlClocksEventReasonSwThermalSlowdown",
    0x40: "nvmlClocksThrottleReasonHwThermalSlowdown",
    0x80: "nvmlClocksThrottleReasonHwPowerBrakeSlowdown",
    0x100: "nvmlClocksEventReasonDisplayClockSetting",
}


def test_every_sm_source_has_its_row() -> None:
    assert tuple(SM_SOURCES) == get_args(SmSource)
    assert MEASURED.isdisjoint({"bound", "none"})


def test_throttle_bits_are_those_of_nvml() -> None:
    import pynvml

    assert {bit: getattr(pynvml, name) for bit, name in _NVML_NAMES.items()} == {bit: bit for bit in WORDS}
    assert throttle_words(sum(WORDS)) == [word for bit, word in WORDS.items() if not bit & NOT_THROTTLING]


def test_a_node_and_a_fleet_name_states_alike() -> None:
    fleets_own = {"allocated_unused": "allocated, unused", "down": "down", "late": "driver late",
                  "pending": "not asked yet", "lost": "lost"}  # fmt: skip
    assert dict(FLEET_WORDS) == {**STATE_WORDS, **fleets_own}
    assert titles()["idle_holding_memory"] == STATE_WORDS["idle_allocated"]
