"""Names and units of the catalogue's metrics in each generation of dcgm-exporter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from msgspec import Struct

from gputop.model.metrics import GPU_METRICS

Generation = Literal["legacy", "4.9"]
GENERATIONS: tuple[Generation, ...] = get_args(Generation)
MIB = 2.0**20


class DcgmName(Struct, frozen=True):
    """Name of a metric in one generation of dcgm-exporter.

    ``name`` holds the catalogue's value divided by ``divisor``.
    """

    key: str
    name: str
    divisor: float = 1.0


_LEGACY_DIVISORS = {"bytes": MIB, "J": 1e-3}
"""Divisors by the catalogue's unit: framebuffer in MiB, energy in mJ."""
_NOT_EXPORTED = frozenset(("throttle_reasons", "xid"))
"""Metrics that gputop exports as counters by reason and Xid.

A gauge of the last Xid would not say when it happened.
"""


def _legacy_divisor(key: str, unit: str) -> float:
    # Fields of the profiling module are ratios; utilisation, fan and codec fields are percent.
    if unit == "pct" and (GPU_METRICS[key].dcgm or "").startswith("DCGM_FI_PROF_"):
        return 100.0
    return _LEGACY_DIVISORS.get(unit, 1.0)


LEGACY: Mapping[str, DcgmName] = {
    key: DcgmName(key, metric.dcgm, _legacy_divisor(key, metric.unit))
    for key, metric in GPU_METRICS.items()
    if metric.dcgm is not None and key not in _NOT_EXPORTED
}  # fmt: skip
_BASE_UNITS = (
    DcgmName("util_pct", "DCGM_FI_DEV_GPU_UTIL_RATIO", 100.0),
    DcgmName("sm_active_pct", "DCGM_FI_PROF_SM_UTIL_RATIO", 100.0),
    DcgmName("sm_occupancy_pct", "DCGM_FI_PROF_SM_OCCUPANCY_RATIO", 100.0),
    DcgmName("tensor_active_pct", "DCGM_FI_PROF_TENSOR_UTIL_RATIO", 100.0),
    DcgmName("dram_active_pct", "DCGM_FI_PROF_DRAM_UTIL_RATIO", 100.0),
    DcgmName("graphics_active_pct", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", 100.0),
    DcgmName("power_w", "DCGM_FI_DEV_BOARD_POWER_WATTS"),
    DcgmName("energy_j", "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL"),
    DcgmName("temp_c", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"),
    DcgmName("mem_temp_c", "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS"),
    DcgmName("mem_used_bytes", "DCGM_FI_DEV_FB_USED_BYTES"),
    DcgmName("sm_clock_mhz", "DCGM_FI_DEV_SM_CLOCK_HERTZ", 1e-06),
    DcgmName("mem_clock_mhz", "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", 1e-06),
)
"""The signals whose 4.9 names are known; the other fields keep their names."""
NAMES: Mapping[Generation, Mapping[str, DcgmName]] = {
    "legacy": LEGACY,
    "4.9": {**LEGACY, **{row.key: row for row in _BASE_UNITS}},
}  # fmt: skip
FB_FREE: Mapping[Generation, DcgmName] = {
    "legacy": DcgmName("", "DCGM_FI_DEV_FB_FREE", MIB),
    "4.9": DcgmName("", "DCGM_FI_DEV_FB_FREE_BYTES"),
}  # fmt: skip
"""Free device memory.

DCGM has it as a field, the catalogue as the difference of two metrics.
"""
HOST_LABEL: Mapping[Generation, str] = {"legacy": "Hostname", "4.9": "hostname"}
"""Label of the host in each generation; ``hostname`` from 4.8.3 on."""
