"""GPU jobs that take cores for which another GPU's job queues.

The scan for other users of the cores leaves out the GPUs' own process trees, which are measured all the time: the use
of another job's tree is known from its own window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputop.diagnosis.jobs.stragglers import job_of
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.window.host_activity import GpuHostActivity
from gputop.model.feeders import Outsider

QUEUED = 0.3
"""Share of the window that a loader or the main thread queues for a core from which on other jobs are looked at."""
LEAST_CORES = 0.5


def takers(
    signals: Sequence[Signals], ticks: Mapping[int, GpuHostActivity]
) -> dict[int, tuple[Outsider, ...]]:
    """Other jobs that take the cores of a GPU's job, by GPU index."""
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
        others = [
            _job(ticks, trees) for key, trees in jobs.items() if key != job_of_gpu.get(s.index)
        ]
        others = [job for job in others if job.cpu_pct >= 100.0 * LEAST_CORES]
        if others:
            everybody = sorted((*s.host.outsiders, *others), key=lambda outsider: -outsider.cpu_pct)
            takers_of_gpu[s.index] = tuple(everybody)
    return takers_of_gpu


def _queued(s: Signals) -> float:
    """Largest share of the window queued for a core.

    Of the loader that queues most, or of the main thread.
    """
    busiest = 0.0 if s.host.feeders is None else s.host.feeders.busiest.queued
    return max(busiest, s.host.mean.queued or 0.0, s.host.mean.main_queued or 0.0)


def _job(
    ticks: Mapping[int, GpuHostActivity], trees: Mapping[int, tuple[float, Signals]]
) -> Outsider:
    """One job, named after the largest of its process trees."""
    _, largest = max(trees.values(), key=lambda tree: tree[0])
    primary = ticks[largest.index].primary
    user = None if primary is None else primary.static.user
    cores = sum(cores for cores, _ in trees.values())
    return Outsider(
        (user or "?").replace(" ", "_"),
        largest.tick.name,
        100.0 * cores,
        largest.tick.pid,
        largest.index,
    )
