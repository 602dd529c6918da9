"""GPUs that belong together: a host's, a job's or a user's, with the verdict on them. Pure, frozen data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from gputop.features.fleet.fleet_reading import Down, GpuReading
from gputop.features.fleet.judge import FleetState, FleetVerdict, severity


class Gpu(Struct, frozen=True):
    """One GPU with its state; ``by`` says what decided it, see ``judge.state_of``."""

    read: GpuReading
    state: FleetState
    by: str

    @property
    def gap_pct(self) -> float | None:
        """Utilisation minus SM activity; None where one of the two is not measured."""
        read = self.read
        if read.util_pct is None or read.sm_active_pct is None:
            return None
        return max(0.0, read.util_pct - read.sm_active_pct)


class GpuGroup(Struct, frozen=True):
    """GPUs that belong together: a host, a job or a user. Means and sums are over those where a value is measured.

    ``waste_gpu_h`` and ``idle_gpu_h`` are of the last hour, None until it was read: waste is what somebody's job did
    not use, idle is what nobody used.
    """

    name: str
    gpus: tuple[Gpu, ...]
    hosts: tuple[str, ...]
    jobs: tuple[str, ...]
    users: tuple[str, ...]
    verdict: FleetVerdict
    util_pct: float | None
    sm_active_pct: float | None
    gap_pct: float | None
    power_w: float | None
    waste_gpu_h: float | None
    idle_gpu_h: float | None
    stragglers: int = 0
    down: Down | None = None
    summed: Mapping[FleetState, int] = {}
    """GPUs by state where the group is read from shares: ``gpus`` are then those that are known one by one, or none."""

    @property
    def counts(self) -> Mapping[FleetState, int]:
        """GPUs by state."""
        return self.summed or Counter(gpu.state for gpu in self.gpus)

    @property
    def size(self) -> int:
        """How many GPUs these are."""
        return sum(self.summed.values()) if self.summed else len(self.gpus)


OF_JOBS = ("busy_not_working", "starved", "idle_allocated", "allocated_unused")
"""States in which somebody keeps a GPU from others and does no work on it."""


def worst_first(group: GpuGroup) -> tuple[float, float, str]:
    """The order in which groups need attention: by how bad, then by what they waste."""
    waste = group.waste_gpu_h
    if waste is None:
        waste = sum(n for state, n in group.counts.items() if state in OF_JOBS)
    return severity(group.verdict), -waste, group.name
