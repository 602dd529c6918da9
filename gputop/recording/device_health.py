"""Health of devices in a recording: a line of its own where it has changed, and nothing in frames.

A card's health is read every few seconds and changes in days. Each member begins with all of it, so that reading may
begin there.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from gputop.model.snapshot import GpuSample

HEALTH_KEYS = (
    "remapped_rows_corrected",
    "remapped_rows_uncorrected",
    "retired_pending",
    "ecc_corrected_per_s",
    "recovery_action",
    "nvlink_count",
    "nvlink_active",
    "nvlink_down",
    "module_power_w",
    "xid_class",
    "xid_action",
)
"""Fields of a GPU that stand on the line of health, and the keys of their reasons."""
_NONE = dict.fromkeys(HEALTH_KEYS)
LOST_HEALTH = GpuSample(
    unavailable=dict.fromkeys(HEALTH_KEYS, "the recording is damaged where this value stood")
)
"""In place of values whose line may be lost: they are not those of before."""


def health_of(gpu: GpuSample) -> GpuSample:
    """Return a GPU with nothing but its health."""
    values = {key: getattr(gpu, key) for key in HEALTH_KEYS}
    reasons = {key: why for key, why in gpu.unavailable.items() if key in _NONE}
    return GpuSample(**values, unavailable=reasons)


def without_health(gpu: GpuSample) -> GpuSample:
    """Return a GPU as a frame has it."""
    reasons = {key: why for key, why in gpu.unavailable.items() if key not in _NONE}
    return replace(gpu, **_NONE, unavailable=reasons)


def with_health(gpu: GpuSample, health: GpuSample) -> GpuSample:
    """Return a frame's GPU with its health; what the frame itself says counts first."""
    values = {key: getattr(health, key) for key in HEALTH_KEYS if getattr(gpu, key) is None}
    reasons: Mapping[str, str] = {**health.unavailable, **gpu.unavailable}
    return replace(gpu, **values, unavailable=reasons)
