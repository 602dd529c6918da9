"""Which GPU of a job holds the others up. Pure; the definition is the node's own, see ``diagnosis.peers``.

In a synchronous job those who wait spin in NCCL at low SM activity: the straggler is the one that does more. Or it is
the one that starves, while all others are busy. Where ranks announce their steps, the one whose steps take longer comes
first. Ranks that wait for each other in every step take equal time: where they say how long they waited, their
own time counts, else only those are found that do not wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Literal

from msgspec import Struct

from gputop.diagnosis.peers import ALL_UTIL, LEAST_GPUS, LEAST_POINTS, MAD_FACTOR
from gputop.fleet.names import group_of
from gputop.fleet.reading import GpuReading

Kind = Literal["slow", "starved"]
By = Literal["step", "own_step", "sm", "power", "util"]
STEP_FACTOR = 1.1
"""A rank whose steps take this many times the others' holds its job up."""


class Straggler(Struct, frozen=True):
    """``value`` is what it does, ``median`` what the others do: percent of SM activity or utilisation, watts, or a
    step's seconds, with ``own_step`` without what it waited."""

    host: str
    gpu: str
    job: str
    user: str
    kind: Kind
    by: By
    value: float
    median: float
    gpus: int
    """GPUs of the job, this one among them."""


def stragglers(gpus: Iterable[GpuReading]) -> list[Straggler]:
    """The stragglers of every job that a GPU names; the widest gap first. A GPU without a job is in none."""
    jobs: dict[str, list[GpuReading]] = {}
    for gpu in gpus:
        if gpu.job and gpu.util_pct is not None:
            jobs.setdefault(group_of(gpu.job), []).append(gpu)
    found = [one for members in jobs.values() if (one := _of_job(members)) is not None]
    return sorted(found, key=_width, reverse=True)


def _width(one: Straggler) -> float:
    """How far it is off, as a ratio in any unit."""
    return abs(one.value - one.median) / max(one.value, one.median, 1e-9)


def _of_job(members: Sequence[GpuReading]) -> Straggler | None:
    if len(members) < LEAST_GPUS:
        return None
    slow = _by_steps(members)
    if slow is not None:
        return slow
    utils = [gpu.util_pct or 0.0 for gpu in members]
    least = min(range(len(members)), key=utils.__getitem__)
    others = [util for i, util in enumerate(utils) if i != least]
    if min(others) < ALL_UTIL:
        return None
    if utils[least] < ALL_UTIL:
        middle = median(others)
        late = middle - utils[least] > LEAST_POINTS
        return _told(members, least, "starved", "util", utils[least], middle) if late else None
    return _slow(members)


def _by_steps(members: Sequence[GpuReading]) -> Straggler | None:
    """The one whose steps take longer, among those that announce them: their own time where all of these know it."""
    steps = [(gpu.step_s, i) for i, gpu in enumerate(members) if gpu.step_s is not None]
    own = [(gpu.own_step_s, i) for i, gpu in enumerate(members) if gpu.own_step_s is not None]
    if len(steps) < LEAST_GPUS:
        return None
    by: By = "own_step" if len(own) == len(steps) else "step"
    if by == "own_step":
        steps = own
    longest, at = max(steps)
    middle = median(step for step, i in steps if i != at)
    if longest <= STEP_FACTOR * middle:
        return None
    return _told(members, at, "slow", by, longest, middle)


def _slow(members: Sequence[GpuReading]) -> Straggler | None:
    """The one that does more than the others, while all are busy."""
    by: By = "sm"
    values = [gpu.sm_active_pct for gpu in members if gpu.sm_active_pct is not None]
    scale = 1.0
    if len(values) < len(members):
        by = "power"
        values = [gpu.power_w for gpu in members if gpu.power_w is not None]
        # Percent of the highest power draw: exporters of a fleet seldom give the limit.
        scale = 100.0 / max(values, default=1.0) if max(values, default=0.0) > 0 else 0.0
    if len(values) < len(members):
        return None
    top = max(range(len(members)), key=values.__getitem__)
    others = [value for i, value in enumerate(values) if i != top]
    middle = median(others)
    spread = median(abs(value - middle) for value in others)
    if (values[top] - middle) * scale <= max(LEAST_POINTS, MAD_FACTOR * spread * scale):
        return None
    return _told(members, top, "slow", by, values[top], middle)


def _told(
    members: Sequence[GpuReading],
    at: int,
    kind: Kind,
    by: By,
    value: float,
    middle: float,
) -> Straggler:
    gpu = members[at]
    return Straggler(gpu.host, gpu.gpu, group_of(gpu.job), gpu.user, kind, by, value, middle, len(members))
