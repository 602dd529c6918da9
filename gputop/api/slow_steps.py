"""What the machine did while the slow steps of a loop ran, beside what it did in the others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import fmean

from msgspec import Struct

from gputop.model.derived import HARDWARE_SLOWDOWN, POWER_BRAKE, THERMAL
from gputop.model.snapshot import GpuSample, ProcessSample, Snapshot

APART_PCT = 15.0
"""Points between slow and other steps from which a difference is told [judged]."""
SWAPPING_BYTES = 1e6
"""Growth of the used swap from one look to the next that is called swapping [judged]."""
BUSY_PCT = 10.0
"""GPU time of another job from which it shares the GPU, percent [judged]."""
_SLOWED = THERMAL | HARDWARE_SLOWDOWN | POWER_BRAKE


class MachineSigns(Struct, frozen=True):
    """State of the machine in about a second, each sign in percent; None was not measured.

    The pressures are shares of the time; the last three are 100 where it was so, else 0.
    """

    cpu_wait: float | None = None
    disk_wait: float | None = None
    memory_wait: float | None = None
    cores_busy: float | None = None
    slowed: float | None = None
    swapped: float | None = None
    shared: float | None = None


NO_SIGNS = MachineSigns()
SIGN_WORDS = (
    ("slowed", "the GPU slowed down for heat or power supply"),
    ("swapped", "the machine swapped"),
    ("shared", "another job used the GPU"),
    ("cpu_wait", "tasks waited for a core"),
    ("disk_wait", "tasks waited for the disk"),
    ("memory_wait", "tasks waited for memory"),
    ("cores_busy", "the cores were busy"),
)
"""Each sign with its words, the most certain cause first."""


def machine_signs(
    before: Snapshot | None, now: Snapshot, own_pids: Collection[int]
) -> MachineSigns:
    """Return the signs of a snapshot; ``before`` is the one before it, ``own_pids`` are the job's."""
    host = now.host
    own = {
        process.gpu
        for process in now.processes
        if process.pid in own_pids and process.role == "gpu"
    }
    gpus = [gpu for gpu in now.gpus if gpu.static.index in own]
    return MachineSigns(
        cpu_wait=host.psi_cpu_pct,
        disk_wait=host.psi_io_pct,
        memory_wait=host.psi_mem_pct,
        cores_busy=host.cpu_pct,
        slowed=_slowed(gpus),
        swapped=_swapped(before, now),
        shared=_shared(now.processes, own, own_pids),
    )


def _slowed(gpus: Sequence[GpuSample]) -> float | None:
    masks = [gpu.throttle_reasons for gpu in gpus if gpu.throttle_reasons is not None]
    if not masks:
        return None
    return 100.0 if any(mask & _SLOWED for mask in masks) else 0.0


def _swapped(before: Snapshot | None, now: Snapshot) -> float | None:
    used = now.host.swap_used_bytes
    used_before = None if before is None else before.host.swap_used_bytes
    if used is None or used_before is None:
        return None
    return 100.0 if used - used_before > SWAPPING_BYTES else 0.0


def _shared(
    processes: Sequence[ProcessSample], own_gpus: Collection[int | None], own_pids: Collection[int]
) -> float | None:
    """Return whether a process of another job computed on the job's GPUs."""
    own_jobs = {process.static.job_key for process in processes if process.pid in own_pids}
    times = []
    for process in processes:
        is_other = process.pid not in own_pids and process.static.job_key not in own_jobs
        if is_other and process.role == "gpu" and process.gpu in own_gpus:
            times.append(process.gpu_time_pct)
    measured = [time_pct for time_pct in times if time_pct is not None]
    if not own_gpus or (times and not measured):
        return None
    return 100.0 if max(measured, default=0.0) >= BUSY_PCT else 0.0


def difference_words(slow: Sequence[MachineSigns], other: Sequence[MachineSigns]) -> str:
    """Return how the machine differed in slow steps: ``in them the machine swapped 80 % (3 % otherwise)``."""
    found = []
    is_known = False
    for key, words in SIGN_WORDS:
        slow_pct, other_pct = _mean(slow, key), _mean(other, key)
        if slow_pct is None or other_pct is None:
            continue
        is_known = True
        if slow_pct - other_pct >= APART_PCT:
            found.append(f"{words} {slow_pct:.0f} % of the time ({other_pct:.0f} % otherwise)")
    if found:
        return f"in them {', '.join(found)}"
    return "the machine looked no different in them" if is_known else ""


def _mean(signs: Sequence[MachineSigns], key: str) -> float | None:
    values = [value for sign in signs if (value := getattr(sign, key)) is not None]
    return fmean(values) if values else None
