"""Other GPU jobs on the machine that take the cores which a job queues for. Pure.

The scan for whoever else uses the cores leaves out the GPUs' own trees, which are measured all the time: what those of
another job take is known from their own windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputop.diagnosis.host import HostTick
from gputop.diagnosis.peers import job_of
from gputop.diagnosis.signals import Signals
from gputop.model.feeders import Outsider

QUEUED = 0.3
"""Share of the window that a loader or the main thread queues for a core from which on other jobs are looked at."""
LEAST_CORES = 0.5


def takers(signals: Sequence[Signals], ticks: Mapping[int, HostTick]) -> dict[int, tuple[Outsider, ...]]:
    """Who takes the cores that a GPU's job queues for, by GPU index, where other GPU jobs are among them."""
    short = [s for s in signals if _queued(s) >= QUEUED]
    if not short:
        return {}
    jobs: dict[str, dict[int, tuple[float, Signals]]] = {}
    own: dict[int, str] = {}
    for s in signals:
        tick = ticks.get(s.gpu)
        key = None if tick is None else job_of(tick)
        if key is None or s.pid is None:
            continue
        own[s.gpu] = key
        # A process on several GPUs has one tree, which counts once.
        jobs.setdefault(key, {}).setdefault(s.pid, (s.tree_cores or 0.0, s))
    found = {}
    for s in short:
        others = [_job(ticks, trees) for key, trees in jobs.items() if key != own.get(s.gpu)]
        others = [job for job in others if job.cpu_pct >= 100.0 * LEAST_CORES]
        if others:
            everybody = sorted((*s.outsiders, *others), key=lambda outsider: -outsider.cpu_pct)
            found[s.gpu] = tuple(everybody)
    return found


def _queued(s: Signals) -> float:
    """Share of the window queued for a core by the loader that queues most, or by the main thread."""
    busiest = 0.0 if s.feeders is None else s.feeders.busiest.queued
    return max(busiest, s.queued or 0.0, s.main_queued or 0.0)


def _job(ticks: Mapping[int, HostTick], trees: Mapping[int, tuple[float, Signals]]) -> Outsider:
    """A job as one: named after the largest of its trees."""
    _, largest = max(trees.values(), key=lambda tree: tree[0])
    primary = ticks[largest.gpu].primary
    user = None if primary is None else primary.static.user
    cores = sum(cores for cores, _ in trees.values())
    return Outsider((user or "?").replace(" ", "_"), largest.name, 100.0 * cores, largest.pid, largest.gpu)
