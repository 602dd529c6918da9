"""The PromQL of each question to a fleet.

A query is a function of a ``promql.Scope`` that gives PromQL: ``q.gpu("sm")`` is a signal of every GPU in base units,
``q.mean`` its mean over the window of a state, ``q.series`` a series by its own name, ``q.record`` one that the rules
record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from gputop.diagnosis.jobs.stragglers import (
    ALL_UTIL,
    LEAST_GPUS,
    LEAST_POINTS,
    MAD_FACTOR,
    STEP_FACTOR,
)
from gputop.diagnosis.thresholds import MEMORY_DRAM, MEMORY_UTIL
from gputop.diagnosis.types import State
from gputop.diagnosis.window.sample_facts import PCIE_LANE_BYTES, PCIE_USABLE
from gputop.features.fleet.fleet_reading import HOUR_S, GpuState
from gputop.features.fleet.judge.gpu_state import FLEET_NOT_WORK, GPU_STATES
from gputop.features.fleet.judge.state_rules import (
    HOST_GPUS,
    IDENTITY,
    IN_STATE,
    JOB_LOST,
    OWNER_LABELS,
    TARGETS,
    in_state,
    share,
)
from gputop.features.fleet.promql import (
    Scope,
    any_of,
    equal,
    hour_of,
    marked,
    mean_seconds,
    union,
    unwritten,
    window,
)

Query = Callable[[Scope], str]
"""Writes PromQL for a scope."""
_LANE = f"{PCIE_LANE_BYTES[3] / 1e9:g}e9"
"""Bytes a second of one PCIe lane in generation 3, one direction: each next one doubles them."""
_STARVED_VERDICTS = (
    'verdict=~"pcie_transfer|dataloader_.*|main_process|worker_restart|checkpoint_pause|kv_cache_full|'
    'starved_unattributed"'
)
_HELD_DOWN = ("hardware_thermal", "software_thermal", "hardware_slowdown", "power_brake")
_XID_S, _DAY_S = 600.0, 86400.0
"""How long an Xid is new, and a GPU or a target missed."""


def _own_state(q: Scope, state: State) -> str:
    return q.says("gputop_gpu_state", state=state)


def _own_mean(q: Scope, series: str) -> str:
    return q.per_gpu(q.over("avg_over_time", q.series(series)))


def _within_day(q: Scope, record: str) -> str:
    """The decrease of a recorded count from its daily maximum."""
    return f"{q.over('max_over_time', q.record(record), _DAY_S)} - {q.record(record)} > 0"


def _own_xids(q: Scope) -> str:
    xids = q.series("gputop_gpu_xid_errors_total")
    risen, first = q.over("increase", xids, _XID_S), f"{xids} unless {xids} offset {window(_XID_S)}"
    return (
        f"sum by ({q.gpu_labels}, xid) ({risen}) > 0 or sum by ({q.gpu_labels}, xid) ({first}) > 0"
    )


def _dcgm_xid(q: Scope) -> str:
    xid = q.series("DCGM_FI_DEV_XID_ERRORS")
    changed, now, before = map(
        q.per_gpu, (q.over("changes", xid, _XID_S), xid, f"{xid} offset {window(_XID_S)}")
    )
    return (
        f"{q.per_gpu(f'{xid} > 0')} and on ({q.gpu_labels}) ({changed} > 0 or ({now} unless "
        f"{before}))"
    )


def _throttled(q: Scope) -> str:
    """Two jobs that scrape one exporter are one."""
    seconds = q.series("gputop_gpu_throttle_seconds_total", any_of("reason", _HELD_DOWN))
    return f"sum by ({q.gpu_labels}) ({q.per_gpu(q.over('rate', seconds), 'reason')})"


# As in ``straggler.stragglers``: looking for the lowest SM activity would name those that wait. GPUs are compared
# within one job, by the median and the median absolute deviation: the straggler itself would move a mean.
_JOB = "cluster, workload"
_POINTS, _BUSY = share(LEAST_POINTS), share(ALL_UTIL)


def _above(q: Scope, word: str) -> str:
    """How far a GPU's signal lies above the median of its job."""
    return f"({q.of_jobs(word)} - on ({_JOB}) group_left () {_median(q.of_jobs(word))})"


def _median(expr: str, by: str = _JOB) -> str:
    return f"quantile by ({by}) (0.5, {expr})"


def _enough(q: Scope) -> str:
    """Jobs of enough GPUs to say that one of them differs."""
    return f"(count by ({_JOB}) ({q.of_jobs('util')}) >= {LEAST_GPUS})"


