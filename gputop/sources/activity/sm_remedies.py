"""Advice on how to get SM activity, by the kind of GPU."""

from __future__ import annotations

from gputop.model.sm import CONSUMER, INTEGRATED
from gputop.sources.surroundings import is_wsl

EXPORTER_FIX = "run dcgm-exporter with DCGM_FI_PROF_SM_ACTIVE enabled"
COUNTERS_FIX = "start gputop with --perf"
NO_DCGM_FIX = "none here: DCGM counts on data-centre GPUs from Volta on"

_HAVE_GPM = ("hopper", "blackwell")
"""Architectures whose driver is known to answer GPM: data-centre cards, GeForce Blackwell and MIG instances do."""
_HAVE_COUNTERS = ("turing", "ampere", "ada", *_HAVE_GPM)
"""Architectures whose counters can be read; older ones need other libraries for theirs."""


def dcgm_counts(name: str) -> bool:
    """Whether DCGM has profiling metrics for a GPU.

    It has none for consumer and integrated GPUs.
    """
    return not any(word in name.lower() for word in INTEGRATED + CONSUMER)


def sm_fix(name: str, architecture: str | None) -> str:
    """Return how to get SM activity; empty where nothing helps."""
    if dcgm_counts(name):
        return EXPORTER_FIX
    if any(word in name.lower() for word in INTEGRATED):
        return ""
    return COUNTERS_FIX if architecture in _HAVE_COUNTERS and not is_wsl() else ""


def no_gpm(architecture: str | None) -> str:
    """Return why NVML has no GPM for a GPU."""
    if architecture is None:
        return "this GPU has no GPM counters (Hopper and newer have)"
    if architecture in _HAVE_GPM:
        return (
            f"the driver gives no GPM counters of this {architecture.capitalize()} GPU (as in "
            "virtual machines)"
        )
    return f"{architecture.capitalize()} has no GPM counters (Hopper and newer have)"
