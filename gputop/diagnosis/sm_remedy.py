"""How to have SM activity measured, by kind of card.

With the right that it takes.

Most cards outside of data centres have no counter that can be read: a verdict without SM must say what to do about it.
``gputop doctor`` looks at this machine's own files and rights; here only the GPU's facts are known.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gputop.diagnosis import thresholds
from gputop.model.derived import HARDWARE_SLOWDOWN, POWER_BRAKE, THERMAL
from gputop.model.sm import CONSUMER, INTEGRATED, LackKind
from gputop.model.snapshot import GpuSample

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
    "to measure SM here: run dcgm-exporter with DCGM_FI_PROF_SM_ACTIVE, or gputop --dcgmi where "
    "DCGM is installed"
)
OF_INSTANCES = (
    "judge the MIG instances: the driver's own counters (GPM) answer for each of them on Hopper and newer, and "
    "dcgm-exporter with DCGM_FI_PROF_SM_ACTIVE on any"
)
OF_THIS_INSTANCE = (
    "to measure SM of this instance: run dcgm-exporter with DCGM_FI_PROF_SM_ACTIVE on the host"
)
NO_COUNTER = (
    "no tool reads SM activity of this chip: judge the job by its own speed (`w.step()` of `gputop.watch()` in its "
    "loop) or by a profiler's trace (`gputop trace FILE`)"
)
VIRTUAL = (
    "a vGPU guest reads no GPU counters unless its host allows that (vGPU plugin option enable_profiling); else judge "
    "the job by its own speed or by a profiler's trace (`gputop trace FILE`)"
)
_VGPU_NAME = re.compile(r"^GRID |-\d+[ABCQ]$")
"""Names of vGPU profiles end with memory in GiB and a letter: ``NVIDIA A40-48Q``."""
DENIED = f"to measure SM here: {RIGHT}"
SHORT = "measure SM: gputop doctor"


def how_to_measure(gpu: GpuSample) -> str:
    """How to have SM measured, in one line; never empty."""
    static = gpu.static
    lack = None if gpu.sm_lack is None else gpu.sm_lack.kind
    return _advice(
        static.name,
        static.architecture,
        bool(static.mig_enabled),
        static.mig_parent is not None,
        lack,
    )


WORKS_HARD, DRAWS_LITTLE, SAYS_NOTHING = (
    "works hard",
    "draws little for a busy GPU",
    "says nothing of the work",
)


def power_word(gpu: GpuSample) -> str | None:
    """Meaning of power for a busy GPU whose SM is only bounded.

    None where it says nothing.

    Never a number of activity: the same matrix product draws up to 67 % more or less by its data alone, and training in
    FP32, 26 times slower than it could be, 82 % of an H100's limit. Not for MIG instances, whose power is the board's,
    nor while the clocks are held down, nor for impossible power.
    """
    if (
        gpu.sm_source != "bound"
        or gpu.util_pct is None
        or gpu.util_pct < thresholds.HEALTHY_UTIL
        or gpu.static.mig_enabled
    ):
        return None
    if (
        not gpu.power_w
        or not gpu.power_limit_w
        or gpu.power_w > thresholds.MOST_POWER * gpu.power_limit_w
    ):
        return None
    if (gpu.throttle_reasons or 0) & (THERMAL | HARDWARE_SLOWDOWN | POWER_BRAKE):
        return None
    share = gpu.power_w / gpu.power_limit_w
    words = SAYS_NOTHING
    if share >= thresholds.FULL_POWER:
        words = WORKS_HARD
    elif share < thresholds.LOW_POWER and gpu.util_pct >= thresholds.LOW_POWER_UTIL:
        words = DRAWS_LITTLE
    return f"power {100 * share:.0f} % of its limit: {words}"


@lru_cache(maxsize=64)
def _advice(
    name: str, architecture: str | None, is_mig: bool, is_instance: bool, lack: LackKind | None
) -> str:
    low = name.lower()
    if is_instance:
        return OF_THIS_INSTANCE
    if is_mig:
        return OF_INSTANCES
    if lack == "virtual" or _VGPU_NAME.search(name):
        return VIRTUAL
    if lack == "denied":
        return DENIED
    if any(word in low for word in INTEGRATED) or architecture in OLDER:
        return NO_COUNTER
    if any(word in low for word in CONSUMER):
        return NO_COUNTER if architecture == "volta" else WITH_PERF
    return WITH_DCGM_ALONE if architecture == "volta" else WITH_DCGM
