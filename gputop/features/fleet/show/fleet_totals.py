"""Sums on top of the fleet's screen: over the whole fleet, or over the rows that pass the filter. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from gputop.features.fleet.fleet_reading import FleetState
from gputop.features.fleet.judge.fleet_frame import FleetFrame
from gputop.features.fleet.show.fleet_view import GROUPED, FleetView, groups


class FleetTotals(Struct, frozen=True):
    """GPUs by state, absent hosts by kind, power, and GPU-hours of the last hour.

    ``power_gpus`` are the GPUs whose power is known, of ``present`` ones. ``waste_gpu_h`` was held by a job; None until
    the hour was read.
    """

    counts: Mapping[FleetState, int]
    absent_hosts: Mapping[str, int]
    gone_hosts: int
    power_w: float
    power_gpus: int
    present: int
    waste_gpu_h: float | None
    idle_gpu_h: float

    @property
    def gpus(self) -> int:
        """All GPUs, with absent ones."""
        return sum(self.counts.values())


def totals(frame: FleetFrame, view: FleetView) -> FleetTotals:
    """Sum what the screen shows: filtered rows where there is a filter."""
    is_filtered = bool(view.filter) and view.panel in ("hosts", *GROUPED)
    return _of_rows(frame, view) if is_filtered else _of_fleet(frame)


def _of_fleet(frame: FleetFrame) -> FleetTotals:
    power_w, power_gpus, present = frame.power
    not_work = frame.not_work_gpu_h
    return FleetTotals(
        frame.counts,
        Counter(down.kind for down in frame.read.down.values()),
        len(frame.read.gone),
        power_w,
        power_gpus,
        present,
        None if not_work is None else not_work - frame.idle_gpu_h,
        frame.idle_gpu_h,
    )


def _of_rows(frame: FleetFrame, view: FleetView) -> FleetTotals:
    counts = Counter[FleetState]()
    hosts: set[str] = set()
    power_w, present, waste, idle = 0.0, 0, 0.0, 0.0
    for group in groups(frame, view):
        counts.update(group.counts)
        hosts.update(group.hosts or (group.name,))
        waste += group.waste_gpu_h or 0.0
        idle += group.idle_gpu_h or 0.0
        if group.down is None:
            power_w += group.power_w or 0.0
            present += group.size
    down = frame.read.down
    is_read = frame.read.hour.lost is not None
    return FleetTotals(
        counts,
        Counter(down[host].kind for host in hosts if host in down),
        0,
        power_w,
        present,
        present,
        waste if is_read else None,
        idle,
    )
