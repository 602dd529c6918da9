"""The names and units that each generation of dcgm-exporter uses for the catalogue's metrics.

Up to 4.8 an exporter uses the names of DCGM's fields, which the catalogue knows, in the fields' units. From 4.9 on the
names end in base units. https://docs.nvidia.com/datacenter/dcgm/latest/dcgm-api/dcgm-api-field-ids.html
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from gputop.model.metrics import GPU_METRICS

Generation = Literal["legacy", "4.9"]
GENERATIONS: tuple[Generation, ...] = ("legacy", "4.9")
MIB = 2.0**20


class DcgmName(Struct, frozen=True):
    """One signal of one generation: ``name`` holds the catalogue's value divided by ``divisor``."""

    key: str
    name: str
    divisor: float = 1.0


_LEGACY_DIVISORS = {"bytes": MIB, "J": 1e-3}
"""By the catalogue's unit: framebuffer in MiB, energy in mJ."""
_NOT_EXPORTED = frozenset(("throttle_reasons", "xid"))
"""Exported by reason and by Xid where they are counters of our own; a gauge of the last Xid says nothing of when."""


def _legacy_divisor(key: str, unit: str) -> float:
    # Fields of the profiling module are ratios; utilisation, fan and codec fields are percent.
    if unit == "pct" and (GPU_METRICS[key].dcgm or "").startswith("DCGM_FI_PROF_"):
        return 100.0
    return _LEGACY_DIVISORS.get(unit, 1.0)


LEGACY: Mapping[str, DcgmName] = MappingProxyType({
    key: DcgmName(key, metric.dcgm, _legacy_divisor(key, metric.unit))
    for key, metric in GPU_METRICS.items()
    if metric.dcgm is not None and key not in _NOT_EXPORTED
})  # fmt: skip
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
    DcgmName("sm_clock_mhz", "DCGM_FI_DEV_SM_CLOCK_HERTZ", 1e-6),
    DcgmName("mem_clock_mhz", "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", 1e-6),
)
"""The signals whose 4.9 names are known; the other fields keep their names."""
NAMES: Mapping[Generation, Mapping[str, DcgmName]] = MappingProxyType({
    "legacy": LEGACY,
    "4.9": MappingProxyType({**LEGACY, **{row.key: row for row in _BASE_UNITS}}),
})  # fmt: skip
FB_FREE: Mapping[Generation, DcgmName] = MappingProxyType({
    "legacy": DcgmName("", "DCGM_FI_DEV_FB_FREE", MIB),
    "4.9": DcgmName("", "DCGM_FI_DEV_FB_FREE_BYTES"),
})  # fmt: skip
"""Device memory that is free: DCGM has it as a field, the catalogue as the difference of two."""
HOST_LABEL: Mapping[Generation, str] = MappingProxyType({"legacy": "Hostname", "4.9": "hostname"})
"""That generation's label for the host. Spelt ``hostname`` from 4.8.3 on."""
COUNTERS = frozenset(("energy_j",)) | {key for key in LEGACY if key.startswith("ecc_")}
