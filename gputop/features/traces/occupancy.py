"""The profiler's estimates of occupancy: resident warps of the most that a multiprocessor holds.

A GPU that is busy at a low occupancy has kernels too small or too demanding to hide their waits. The profiler estimates
it from each launch; it is not measured.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from gputop.features.traces.columns import ABSENT, COPY, Trace
from gputop.features.traces.device_events import DeviceEvents
from gputop.features.traces.kernel_names import short_name
from gputop.features.traces.kernels import KNOWN_SHARE, KernelRow


class _Weighted(Struct):
    """Time of kernels, the part of it for which occupancy is known, and its sum over that time."""

    time: int = 0
    known: int = 0
    occupied: float = 0.0

    def add(self, time: int, occupancy_pct: float) -> None:
        """Add a kernel; an occupancy of -1 is unknown."""
        self.time += time
        if occupancy_pct != ABSENT:
            self.known += time
            self.occupied += time * occupancy_pct

    @property
    def mean_pct(self) -> float | None:
        """The mean over time, where it is known for most of the time."""
        if not self.known or self.known < KNOWN_SHARE * self.time:
            return None
        return self.occupied / self.known


class Occupancy(Struct, frozen=True):
    """Estimated occupancy of all kernels, and by name and whether they communicate; None where it is not known."""

    pct: float | None
    by_kernel: dict[str, float | None]


def occupancy(trace: Trace, events: DeviceEvents, begin: int, end: int) -> Occupancy:
    """Average the occupancy of a device's kernels in [begin, end) over their time."""
    in_all = _Weighted()
    by_name: dict[int, _Weighted] = {}
    estimates = trace.gpu.occupancy_pct
    rows = zip(events.number, events.start, events.end, events.kind, events.name, strict=True)
    for number, first, last, kind, name in rows:
        time = min(last, end) - max(first, begin)
        if kind == COPY or time <= 0:
            continue
        in_all.add(time, estimates[number])
        if name not in by_name:
            by_name[name] = _Weighted()
        by_name[name].add(time, estimates[number])
    by_kernel: dict[str, _Weighted] = {}
    for name, own in by_name.items():
        kernel = by_kernel.setdefault(short_name(trace.names.texts[name]), _Weighted())
        kernel.time += own.time
        kernel.known += own.known
        kernel.occupied += own.occupied
    means = {name: kernel.mean_pct for name, kernel in by_kernel.items()}
    return Occupancy(in_all.mean_pct, means)


def with_occupancy(rows: Iterable[KernelRow], found: Occupancy) -> tuple[KernelRow, ...]:
    """The rows of kernels with their occupancy."""
    return tuple(replace(row, occupancy_pct=found.by_kernel.get(row.name)) for row in rows)
