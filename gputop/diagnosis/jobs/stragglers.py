"""Stragglers of synchronous jobs, and the GPUs that wait for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputop.diagnosis.signals import Peer, Signals
from gputop.diagnosis.thresholds import HALF_POWER, HALF_RATIO
from gputop.diagnosis.window.host_activity import GpuHostActivity

LEAST_GPUS = 3
ALL_UTIL = 80.0
LEAST_POINTS = 15.0
MAD_FACTOR = 3.0 * 1.4826
"""Three standard deviations of normal noise, by the median absolute deviation."""
FOR_S = 60.0
STEP_FACTOR = 1.1
"""A rank whose steps take this many times the others' holds its job up."""


class StragglerDetector:
    """Remembers since when a GPU has done more than the others of its job."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, int], float] = {}

    def observe(
        self, signals: Sequence[Signals], ticks: Mapping[int, GpuHostActivity]
    ) -> dict[int, Peer]:
        """Return the straggler of each GPU's job by GPU index.

        MIG instances do not wait for each other.
        """
        jobs: dict[str, list[Signals]] = {}
        if len(signals) >= LEAST_GPUS:
            for s in signals:
                tick = ticks.get(s.index)
                is_judged = (
                    tick is not None
                    and s.samples >= s.min_samples
                    and s.gpu.static.mig_parent is None
                )
                key = job_of(tick) if tick is not None and is_judged else None
                if key is not None:
                    jobs.setdefault(key, []).append(s)
        since: dict[tuple[str, int], float] = {}
        peer_of_gpu: dict[int, Peer] = {}
        for key, members in jobs.items():
            peer = _outlier(members)
            if peer is None:
                continue
            begun = (key, peer.straggler)
            straggler = next(s for s in members if s.index == peer.straggler)
            since[begun] = self._since.get(begun, straggler.t - straggler.covered_s)
            if straggler.t - since[begun] >= FOR_S:
                peer_of_gpu.update({s.index: peer for s in members})
        self._since = since
        return peer_of_gpu


def job_of(tick: GpuHostActivity) -> str | None:
    """Key that the processes of one job share; None without a process."""
    return None if tick.job is None else tick.job.key


def _outlier(members: Sequence[Signals]) -> Peer | None:
    if len(members) < LEAST_GPUS or min(s.util_pct for s in members) < ALL_UTIL:
        return None
    values = {s.index: s.mean.sm for s in members if s.mean.sm is not None}
    measure = "SM"
    if len(values) < len(members):
        values = {s.index: 100.0 * s.mean.power for s in members if s.mean.power is not None}
        measure = "power"
    if len(values) < len(members):
        return None
    top = max(values, key=lambda index: values[index])
    others = [value for index, value in values.items() if index != top]
    # Imported here, because it takes longer to import than a first frame has to spare.
    from statistics import median

    middle = median(others)
    spread = median(abs(value - middle) for value in others)
    if values[top] - middle <= max(LEAST_POINTS, MAD_FACTOR * spread):
        return None
    waits = frozenset(s.index for s in members if s.index != top and _may_wait(s))
    return Peer(top, measure, values[top], middle, len(members), waits)


def _may_wait(s: Signals) -> bool:
    """True if a GPU looks as if it waits in NCCL.

    Few SMs, or little power if SM is not measured: a rank with most SMs busy computes.
    """
    if s.mean.sm is None:
        return s.mean.power is not None and s.mean.power < HALF_POWER
    return s.conditions.flag is not None or s.conditions.half or (s.sm_ratio or 0.0) < HALF_RATIO
