"""The state of each GPU of a fleet, from five minutes of data: the first rule that holds. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from gputop.diagnosis.rules.gates import HELD_BYTES
from gputop.diagnosis.signals import busy_not_working
from gputop.diagnosis.types import STATE_WORDS, STATES, Level, State
from gputop.fleet.reading import GpuReading

FleetState = Literal["working", "busy_not_working", "starved", "idle_allocated", "idle", "unmeasured", "down"]
FLEET_STATES: tuple[FleetState, ...] = (*STATES, "down")
WORDS: Mapping[str, str] = MappingProxyType({
    state: "down" if state == "down" else STATE_WORDS[state] for state in FLEET_STATES
})  # fmt: skip
LEVELS: Mapping[FleetState, Level] = MappingProxyType({
    "working": "green", "busy_not_working": "red", "starved": "red", "idle_allocated": "yellow", "idle": "grey",
    "unmeasured": "grey", "down": "yellow",
})  # fmt: skip
"""The level in which a state is drawn."""
BUSY_UTIL = 80.0
"""Above this utilisation a GPU without SM activity is not called starved: its work is unknown."""


def state_of(gpu: GpuReading, *, is_down: bool = False) -> tuple[FleetState, str]:
    """A GPU's state, and what it was decided by: ``up``, ``gputop``, ``util``, ``sm`` or ``nothing``."""
    if is_down or gpu.is_gone:
        return "down", "up"
    if gpu.own_state is not None:
        return gpu.own_state, "gputop"
    if gpu.util_pct is None:
        return "unmeasured", "nothing"
    held = gpu.mem_used_bytes is not None and gpu.mem_used_bytes >= HELD_BYTES
    if gpu.is_quiet:
        return ("idle_allocated" if held else "idle"), "util"
    if busy_not_working(gpu.util_pct, gpu.sm_active_pct) is not None:
        return "busy_not_working", "sm"
    if gpu.util_pct <= BUSY_UTIL and (held or gpu.job):
        return "starved", "util"
    if gpu.sm_active_pct is None:
        return "unmeasured", "nothing"
    return "working", "sm"


def lost_hours(state: State, util_pct: float | None, hours: float) -> float:
    """The part of ``hours`` in a state that was not work, GPU-hours; split by utilisation as in a node's ledger."""
    if state == "busy_not_working":
        return hours
    if state in ("starved", "idle_allocated", "idle"):
        return hours * (1.0 - min(100.0, max(0.0, util_pct or 0.0)) / 100.0)
    return 0.0
