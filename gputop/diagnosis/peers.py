"""GPUs of one job compared: the one that does more than the others is the straggler, and the others wait for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputop.diagnosis.host import HostTick
from gputop.diagnosis.signals import Peer, Signals

LEAST_GPUS = 3
ALL_UTIL = 80.0
LEAST_POINTS = 15.0
MAD_FACTOR = 3.0 * 1.4826
"""Three standard deviations of normal noise, by the median absolute deviation."""
FOR_S = 60.0


class Peers:
    """Remembers since when a GPU has done more than its peers."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, int], float] = {}

    def observe(self, signals: Sequence[Signals], ticks: Mapping[int, HostTick]) -> dict[int, Peer]:
        """The comparison within the job of each GPU, by GPU index."""
        jobs: dict[str, list[Signals]] = {}
        if len(signals) >= LEAST_GPUS:
            for s in signals:
                tick = ticks.get(s.gpu)
                key = job_of(tick) if tick is not None and s.n >= s.least else None
                if key is not None:
                    jobs.setdefault(key, []).append(s)
        since: dict[tuple[str, int], float] = {}
        found: dict[int, Peer] = {}
        for key, members in jobs.items():
            peer = _outlier(members)
            if peer is None:
                continue
            begun = (key, peer.straggler)
            straggler = next(s for s in members if s.gpu == peer.straggler)
            since[begun] = self._since.get(begun, straggler.t - straggler.covered_s)
            if straggler.t - since[begun] >= FOR_S:
                found.update({s.gpu: peer for s in members})
        self._since = since
        return found


def job_of(tick: HostTick) -> str | None:
    """The key that processes of one job share: batch job, process, or launcher with NCCL and command."""
    p = tick.primary
    if p is None:
        return None
    if p.static.job:
        return f"job {p.static.job}"
    if p.nccl is not False and p.static.job_key:
        return f"command {p.static.job_key}"
    if p.ppid is not None and p.ppid > 1:
        return f"parent {p.ppid} {p.static.job_key}"
    return f"pid {p.pid}"


def _outlier(members: Sequence[Signals]) -> Peer | None:
    if len(members) < LEAST_GPUS or min(s.u for s in members) < ALL_UTIL:
        return None
    values = {s.gpu: s.sm for s in members if s.sm is not None}
    measure = "SM"
    if len(values) < len(members):
        values = {s.gpu: 100.0 * s.power for s in members if s.power is not None}
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
    return Peer(top, measure, values[top], middle, len(members))
