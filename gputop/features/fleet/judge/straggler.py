"""Find the GPU of a job for which the others wait. Pure.

Takes the readings of GPUs that are there, means over five minutes; returns one ``Straggler`` a job at most.

The thresholds are the node's. In a synchronous job ranks that wait spin in NCCL at low SM activity: the straggler does
more. Or it starves, while all others are busy. Announced step times come first; ranks that wait for each other in every
step take equal time, so their own part of a step counts, where all announce it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.jobs.stragglers import (
    ALL_UTIL,
    LEAST_GPUS,
    LEAST_POINTS,
    MAD_FACTOR,
    STEP_FACTOR,
)
from gputop.diagnosis.thresholds import HEALTHY_SM
from gputop.features.fleet.exporter_names import group_of
from gputop.features.fleet.fleet_reading import GpuReading, JobName

Kind = Literal["slow", "starved"]
By = Literal["step", "own_step", "sm", "power", "util"]


class Straggler(Struct, frozen=True):
    """A GPU, or a host's GPUs, that hold their job up.

    ``value`` and ``median`` are its own and the others' percent of SM activity or utilisation, watts, or seconds of a
    step; with ``own_step`` without the wait in it. ``gpu`` is empty for a host.
    """

    host: str
    gpu: str
    job: JobName
    user: str
    kind: Kind
    by: By
    value: float
    median: float
    gpus: int
    """GPUs of the job, this one among them."""
    size: int = 1
    """Number of GPUs of the host that straggle."""
    others_wait: bool = False
    """Whether the others are known to wait: busy ones whose SM activity is below that of work."""

    @property
    def key(self) -> str:
        """Identifies the straggler among all."""
        return f"{self.host}\t{self.gpu}"

    @property
    def where(self) -> str:
        """The place for people."""
        return f"{self.host} GPU {self.gpu}" if self.gpu else f"all of {self.host}"

    @property
    def words(self) -> str:
        """The values for people: its own, and the others'."""
        if self.by in ("step", "own_step"):
            # Both in one unit.
            scale, unit = (1.0, "s") if self.value >= 0.9995 else (1000.0, "ms")
            digits = 0 if 0.1 <= self.value < 0.9995 else 2 if unit == "s" else 1
            own, others = (
                f"{seconds * scale:.{digits}f} {unit}" for seconds in (self.value, self.median)
            )
            return f"{self.by.replace('_', ' ')} {own}, the others' {others}"
        name, unit = {"sm": ("SM ", ""), "power": ("", " W")}.get(self.by, ("util ", ""))
        verb = "wait" if self.others_wait and self.kind == "slow" else "are"
        return f"{name}{self.value:.0f}{unit}, the others {verb} at {self.median:.0f}{unit}"


def stragglers(gpus: Iterable[GpuReading]) -> list[Straggler]:
    """The straggler of each job, the widest gap first.

    GPUs without a job are in none. MIG instances do not wait for each other, and are not compared.
    """
    jobs: dict[JobName, list[GpuReading]] = {}
    for gpu in gpus:
        if gpu.job and gpu.util_pct is not None and not gpu.mig:
            jobs.setdefault(group_of(gpu.job), []).append(gpu)
    found = [
        _witnessed(late, members)
        for members in jobs.values()
        if (late := _of_hosts(members)) is not None
    ]
    # Gaps as a ratio, in any unit.
    return sorted(
        found,
        key=lambda late: abs(late.value - late.median) / max(late.value, late.median, 1e-9),
        reverse=True,
    )


def _witnessed(late: Straggler, members: Sequence[GpuReading]) -> Straggler:
    """Add whether the others wait: ranks in NCCL spin at low SM activity."""
    others = [gpu for gpu in members if gpu.host != late.host or (late.gpu and gpu.gpu != late.gpu)]
    sms = [gpu.sm_active_pct for gpu in others if gpu.sm_active_pct is not None]
    spin = len(sms) == len(others) and median(sms) < HEALTHY_SM
    return replace(
        late, others_wait=late.by in ("own_step", "power") or (late.by != "step" and spin)
    )


def _of_hosts(members: Sequence[GpuReading]) -> Straggler | None:
    """The straggler of a job: one GPU, or all GPUs of one host.

    A host straggles where each of its GPUs would be a straggler beside the other hosts' GPUs.
    """
    late = _of_job(members)
    idlers = {gpu.host for gpu in members if (gpu.util_pct or 0.0) < ALL_UTIL}
    host = late.host if late is not None else next(iter(idlers)) if len(idlers) == 1 else ""
    own, others = (
        [gpu for gpu in members if (gpu.host == host) == is_own] for is_own in (True, False)
    )
    if len(own) < 2 or not others:
        return late
    alone = [
        one for gpu in own if (one := _of_job([*others, gpu])) is not None and one.host == host
    ]
    if len(alone) < len(own) or len({(one.kind, one.by) for one in alone}) > 1:
        return late
    value = median(one.value for one in alone)
    return replace(alone[0], gpu="", value=value, gpus=len(members), size=len(own))


def _of_job(members: Sequence[GpuReading]) -> Straggler | None:
    if len(members) < LEAST_GPUS:
        return None
    slow = _by_steps(members)
    if slow is not None:
        return slow
    least, util, others = _split_at_greatest([-(gpu.util_pct or 0.0) for gpu in members])
    if -max(others) < ALL_UTIL:
        return None
    if -util >= ALL_UTIL:
        return _slow(members)
    middle = -median(others)
    return (
        _straggler(members, least, "starved", "util", -util, middle)
        if middle + util > LEAST_POINTS
        else None
    )


def _split_at_greatest(values: Sequence[float]) -> tuple[int, float, list[float]]:
    """Position and value of the greatest, and the others."""
    at = max(range(len(values)), key=values.__getitem__)
    return at, values[at], [value for i, value in enumerate(values) if i != at]


def _by_steps(members: Sequence[GpuReading]) -> Straggler | None:
    """The rank whose steps take longer; their own part where all announce it."""
    ranks = [gpu for gpu in members if gpu.step_s is not None]
    if len(ranks) < LEAST_GPUS:
        return None
    own_steps = [gpu.own_step_s for gpu in ranks if gpu.own_step_s is not None]
    is_own = len(own_steps) == len(ranks)
    at, longest, others = _split_at_greatest(
        own_steps if is_own else [gpu.step_s or 0.0 for gpu in ranks]
    )
    middle = median(others)
    if longest <= STEP_FACTOR * middle:
        return None
    late = _straggler(ranks, at, "slow", "own_step" if is_own else "step", longest, middle)
    return replace(late, gpus=len(members))


def _slow(members: Sequence[GpuReading]) -> Straggler | None:
    """The GPU that does more than the others, while all are busy."""
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
    at, value, others = _split_at_greatest(values)
    middle = median(others)
    spread = median(abs(other - middle) for other in others)
    if (value - middle) * scale <= max(LEAST_POINTS, MAD_FACTOR * spread * scale):
        return None
    return _straggler(members, at, "slow", by, value, middle)


def _straggler(
    members: Sequence[GpuReading], at: int, kind: Kind, by: By, value: float, middle: float
) -> Straggler:
    gpu = members[at]
    return Straggler(
        gpu.host, gpu.gpu, group_of(gpu.job), gpu.user, kind, by, value, middle, len(members)
    )