def _slow(q: Scope) -> str:
    all_busy = f"(min by ({_JOB}) ({q.of_jobs('util')}) >= {_BUSY})"
    above = _above(q, "sm")
    ordinary = f"{MAD_FACTOR:g} * {_median(f'abs({above})')}"
    return (
        f"({above} > {_POINTS}) and on ({_JOB}) {all_busy} and on ({_JOB}) {_enough(q)} "
        f"unless ({above} <= on ({_JOB}) group_left () {ordinary})"
    )


def _starved(q: Scope) -> str:
    """One GPU below the others of its job, or all GPUs of one host of it."""
    utils, hosts = q.of_jobs("util"), f"count by ({_JOB}, {q.host})"
    low = f"{utils} < {_BUSY}"
    one_gpu = f"(count by ({_JOB}) ({low}) == 1)"
    whole_host = f"count by ({_JOB}) ({hosts} ({low}) == {hosts} ({utils})) == 1"
    one_host = (
        f"({whole_host} and on ({_JOB}) (count by ({_JOB}) ({hosts} ({low})) == 1) "
        f"and on ({_JOB}) (count by ({_JOB}) ({hosts} ({utils})) > 1))"
    )
    below = f"({_above(q, 'util')} < -{_POINTS})"
    return f"{below} and on ({_JOB}) ({one_gpu} or {one_host}) and on ({_JOB}) {_enough(q)}"


def _steps(q: Scope) -> str:
    return mean_seconds(q, "gputop_step_seconds", "cluster, job_id, rank")


def _own_steps(q: Scope) -> str:
    return f"{_steps(q)} - {mean_seconds(q, 'gputop_step_wait_seconds', 'cluster, job_id, rank')}"


def _outlying(steps: str) -> str:
    return (
        f"({steps}) / on (cluster, job_id) group_left () {_median(steps, 'cluster, job_id')} > "
        f"{STEP_FACTOR:g}"
    )


def _minutes(q: Scope, *matchers: str, by: str = "cluster", series: str = IN_STATE) -> str:
    """The GPU-minutes of the last hour, as recorded each minute.

    Divided by the number of writers: two that record into one engine write each minute twice. A host that was there
    all hour has 60 samples of each writer.
    """
    minutes = hour_of("sum_over_time", q.record(series, *matchers))
    counts = union(hour_of("count_over_time", q.record(name)) for name in (HOST_GPUS, series))
    return (
        f"(sum by ({by}) ({minutes}) / on (cluster) group_left () clamp_min(max by (cluster) "
        f"({counts}) / 60, 1))"
    )


def _by_job(q: Scope) -> str:
    return f"{_minutes(q, by=', '.join(('cluster', *OWNER_LABELS)), series=JOB_LOST)} / 60"


_MEASURED = 'state!="unmeasured"'


def _in_hours(q: Scope, state: GpuState) -> str:
    return f"{_minutes(q, equal('state', state))} / 60"


def _no_work(q: Scope) -> str:
    """GPU-minutes of the last hour that were no work."""
    return _minutes(q, series=JOB_LOST)


def _everywhere(query: Query) -> tuple[Query, Query]:
    """A query that is the same under all names."""
    return query, query


