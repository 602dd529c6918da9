"""Judge the state of each GPU from five minutes of data. Pure.

Takes a ``GpuReading``; returns its state and what decided it. The rules for Prometheus have the same order, see
``state_rules.state_of``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from gputop.diagnosis.thresholds import FLAG_A_UTIL, HELD_BYTES, SURELY_BUSY_UTIL
from gputop.diagnosis.types import NOT_WORK, STATE_WORDS, STATES, Level
from gputop.diagnosis.verdict.summary import LEVEL_OF_ROLE, ROLE_OF_STATE
from gputop.diagnosis.window.conditions import busy_not_working
from gputop.features.fleet.fleet_reading import FleetState, GpuReading, GpuState, HostShare

ABSENT: tuple[FleetState, ...] = ("down", "late", "lost")
"""States of GPUs without current values: the host does not answer, its driver hangs, or it answers without the GPU."""
GPU_STATES: tuple[GpuState, ...] = (*STATES, "allocated_unused")
FLEET_STATES: tuple[FleetState, ...] = (*GPU_STATES, *ABSENT)
FLEET_NOT_WORK: tuple[GpuState, ...] = (*NOT_WORK, "allocated_unused")
"""Time in these states is no work."""
UNUSED = "allocated, unused"
WORDS: Mapping[str, str] = MappingProxyType(
    {state: STATE_WORDS[state] for state in STATES}
    | {
        "allocated_unused": UNUSED,
        "down": "down",
        "late": "driver late",
        "pending": "not asked yet",
        "lost": "lost",
    }
)
LEVELS: Mapping[FleetState, Level] = MappingProxyType({
    **{state: LEVEL_OF_ROLE[ROLE_OF_STATE[state]] for state in STATES},
    "allocated_unused": "yellow", "down": "yellow", "late": "red", "pending": "grey", "lost": "red",
})  # fmt: skip
"""The level in which a state is drawn: by what it means, as everywhere."""


class Gpu(Struct, frozen=True, gc=False):
    """One GPU with its state.

    ``state_by`` is the source that decided: ``up``, ``gputop``, ``util``, ``sm`` or ``nothing``.
    """

    read: GpuReading
    state: FleetState
    state_by: str

    @property
    def level(self) -> Level:
        """The level of the GPU: its node's own, else its state's.

        A node does not know that the scheduler holds its idle GPU for a job.
        """
        own = self.read.own_level
        if own is None or self.state_by != "gputop" or self.state == "allocated_unused":
            return LEVELS[self.state]
        return own

    @property
    def gap_pct(self) -> float | None:
        """See ``gap``."""
        return gap(self.read)


def gap(of: GpuReading | HostShare) -> float | None:
    """Utilisation minus SM activity; None where one of the two is not measured."""
    if of.util_pct is None or of.sm_active_pct is None:
        return None
    return max(0.0, of.util_pct - of.sm_active_pct)


def state_of(gpu: GpuReading, *, down: str = "") -> tuple[FleetState, str]:
    """A GPU's state and its source; ``down`` is the kind in which its host is without values."""
    if down:
        return ("late" if down == "late" else "down"), "up"
    return ("lost", "up") if gpu.is_lost else judged(gpu)


def judged(gpu: GpuReading) -> tuple[GpuState, str]:
    """The state of a GPU that is there, and its source."""
    if gpu.own_state is not None:
        return (
            "allocated_unused" if gpu.own_state == "idle" and gpu.is_allocated else gpu.own_state
        ), "gputop"
    if gpu.util_pct is None or (gpu.is_quiet is None and gpu.util_pct < SURELY_BUSY_UTIL):
        return "unmeasured", "nothing"
    if gpu.is_quiet:
        if gpu.mem_used_bytes is None and "mem_used_bytes" in gpu.unanswered:
            return "unmeasured", "nothing"
        if (gpu.mem_used_bytes or 0.0) >= HELD_BYTES:
            return "idle_allocated", "util"
        return ("allocated_unused" if gpu.is_allocated else "idle"), "util"
    if gpu.sm_active_pct is None and "sm_active_pct" in gpu.unanswered:
        return "unmeasured", "nothing"
    # Hollow takes a witness that somebody computes there: the label of a job.
    if busy_not_working(gpu.util_pct, gpu.sm_active_pct, may_be_hollow=bool(gpu.job)) is not None:
        return "busy_not_working", "sm"
    if gpu.util_pct <= FLAG_A_UTIL and gpu.job:
        # Busier ones are not called starved: without SM activity their work is unknown.
        return "starved", "util"
    return ("unmeasured", "nothing") if gpu.sm_active_pct is None else ("working", "sm")


def lost_hours(state: FleetState, util_pct: float | None, hours: float) -> float:
    """The part of ``hours`` in a state that was no work."""
    if state == "busy_not_working":
        return hours
    return (
        hours * (1.0 - min(100.0, max(0.0, util_pct or 0.0)) / 100.0)
        if state in FLEET_NOT_WORK
        else 0.0
    )
