"""Does every GPU of a job keep up.

In a synchronous job those that wait spin in NCCL: busy, at low SM activity. The one that holds them up does more than
the others, or starves while they spin. So looking for the lowest SM activity names the victims. GPUs are compared
only within one job, by the median and the median absolute deviation: the straggler itself would move a mean.
"""

from __future__ import annotations

from gputop.fleet.query import Alert, Planted, Query

_SM, _UTIL = "{job:sm.avg_over_time.w}", "{job:util.avg_over_time.w}"
_POINTS, _MADS = "0.15", "4.4478"
"""Least distance, and three standard deviations of normal noise by the MAD: 3 x 1.4826."""


def _median(of: str) -> str:
    return f"quantile by (workload) (0.5, {of})"


_ABOVE = f"({_SM} - on (workload) group_left () {_median(_SM)})"
_ALL_BUSY = f"(min by (workload) ({_UTIL}) >= 0.8)"
_THREE = f"(count by (workload) ({_UTIL}) >= 3)"
_WAITING = ({"util": 0.98, "sm": 0.12},) * 7
_EVEN = ({"util": 0.98, "sm": 0.62},) * 8
_OWN_STEP = " - ".join(
    f"sum by (job_id, rank) ({{{series}_sum.rate.5m}}) / sum by (job_id, rank) ({{{series}_count.rate.5m}} > 0)"
    for series in ("gputop_step_seconds", "gputop_step_wait_seconds")
)

QUERIES = (
    Query(
        "straggler_slow", "breadth", "GPUs that the others of their job wait for", "ratio",
        f"({_ABOVE} > {_POINTS}) and on (workload) {_ALL_BUSY} and on (workload) {_THREE} "
        f"unless ({_ABOVE} <= on (workload) group_left () "
        f"{_MADS} * {_median(f'abs({_ABOVE})')})",
        "All GPUs of the job are busy, and this one does more than the others: they wait for it in NCCL. The value is "
        "how far its SM activity lies above the median.",
        "Compare its clocks, temperature and link with the others'; uneven batches or layers; drain it if it is the "
        "hardware.",
        alert=Alert("GpuStragglerSlow", "", "1m", "warning",
                    Planted(({"util": 0.99, "sm": 0.9}, *_WAITING), has_job=True), Planted(_EVEN, has_job=True)),
    ),
    Query(
        "straggler_starved", "breadth", "GPUs that starve while their job spins", "ratio",
        f"(({_UTIL} - on (workload) group_left () {_median(_UTIL)}) < -{_POINTS}) "
        f"and on (workload) (count by (workload) ({_UTIL} < 0.8) == 1) and on (workload) {_THREE}",
        "One GPU of the job is not busy while all others are: they spin until it arrives. The value is how far its "
        "utilisation lies below the median.",
        "On its host gputop names what it waits for: loaders, disk, network or the main thread.",
        alert=Alert("GpuStragglerStarved", "", "1m", "warning",
                    Planted(({"util": 0.4, "sm": 0.35}, *_WAITING), has_job=True), Planted(_EVEN, has_job=True)),
    ),
    Query(
        "straggler_step", "breadth", "Ranks whose steps take longer", "ratio",
        "(sum by (job_id, rank) ({gputop_step_seconds_sum.rate.5m}) / "
        "sum by (job_id, rank) ({gputop_step_seconds_count.rate.5m} > 0)) "
        "/ on (job_id) group_left () quantile by (job_id) (0.5, "
        "sum by (job_id, rank) ({gputop_step_seconds_sum.rate.5m}) / "
        "sum by (job_id, rank) ({gputop_step_seconds_count.rate.5m} > 0)) > 1.1",
        "A rank's step against the median of its job, where ranks announce steps. Ranks that wait for each other have "
        "equal steps: this finds those that do not.",
        "See straggler_slow and straggler_starved for jobs that wait for each other in every step.", None,
    ),
    Query(
        "straggler_own_step", "breadth", "Ranks whose own part of a step takes longer", "ratio",
        f"({_OWN_STEP}) / on (job_id) group_left () quantile by (job_id) (0.5, {_OWN_STEP}) > 1.1",
        "A rank's step without what it waited for others, against the median of its job, where ranks announce both. "
        "The others wait for it in every step, so that all steps take equal time.",
        "On its host gputop names what it does; compare clocks, temperature and data there.", None,
    ),
    Query(
        "spread", "breadth", "Spread of SM activity within a job", "ratio",
        f"max by (workload) ({_SM}) - min by (workload) ({_SM})",
        "Between the busiest and the least busy GPU of a job. Large with a straggler, and in pipelines that are meant "
        "to be uneven.",
        "Then see which GPU stands out: straggler_slow.",
    ),
)  # fmt: skip
