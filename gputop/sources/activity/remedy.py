"""How to get SM activity on a GPU where NVML measures none, by the kind of GPU."""

from __future__ import annotations

import os

EXPORTER_FIX = "run dcgm-exporter with DCGM_FI_PROF_SM_ACTIVE enabled"
COUNTERS_FIX = "start gputop with --perf"
NO_DCGM_FIX = "none here: DCGM counts on data-centre GPUs from Volta on"

_INTEGRATED = ("orin", "xavier", "thor", "tegra", "nvgpu")
_CONSUMER = ("geforce", "titan")
_HAVE_COUNTERS = ("turing", "ampere", "ada")
"""Architectures with counters but no GPM; older ones need other libraries for their counters."""
_HAVE_GPM = ("hopper", "blackwell")


def dcgm_counts(name: str) -> bool:
    """Whether DCGM has profiling metrics of such a GPU: of a consumer's or an integrated one it has none."""
    return not any(word in name.lower() for word in _INTEGRATED + _CONSUMER)


def sm_fix(name: str, architecture: str | None) -> str:
    """What to do for SM activity; empty where nothing helps."""
    if dcgm_counts(name):
        return EXPORTER_FIX
    if any(word in name.lower() for word in _INTEGRATED):
        return ""
    return COUNTERS_FIX if architecture in _HAVE_COUNTERS and not under_wsl() else ""


def under_wsl() -> bool:
    """Whether the GPU is the Windows host's: then no program here may read its counters."""
    return os.path.exists("/dev/dxg") and not os.path.exists("/dev/nvidiactl")


def no_gpm(architecture: str | None) -> str:
    """Why NVML has no GPM for a GPU, in words."""
    if architecture is None:
        return "this GPU has no GPM counters (Hopper and newer have)"
    if architecture in _HAVE_GPM:
        return f"the driver gives no GPM counters of this {architecture.capitalize()} GPU (as in virtual machines)"
    return f"{architecture.capitalize()} has no GPM counters (Hopper and newer have)"
