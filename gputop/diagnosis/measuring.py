"""How to have SM activity measured on a GPU where it is not: by the kind of the card, and with the right that it takes.

Most cards that are not in a data centre have no counter that anybody may read: a verdict without SM must say what to do
about it. ``gputop doctor`` looks at this machine's own files and rights; here only the GPU's facts are known.
"""

from __future__ import annotations

from functools import lru_cache

from gputop.model.sm import COUNTERS_DENIED, COUNTERS_RELEASED
from gputop.model.snapshot import GpuSample

INTEGRATED = ("orin", "xavier", "thor", "tegra", "nvgpu")
CONSUMER = ("geforce", "titan")
OLDER = ("kepler", "maxwell", "pascal")
"""Architectures whose counters neither GPM, nor DCGM, nor ``--perf`` reads."""

RIGHT = (
    "that takes the right to read GPU counters: CAP_PERFMON (from driver 565 on), or root, or the driver's option "
    "NVreg_RestrictProfilingToAdminUsers=0; `gputop doctor` prints the command"
)
WITH_PERF = f"to measure SM here: gputop --perf; {RIGHT}"
WITH_DCGM = (
    "to measure SM here: run dcgm-exporter with DCGM_FI_PROF_SM_ACTIVE, or gputop --dcgmi where DCGM is installed; "
    f"or gputop --perf: {RIGHT}"
)
WITH_DCGM_ALONE = (
    "to measure SM here: run dcgm-exporter with DCGM_FI_PROF_SM_ACTIVE, or gputop --dcgmi where DCGM is installed"
)
OF_INSTANCES = (
    "judge the MIG instances: the driver's own counters (GPM) answer for each of them on Hopper and newer, and "
    "dcgm-exporter with DCGM_FI_PROF_SM_ACTIVE on any"
)
OF_THIS_INSTANCE = "to measure SM of this instance: run dcgm-exporter with DCGM_FI_PROF_SM_ACTIVE on the host"
NO_COUNTER = (
    "no tool reads SM activity of this chip: judge the job by its own speed (`gputop.step()` in its loop, or a "
    "profiler's trace: `gputop trace FILE`)"
)
DENIED = f"to measure SM here: {RIGHT}"
RELEASED = "P takes the counters again, once no profiler needs them"
SHORT = "measure SM: gputop doctor"


def how_to_measure(gpu: GpuSample) -> str:
    """What to do, in one line; never empty."""
    static = gpu.static
    return _advice(
        static.name, static.architecture, bool(static.mig_enabled), static.mig_parent is not None, gpu.sm_reason
    )


@lru_cache(maxsize=64)
def _advice(name: str, architecture: str | None, is_mig: bool, is_instance: bool, why: str | None) -> str:
    low = name.lower()
    if is_instance:
        return OF_THIS_INSTANCE
    if is_mig:
        return OF_INSTANCES
    if why is not None and COUNTERS_RELEASED in why:
        return RELEASED
    if why is not None and COUNTERS_DENIED in why:
        return DENIED
    if any(word in low for word in INTEGRATED) or architecture in OLDER:
        return NO_COUNTER
    if any(word in low for word in CONSUMER):
        return NO_COUNTER if architecture == "volta" else WITH_PERF
    return WITH_DCGM_ALONE if architecture == "volta" else WITH_DCGM
