"""GPU time that did no work.

Counted in GPU-hours. (1 - utilisation) x price, as it is often taught, trusts the number that is in doubt: a GPU that
is busy and not working costs as much. GPUs whose SM activity is not measured are counted apart, neither as waste nor
as work.
"""

from __future__ import annotations

from gputop.diagnosis.types import NOT_WORKING, STATE_WORDS
from gputop.fleet.query import Alert, Planted, Query

_OWN = 'gpu="0",uuid="GPU-0",instance="n1:9401"'
_NOT_WORK = "busy_not_working|starved|idle_allocated|idle"
_BUSY = "({util.avg_over_time.5m} >= 0.8) and ({sm.avg_over_time.5m} < 0.3)"
_IDLE = "({util.quantile_over_time.5m.0_95} < 0.05)"
_HELD = "({memory} >= 1073741824)"
_STARVED = f"(({{util.avg_over_time.5m}} <= 0.8) and {_HELD} unless {_IDLE})"
_PRESENT = {
    "busy_not_working": _BUSY,
    "starved": f"{_STARVED} unless ({_BUSY})",
    "idle_allocated": f"{_IDLE} and {_HELD}",
    "idle": f"{_IDLE} unless {_HELD}",
}
"""dcgm-exporter gives no verdicts, so a GPU's state follows from its numbers."""


def _no_work(of: str = "") -> str:
    """The part of each GPU's time that was not work: all of it while busy and not working, else what was idle."""
    util, sm = f"{{{of}util.avg_over_time.5m}}", f"{{{of}sm.avg_over_time.5m}}"
    return f"((({util} >= 0.8) and ({sm} < 0.3)) * 0 + 1) or ((1 - {util}) and ({util} < 0.8))"


def _state(id: str, state: str, title: str, meaning: str, advice: str) -> Query:
    own = f'sum({{gputop_gpu_state_seconds_total.increase.1h|state="{state}"}}) / 3600'
    return Query(
        id, "waste", title, "GPU-hours", own, meaning, advice,
        f"sum(count_over_time(({_PRESENT[state]})[1h:1m])) / 60",
    )  # fmt: skip


