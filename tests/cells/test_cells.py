"""What NVML answers reaches the cells: text and colour of each state, and the unit of every value on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cells.golden_grids import Drawn, drawn, golden_path
from tests.cells.states import states
from tests.nvml.stand_in import GIB, MIB

pytestmark = pytest.mark.nvml
UNITS = {
    "util_pct": 98.0, "mem_util_pct": 40.0, "encoder_pct": 0.0, "decoder_pct": 0.0,
    "mem_used_bytes": 40.0 * GIB, "mem_total_bytes": 80.0 * GIB,
    "power_w": 380.0, "power_limit_w": 700.0, "temp_c": 60.0, "mem_temp_c": 70.0,
    "sm_clock_mhz": 1950.0, "sm_clock_max_mhz": 1980.0, "mem_clock_mhz": 1590.0, "pstate": 0.0,
    "pcie_gen": 5.0, "pcie_gen_max": 5.0, "pcie_width": 16.0, "pcie_width_max": 16.0,
    "pcie_tx_bytes_per_s": 500.0 * MIB, "pcie_rx_bytes_per_s": 1000.0 * MIB,
    "nvlink_tx_bytes_per_s": 2000.0 * MIB, "nvlink_rx_bytes_per_s": 3000.0 * MIB,
    "sm_active_pct": 88.0, "sm_occupancy_pct": 40.0, "tensor_active_pct": 45.0, "dram_active_pct": 38.0,
    "graphics_active_pct": 98.0, "fp64_active_pct": 0.0, "fp32_active_pct": 4.0, "fp16_active_pct": 30.0,
    "energy_j": 1_003_800.0, "ecc_uncorrected": 0.0, "remap_pending": 0.0,
}  # fmt: skip
"""Key → the value in the key's unit; the stand-in answers in NVML's: milliwatts, counters of bytes and of KiB."""
GROWS = ("_per_s", "_j")


@pytest.fixture(scope="module")
def all_drawn(nvml_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Drawn]:
    return drawn(nvml_dir, tmp_path_factory.mktemp("cells"))


@pytest.mark.parametrize("state", states())
def test_a_state_has_its_cells(state: str, all_drawn: dict[str, Drawn]) -> None:
    for size in all_drawn[state].sizes:
        text = all_drawn[state].text(size)
        assert text == golden_path(state, size).read_text(encoding="utf-8"), (
            "meant so? run `python -m tests.cells`"
        )


@pytest.mark.parametrize("key", UNITS)
def test_a_value_has_its_unit_from_the_driver_on(key: str, all_drawn: dict[str, Drawn]) -> None:
    # Between two counts the machine's own clock runs on for some microseconds.
    assert all_drawn["working"].gpu[key] == pytest.approx(
        UNITS[key], rel=5e-3 if key.endswith(GROWS) else 1e-9
    )


@pytest.mark.parametrize("key", [key for key in UNITS if key.endswith("_per_s")])
def test_a_counter_has_its_unit_where_the_driver_has_no_rates(
    key: str, all_drawn: dict[str, Drawn]
) -> None:
    # GPM gives rates in MiB/s on Hopper; before it each is the difference of two counts, in the field's own unit.
    assert all_drawn["bound_only"].gpu[key] == pytest.approx(UNITS[key], rel=5e-3)


def test_beside_a_measured_sm_activity_stands_no_bound(all_drawn: dict[str, Drawn]) -> None:
    measured, bounded = all_drawn["working"].gpu, all_drawn["bound_only"].gpu
    assert (measured["sm_active_pct"], measured["sm_low_pct"], measured["sm_high_pct"]) == (
        88.0,
        None,
        None,
    )
    assert (bounded["sm_active_pct"], bounded["sm_low_pct"], bounded["sm_high_pct"]) == (
        None,
        0.907407,
        98.0,
    )
