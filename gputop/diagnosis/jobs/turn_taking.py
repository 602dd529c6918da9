"""GPUs of one process or job that take turns.

A model that is spread over GPUs layer by layer (``device_map="auto"``), a pipeline without micro-batches and a
dispatcher that gives one engine after the other something to do look alike: util adds up to about 100 % in nearly every
sample. Where turns are shorter than a sample, only that sum tells.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from gputop.diagnosis import thresholds
from gputop.diagnosis.jobs.stragglers import job_of
from gputop.diagnosis.signals import Signals, Turns
from gputop.diagnosis.window.host_activity import GpuHostActivity

REMEMBERED_S = 120.0
"""Turns of half a minute are still seen [judged]."""
LEADS, WORKS_PCT = 0.8, 30.0
"""One GPU works in a sample where it has so much of the sum, and that is so high [judged]."""
LEAST_HANDOVERS = 2
FAIR_SHARE = 0.3
"""Where turns are shorter than a sample, each GPU has at least so much of its fair share [judged]."""


class _Sample(NamedTuple):
    t: float
    gpus: list[int]
    utils: list[float]
    total: float


class TurnDetector:
    """Follows the util of the GPUs that share a process or a job."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[_Sample]] = {}

    def observe(
        self, t: float, signals: Sequence[Signals], ticks: Mapping[int, GpuHostActivity]
    ) -> dict[int, Turns]:
        """Return the turns by the index of each GPU that takes part in them."""
        groups: dict[str, list[Signals]] = {}
        for s in signals:
            tick = ticks.get(s.index)
            if (
                tick is None
                or tick.primary is None
                or s.gpu.static.mig_parent is not None
                or not s.util_known
            ):
                continue
            for key in {f"pid {tick.primary.pid}", job_of(tick)}:
                if key is not None:
                    groups.setdefault(key, []).append(s)
        self._samples = {
            key: self._samples.get(key, deque()) for key, group in groups.items() if len(group) > 1
        }
        turns_of_gpu: dict[int, Turns] = {}
        for key, samples in self._samples.items():
            group = groups[key]
            utils = [s.gpu.util_pct for s in group if s.gpu.util_pct is not None]
            gpus = [s.index for s in group]
            if len(utils) < len(group) or (samples and samples[-1].gpus != gpus):
                samples.clear()
            if len(utils) == len(group):
                samples.append(_Sample(t, gpus, utils, sum(utils)))
            while samples and samples[0].t <= t - REMEMBERED_S:
                samples.popleft()
            if (
                len(samples) >= group[0].min_samples
                and (turns := _turns(samples, group)) is not None
            ):
                turns_of_gpu.update(dict.fromkeys(turns.gpus, turns))
        return turns_of_gpu


def _turns(samples: Sequence[_Sample], group: Sequence[Signals]) -> Turns | None:
    sums = [sample.total for sample in samples]
    share = sum([total <= thresholds.TURNS_SUM for total in sums]) / len(sums)
    mean = sum(sums) / len(sums)
    if share < thresholds.TURNS_SHARE or mean < thresholds.TURNS_SEEN_SUM:
        return None
    values = [sample.utils for sample in samples]
    is_one_process = len({s.tick.pid for s in group}) == 1
    leaders = [
        row.index(max(row))
        for row, total in zip(values, sums, strict=True)
        if total >= WORKS_PCT and max(row) >= LEADS * total
    ]
    handovers = sum(before != now for before, now in pairwise(leaders))
    is_seen = (
        handovers >= LEAST_HANDOVERS
        and len(leaders) >= 0.5 * sum(total >= WORKS_PCT for total in sums)
        and mean >= (thresholds.TURNS_SEEN_SUM if is_one_process else thresholds.TURNS_JOB_SUM)
        and len(set(leaders)) > 1
    )
    # Turns that are not seen: the sum is always that of one GPU, and each has its part.
    fair = mean / len(group)
    means = [sum(column) / len(values) for column in zip(*values, strict=True)]
    if not is_seen and (
        mean < thresholds.TURNS_FAST_SUM
        or sum(total >= thresholds.TURNS_FAST_SUM for total in sums)
        < thresholds.TURNS_SHARE * len(sums)
        or min(means) < FAIR_SHARE * fair
        or any(s.conditions.flag is not None for s in group)
    ):
        return None
    return Turns(
        gpus=tuple(sorted(s.index for s in group)),
        sum_pct=mean,
        share=share,
        is_seen=is_seen,
        is_one_process=is_one_process,
        has_nccl=all(s.tick.nccl for s in group),
        serve=any(
            s.tick.server is not None or s.host.served or (s.host.mean.listens or 0.0) >= 0.5
            for s in group
        ),
    )