_BY_JOB = (
    "sum by (user, job_id, k8s_pod_uid) (max by (user, job_id, k8s_pod_uid, {by}) ({gputop_job_info}) "
    "* on ({by}) group_left () sum by ({by}) "
    f'({{gputop_gpu_state_seconds_total.increase.1h|state=~"{_NOT_WORK}"}}) '
    "/ on ({by}) group_left () count by ({by}) ({gputop_job_info})) / 3600"
)
QUERIES = (
    Query(
        "gpus_by_state", "waste", "GPUs by state", "GPUs",
        "count by (state) (max by ({by}, state) ({gputop_gpu_state}))",
        "The state that each GPU's time counts as now.", "Those that are not working come first: gap, starved.",
        'label_replace(count({util} unless {sm}), "state", "unmeasured", "", "") or '
        + " or ".join(f'label_replace(count({of}), "state", "{state}", "", "")' for state, of in _PRESENT.items()),
    ),
    _state("hours_busy_not_working", "busy_not_working", f"{NOT_WORKING.capitalize()}: last hour",
           "Kernels ran, the chip did not work. Counted second by second on the host by gputop; from dcgm-exporter's "
           "numbers minute by minute.", "See gap and the verdicts."),
    _state("hours_starved", "starved", "Starved: last hour",
           "A job held the GPU and no kernel ran.", "See starved_by_cause."),
    _state("hours_idle_allocated", "idle_allocated", f"{STATE_WORDS['idle_allocated'].capitalize()}: last hour",
           "Nothing runs and nobody else can use it: a forgotten notebook, usually.",
           "gputop shows whose process it is; ask, then end it."),
    _state("hours_idle", "idle", "Idle: last hour",
           "Nobody holds memory there and no kernel ran.", "Capacity, not waste of a job."),
    Query(
        "hours_total", "waste", "All GPUs: last hour", "GPU-hours",
        "sum({gputop_gpu_state_seconds_total.increase.1h}) / 3600", "The total of which the other states are parts.",
        "Nothing to do.", "sum(count_over_time({util}[1h:1m])) / 60",
    ),
    Query(
        "unmeasured", "waste", "GPUs without SM activity", "GPUs",
        'count by (source) ({gputop_sm_source|source=~"bound|none"})',
        "Nothing measures SM activity there, so it is unknown whether they work. Neither waste nor work.",
        "gputop doctor on the host says what would measure it. In dcgm-exporter add DCGM_FI_PROF_SM_ACTIVE to the "
        "counters file.",
        "count({util} unless {sm})",
    ),
    Query(
        "waste_by_job", "waste", "No work, by job and user: last hour", "GPU-hours", _BY_JOB,
        "Busy and not working, starved and idle. Jobs that share a GPU share what it wasted in equal parts.",
        "Start with the first: one job often wastes more than all others together.",
        f"sum by (workload) (sum_over_time(({_no_work('job:')})[1h:1m])) / 60",
    ),
    Query(
        "idle_with_memory", "waste", "Idle GPUs that hold memory", "bytes",
        "{memory.min_over_time.30m} and ({util.max_over_time.30m} < 0.05) "
        "and ({memory.min_over_time.30m} >= 1073741824)",
        "No kernel for half an hour, and at least 1 GiB held: nobody else can use it.",
        "Ask the owner; idle limits for notebooks.",
        alert=Alert("GpuIdleWithMemory", "", "30m", "info",
                    Planted(({"util": 0.0, "memory": 4e10},)), Planted(({"util": 0.0, "memory": 1e8},))),
    ),
    Query(
        "waste_share", "waste", "No work: share, last hour", "ratio",
        f'sum({{gputop_gpu_state_seconds_total.increase.1h|state=~"{_NOT_WORK}"}}) / '
        'sum({gputop_gpu_state_seconds_total.increase.1h|state!="unmeasured"})',
        "Of the time in which it is known. Unmeasured GPUs are in neither number.",
        "Track it by week: it is the number to bring down.", None,
        Alert("GpuFleetWasted", " > 0.5", "1h", "info",
              Planted(series=((f'gputop_gpu_state_seconds_total{{{_OWN},state="starved"}}', (0.0, 60.0)),
                              (f'gputop_gpu_state_seconds_total{{{_OWN},state="working"}}', (0.0, 10.0)))),
              Planted(series=((f'gputop_gpu_state_seconds_total{{{_OWN},state="starved"}}', (0.0, 10.0)),
                              (f'gputop_gpu_state_seconds_total{{{_OWN},state="working"}}', (0.0, 60.0))))),
    ),
    Query(
        "cost_no_work", "waste", "Cost of GPU time that did no work, last hour", "money",
        f'sum({{gputop_gpu_state_seconds_total.increase.1h|state=~"{_NOT_WORK}"}}) / 3600 * {{price}}',
        "GPU-hours that did no work, at the price of a GPU-hour that you gave: an assumption, so state the price "
        "beside the number. (1 - utilisation) x price counts a GPU that is busy and not working as work.",
        "Give your own price: --price 2.50.",
        f"sum(sum_over_time(({_no_work()})[1h:1m])) / 60 * {{price}}",
    ),
    Query(
        "cost_by_state", "waste", "Cost by state, last hour", "money",
        f'sum by (state) ({{gputop_gpu_state_seconds_total.increase.1h|state=~"{_NOT_WORK}"}}) / 3600 * {{price}}',
        "The same by what the time counted as. Unmeasured GPUs have no cost here: it is unknown whether they work.",
        "Busy and not working first: it looks like work. Give your own price: --price 2.50.",
        " or ".join(
            f'label_replace(sum(count_over_time(({of})[1h:1m])) / 60 * {{price}}, "state", "{state}", "", "")'
            for state, of in _PRESENT.items()
        ),
    ),
    Query(
        "cost_by_job", "waste", "Cost by job and user, last hour", "money", f"{_BY_JOB} * {{price}}",
        "What each job's GPUs cost while they did no work. Jobs that share a GPU share its cost in equal parts.",
        "Start with the first. Give your own price: --price 2.50.",
        f"sum by (workload) (sum_over_time(({_no_work('job:')})[1h:1m])) / 60 * {{price}}",
    ),
)  # fmt: skip
