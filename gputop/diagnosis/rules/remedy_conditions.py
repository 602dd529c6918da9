"""Conditions under which a row of remedies applies, and what the machine has to spare."""

from __future__ import annotations

from collections.abc import Callable

from gputop.diagnosis import thresholds
from gputop.diagnosis.rules.feeding import QUEUED, THROTTLED
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.thresholds import LAUNCH_BOUND_RATIO
from gputop.diagnosis.window.sample_facts import swapping
from gputop.model.feeders import Feeders

CORES_FREE = 90.0
"""Host CPU below this leaves cores for more workers [judged]."""
PRESSED = 60.0
"""CPU pressure (percent of the time in which some task waited for a core) from which on no core is free [judged]."""
MOST_WORKERS = 8
LAUNCHES, OFTEN_S = 0.8, 12.0
"""Share of the time in which the main thread runs, and seconds of the last fifteen with a kernel, from which on it
launches kernels all the time [judged]."""
READS_BYTES = 1e6
"""Bytes a second that the job reads, from which on its main thread may load data [judged]."""
SHARES_WORK = ("workers", "ray", "helpers")
"""Who may do an unequal part of one work; whatever else runs beside a job has work of its own."""

Condition = Callable[[Signals, Feeders | None], bool]


def has_pressure(s: Signals) -> bool:
    """True if tasks of this machine often wait for a core."""
    machine = s.machine
    return (machine.psi_cpu_pct is not None and machine.psi_cpu_pct >= PRESSED) or (
        machine.cpu_pct is not None and machine.cpu_pct >= CORES_FREE
    )


def is_dataloader(s: Signals, f: Feeders | None) -> bool:
    """Whether it is PyTorch's DataLoader, which has options of its own."""
    return (
        f is not None
        and f.feeder_kind == "workers"
        and (s.tick.kinds == "torch" or bool(s.tick.pin_memory))
    )


def is_uneven(s: Signals, f: Feeders | None, *, torch: bool) -> bool:
    return (
        f is not None and f.uneven and f.feeder_kind in SHARES_WORK and is_dataloader(s, f) == torch
    )


def is_throttled(s: Signals, f: Feeders | None) -> bool:
    return (s.host.mean.throttled or 0.0) >= THROTTLED


def is_queued(s: Signals, f: Feeders | None) -> bool:
    return f is not None and f.busiest.cpu > 0.0 and f.busiest.queued / f.busiest.cpu >= QUEUED


def is_masked(s: Signals) -> bool:
    """Whether the job's own mask or limit leaves it fewer cores than gputop has."""
    return (
        s.host.cores is not None
        and s.machine.cpu_count is not None
        and s.host.cores < s.machine.cpu_count
    )


def is_pinned(s: Signals, f: Feeders) -> bool:
    """Whether the workers' own masks leave them fewer cores than the main process has."""
    cores = s.host.cores if s.host.cores is not None else s.machine.cpu_count
    return f.cores is not None and cores is not None and f.cores < cores and f.count >= f.cores


def has_free_cores(s: Signals, f: Feeders | None) -> bool:
    """A core, and memory, for one more who computes, beside those that do and the main thread."""
    return (
        not has_pressure(s)
        and swapping(s.machine) is None
        and (s.host.cores is None or f is None or f.count + 1 < s.host.cores)
    )


def can_have_workers(s: Signals, f: Feeders | None) -> bool:
    return (
        not s.host.loaders
        and has_free_cores(s, None)
        and (s.host.cores is None or s.host.cores >= 2.0)
    )


def launches_kernels(s: Signals, f: Feeders | None) -> bool:
    """True if the main thread launches small kernels all the time.

    A thread that reads files loads data.
    """
    return (
        not s.host.loaders
        and (s.host.mean.main or 0.0) >= LAUNCHES
        and s.kernels_s >= OFTEN_S
        and s.sm_ratio is not None
        and s.sm_ratio < LAUNCH_BOUND_RATIO
        and (s.host.mean.read or 0.0) < READS_BYTES
    )


def is_kind(kind: str, s: Signals, f: Feeders | None) -> bool:
    return f is not None and f.feeder_kind == kind


def is_on_mount(s: Signals, f: Feeders | None) -> bool:
    return f is not None and f.mount is not None


def writes_much(s: Signals, f: Feeders | None) -> bool:
    return 2.0 * (s.host.mean.main_saves or 0.0) >= (s.host.mean.main_disk or 0.0) > 0.0


def is_launch_bound(s: Signals) -> bool:
    return s.host.mean.main is not None and s.host.mean.main >= thresholds.LAUNCH_BOUND_MAIN
