"""GPUs of one job compared: the one that does more than the others is the straggler, and the others wait for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputop.diagnosis.host_side import GpuHostActivity
from gputop.diagnosis.signals import Peer, Signals
from gputop.model.feeders import Outsider

LEAST_GPUS = 3
ALL_UTIL = 80.0
LEAST_POINTS = 15.0
MAD_FACTOR = 3.0 * 1.4826
"""Three standard deviations of normal noise, by the median absolute deviation."""
FOR_S = 60.0
STEP_FACTOR = 1.1
"""A rank whose steps take this many times the others' holds its job up."""


class Peers:
    """Remembers since when a GPU has done more than its peers."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, int], float] = {}

    def observe(self, signals: Sequence[Signals], ticks: Mapping[int, GpuHostActivity]) -> dict[int, Peer]:
        """The comparison within the job of each GPU, by GPU index."""
        jobs: dict[str, list[Signals]] = {}
        if len(signals) >= LEAST_GPUS:
            for s in signals:
                tick = ticks.get(s.index)
                key = job_of(tick) if tick is not None and s.n >= s.least else None
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
    return Peer(top, measure, values[top], middle, len(members))


# Other GPU jobs on the machine that take the cores which a job queues for. Pure.
#
# The scan for other users of the cores leaves out the GPUs' own process trees, which are measured all the time: what
# those of another job take is known from their own windows.

QUEUED = 0.3
"""Share of the window that a loader or the main thread queues for a core from which on other jobs are looked at."""
LEAST_CORES = 0.5


def takers(signals: Sequence[Signals], ticks: Mapping[int, GpuHostActivity]) -> dict[int, tuple[Outsider, ...]]:
    """Who takes the cores that a GPU's job queues for, by GPU index, where other GPU jobs are among them."""
    short = [s for s in signals if _queued(s) >= QUEUED]
    if not short:
        return {}
    jobs: dict[str, dict[int, tuple[float, Signals]]] = {}
    job_of_gpu: dict[int, str] = {}
    for s in signals:
        tick = ticks.get(s.index)
        key = None if tick is None else job_of(tick)
        if key is None or s.tick.pid is None:
            continue
        job_of_gpu[s.index] = key
        # A process on several GPUs has one tree, which counts once.
        jobs.setdefault(key, {}).setdefault(s.tick.pid, (s.host.mean.tree or 0.0, s))
    takers_of_gpu = {}
    for s in short:
        others = [_job(ticks, trees) for key, trees in jobs.items() if key != job_of_gpu.get(s.index)]
        others = [job for job in others if job.cpu_pct >= 100.0 * LEAST_CORES]
        if others:
            everybody = sorted((*s.host.outsiders, *others), key=lambda outsider: -outsider.cpu_pct)
            takers_of_gpu[s.index] = tuple(everybody)
    return takers_of_gpu


def _queued(s: Signals) -> float:
    """Share of the window queued for a core by the loader that queues most, or by the main thread."""
    busiest = 0.0 if s.host.feeders is None else s.host.feeders.busiest.queued
    return max(busiest, s.host.mean.queued or 0.0, s.host.mean.main_queued or 0.0)


def _job(ticks: Mapping[int, GpuHostActivity], trees: Mapping[int, tuple[float, Signals]]) -> Outsider:
    """A job as one: named after the largest of its trees."""
    _, largest = max(trees.values(), key=lambda tree: tree[0])
    primary = ticks[largest.index].primary
    user = None if primary is None else primary.static.user
    cores = sum(cores for cores, _ in trees.values())
    return Outsider((user or "?").replace(" ", "_"), largest.tick.name, 100.0 * cores, largest.tick.pid, largest.index)