QUERIES: Mapping[str, tuple[Query, Query | None]] = MappingProxyType({
    "down": _everywhere(lambda q: f"{q.over('max_over_time', q.up(), q.least_s)} == 0"),
    "absent": _everywhere(lambda q: f"absent({q.up()})"),
    "fewer_targets": _everywhere(partial(_within_day, record=TARGETS)),
    "late": (lambda q: f"{q.series('gputop_up')} == 0", None),
    "dead": (unwritten, None),
    "vanished": _everywhere(partial(_within_day, record=HOST_GPUS)),
    "lost": (lambda q: q.says("gputop_gpu_lost"), None),
    "temperature": _everywhere(lambda q: q.gpu("temp")),
    "throttled": (_throttled, None),
    "ecc_uncorrected": (
        lambda q: f"sum by ({q.gpu_labels}) ({q.over('increase', q.exported('ecc_uncorrected_volatile'), HOUR_S)}) > 0",
        lambda q: f"{q.gpu('ecc', 'increase', HOUR_S)} > 0",
    ),
    "xid": (_own_xids, _dcgm_xid),
    "row_remap": (
        lambda q: f"{q.per_gpu(union(map(q.series, ('gputop_gpu_remap_pending', 'gputop_gpu_remap_failed'))))} == 1",
        lambda q: f"{q.per_gpu(q.series('DCGM_FI_DEV_ROW_REMAP_FAILURE'))} > 0",
    ),
    "utilization": _everywhere(lambda q: q.gpu("util")),
    "sm_active": _everywhere(lambda q: q.gpu("sm")),
    **{word: _everywhere(partial(Scope.gpu, word=word)) for word in ("occupancy", "tensor", "dram", "power")},
    "memory_share": _everywhere(lambda q: f"{q.gpu('memory')} / {q.gpu('memory_total')}"),
    "cluster_power": _everywhere(lambda q: f"sum({q.gpu('power')} * on ({q.gpu_labels}) {q.record(IDENTITY)})"),
    "energy": _everywhere(lambda q: f"sum by ({q.host}) ({q.gpu('energy', 'increase', HOUR_S)})"),
    "steps_per_second": (
        lambda q: f"sum by (cluster, job_id, rank) ({q.over('rate', q.series('gputop_step_seconds_count'))})", None,
    ),
    "samples_per_second": (
        lambda q: f"sum by (cluster, job_id) ({q.over('rate', q.series('gputop_step_samples_total'))})", None,
    ),
    "step_seconds": (_steps, None),
    "efficiency": _everywhere(lambda q: f"{q.mean('sm')} / ({q.mean('util')} > 0.1)"),
    "gap": (
        lambda q: f"(({q.mean('util')} - {q.mean('sm')}) or {q.mean('util')}) "
        f"and on ({q.gpu_labels}) ({_own_state(q, 'busy_not_working')})",
        lambda q: f"({q.mean('util')} - {q.mean('sm')}) and {in_state(q, 'busy_not_working')}",
    ),
    "memory_bound": _everywhere(
        lambda q: f"{q.mean('dram')} and ({q.mean('dram')} >= {share(MEMORY_DRAM)}) "
        f"and ({q.mean('util')} >= {share(MEMORY_UTIL)})"
    ),
    "pcie_saturation": _everywhere(
        lambda q: f"({q.mean('pcie_rx')} > {q.mean('pcie_tx')} or {q.mean('pcie_tx')}) / "
        f"({_LANE} * 2 ^ ({q.gpu('pcie_gen')} - 3) * {PCIE_USABLE} * {q.gpu('pcie_width')})"
    ),
    "communication": (
        lambda q: q.says("gputop_gpu_verdict", verdict="communication"),
        lambda q: f"{q.mean('nvlink_rx')} and {in_state(q, 'busy_not_working')} and ({q.mean('nvlink_rx')} > 1e9)",
    ),
    "hang": (lambda q: q.says("gputop_gpu_verdict", verdict="hang"), None),
    "starved_by_cause": (
        lambda q: f"count by (cluster, verdict) ({q.series('gputop_gpu_verdict', _STARVED_VERDICTS)} == 1)", None,
    ),
    "starved": (
        lambda q: f"{_own_mean(q, 'gputop_gpu_idle_ratio')} and on ({q.gpu_labels}) ({_own_state(q, 'starved')})",
        lambda q: f"(1 - {q.mean('util')}) and {in_state(q, 'starved')}",
    ),
    "loaders_waiting": (lambda q: f"{_own_mean(q, 'gputop_loader_queued_ratio')} > 0.1", None),
    "loaders_on_disk": (lambda q: f"{_own_mean(q, 'gputop_loader_disk_ratio')} > 0.1", None),
    "straggler_slow": _everywhere(_slow),
    "straggler_starved": _everywhere(_starved),
    "straggler_step": (lambda q: _outlying(_steps(q)), None),
    "straggler_own_step": (lambda q: _outlying(_own_steps(q)), None),
    "gpus_by_state": _everywhere(
        lambda q: union(marked(f"count by (cluster) ({in_state(q, state)})", "state", state) for state in GPU_STATES)
    ),
    **{f"hours_{state}": _everywhere(partial(_in_hours, state=state)) for state in FLEET_NOT_WORK},
    "hours_total": _everywhere(lambda q: f"{_minutes(q)} / 60"),
    "unmeasured": (
        lambda q: "count by (cluster, source) "
        f"({q.per_gpu(q.series('gputop_sm_source', any_of('source', ('bound', 'none'))), 'source')})",
        lambda q: f"count by (cluster) ({q.gpu('util')} unless {q.gpu('sm')})",
    ),
    "waste_by_job": _everywhere(_by_job),
    "idle_with_memory": (
        lambda q: f"{q.gpu('memory')} and on ({q.gpu_labels}) ({_own_state(q, 'idle_allocated')})",
        lambda q: f"{q.gpu('memory')} and {in_state(q, 'idle_allocated')}",
    ),
    "allocated_unused": _everywhere(lambda q: f"{in_state(q, 'allocated_unused')} * 0 + 1"),
    "waste_share": _everywhere(lambda q: f"{_no_work(q)} / {_minutes(q, _MEASURED)}"),
    "cost_no_work": _everywhere(lambda q: f"{_no_work(q)} / 60 * {q.price}"),
    "cost_by_job": _everywhere(lambda q: f"{_by_job(q)} * {q.price}"),
})  # fmt: skip
"""Question → its query for gputop's exporter, and for dcgm-exporter, which cannot answer where it is None."""
