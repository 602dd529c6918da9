"""Demand of a job seen as a whole, and the ranks that hold a job up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from gputop.diagnosis.signals import BusyWait, Signals
from gputop.model.quantity import count

OLD_ENOUGH_S = 600.0
"""Age from which on a server that has not been seen at work has loaded its model [judged]."""
LOADS_BYTES_PER_S = 1e6
"""A server that reads more still loads [judged]."""
BUSY_CORES = 0.5


def demand_of_jobs(signals: Sequence[Signals], spins: Mapping[int, BusyWait]) -> dict[int, str]:
    """Return by GPU why its whole job waits for requests, in words.

    Ranks of a server wait in a broadcast of the one that takes requests: their GPUs look busy.
    """
    demand: dict[int, str] = {}
    waiting: Counter[int] = Counter()
    for index, spin in spins.items():
        if spin.serving is None or spin.is_hang:
            continue
        waiting[spin.serving] += 1
        demand[index] = f"it waits in a broadcast for GPU {spin.serving}, which waits for requests"
    for index, number in waiting.items():
        demand[index] = (
            f"it waits for requests; {count(number, 'other GPU')} of its job wait with it"
        )
    busy_jobs = {s.tick.job.loose_key for s in signals if s.tick.job is not None and not s.quiet}
    for s in signals:
        is_busy_elsewhere = s.tick.job is not None and s.tick.job.loose_key in busy_jobs
        if s.index not in demand and not is_busy_elsewhere and polls_for_requests(s):
            used = f"uses {cores_of(s):.1f} cores"
            demand[s.index] = f"{s.tick.server} waits for requests and {used}"
    return demand


def polls_for_requests(s: Signals) -> bool:
    """True if a server that has loaded its model polls on a core, and its GPU is idle."""
    if s.tick.server is None or not s.quiet or s.samples < s.min_samples:
        return False
    still_loads = known(s.tick.read_bytes) >= LOADS_BYTES_PER_S
    if still_loads or cores_of(s) < BUSY_CORES:
        return False
    return known(s.tick.age_s) >= OLD_ENOUGH_S


def cores_of(s: Signals) -> float:
    """Cores that the processes of a GPU use."""
    return max(known(s.host.mean.tree), known(s.host.mean.main))


def known(value: float | None) -> float:
    """Return the value, or 0 for one that is not measured."""
    return 0.0 if value is None else value


def holds_up(spins: Mapping[int, BusyWait]) -> dict[int, int]:
    """Return by GPU how many others hang and wait for it."""
    waiting: Counter[int] = Counter()
    for spin in spins.values():
        if spin.is_hang:
            waiting.update({rank.gpu for rank in spin.behind})
    return dict(waiting)
