"""A GPU's state as the rules record it: from the screen's thresholds, in the order of ``judge.judged``.

One series a GPU with the state as its number, each minute; one with the share of the minute that was no work; one that
says whose GPU it is. Hours, dashboards and alerts are sums and joins of these. Where gputop itself judges on the node
its own state is taken, whatever the numbers say. Templates are those of ``template``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gputop.diagnosis.idle_runs import QUIET_UTIL
from gputop.diagnosis.rules.base import HELD_BYTES
from gputop.diagnosis.thresholds import FLAG_A_SM, FLAG_A_UTIL, FLAG_B_RATIO, FLAG_B_UTIL, FLAG_C_RATIO, FLAG_C_UTIL
from gputop.diagnosis.types import STATES, State
from gputop.features.fleet.fleet_reading import GpuState
from gputop.features.fleet.judge import FLEET_NOT_WORK, GPU_STATES

STATE, LOST, OWNER, HOST_GPUS = "gputop:gpu:state", "gputop:gpu:lost", "gputop:gpu:owner", "gputop:host:gpus"
BY_STATE, IN_STATE, JOB_LOST = "gputop:fleet:gpus_by_state", "gputop:fleet:gpus_in_state", "gputop:job:lost"
CODES: Mapping[GpuState, int] = MappingProxyType({state: number for number, state in enumerate(GPU_STATES, 1)})
"""A state's number in ``STATE``: 1 is working."""
OWNER_LABELS = ("job_id", "user", "k8s_namespace", "k8s_pod")
"""Labels of ``OWNER`` besides those of the GPU: none of them collides with a target's."""


def share(percent: float) -> str:
    """A threshold in percent as the ratio that exporters' series are rendered in."""
    return f"{percent / 100.0:.10g}"


UTIL, SM = "{util.avg_over_time.5m}", "{sm.avg_over_time.5m}"
QUIET = f"({{util.quantile_over_time.5m.0_95}} < {share(QUIET_UTIL)})"
HELD = f"({{memory}} >= {HELD_BYTES:.0f})"
FLAG_A = f"(({UTIL} >= {share(FLAG_A_UTIL)}) and ({SM} < {share(FLAG_A_SM)}))"
FLAG_B = f"(({UTIL} >= {share(FLAG_B_UTIL)}) and ({SM} / {UTIL} < {FLAG_B_RATIO:g}))"
OF_A_JOB = "(max by ({by}) ({job:util.avg_over_time.5m}))"
FLAG_C = f"(({OF_A_JOB} >= {share(FLAG_C_UTIL)}) and ({SM} > 0) and ({SM} / {UTIL} < {FLAG_C_RATIO:g}))"
"""Hollow takes a witness that somebody computes there: the label of a job."""
BUSY_NOT_WORKING = f"({FLAG_A} or {FLAG_B} or {FLAG_C})"


def _coded(condition: str, state: GpuState) -> str:
    return f"({condition}) * 0 + {CODES[state]}"


DCGM_STATE = " or ".join((
    _coded(f"{QUIET} and {HELD}", "idle_allocated"),
    _coded(f"{QUIET} and {OF_A_JOB}", "allocated_unused"),
    _coded(QUIET, "idle"),
    _coded(BUSY_NOT_WORKING, "busy_not_working"),
    _coded(f"{OF_A_JOB} <= {share(FLAG_A_UTIL)}", "starved"),
    _coded(f"{UTIL} unless {SM}", "unmeasured"),
    _coded(UTIL, "working"),
))  # fmt: skip
"""dcgm-exporter gives no verdicts, so a GPU's state follows from its numbers: the first that holds."""


def _own(state: State) -> str:
    return f'(max by ({{by}}) ({{gputop_gpu_state|state="{state}"}}) == 1)'


OWN_UNUSED = (
    f"({_own('idle')} and on ({{by}}) max by ({{by}}) ({{gputop_pod_info}}) "
    "unless on ({by}) max by ({by}) ({gputop_job_info}))"
)
"""The kubelet gave the GPU to a pod, and no process has a context there."""
OWN_STATE = " or ".join((
    f"{OWN_UNUSED} * {CODES['allocated_unused']}", *(f"{_own(state)} * {CODES[state]}" for state in STATES),
))  # fmt: skip


_STATE = f"max by ({{by}}) ({{{STATE}}})"


def is_state(state: GpuState) -> str:
    """GPUs that are in that state."""
    return f"({_STATE} == {CODES[state]})"


NO_WORK = (
    f"{is_state('busy_not_working')} * 0 + 1 or clamp_min(1 - {UTIL}, 0) and "
    f"({_STATE} >= {CODES['starved']}) and ({_STATE} != {CODES['unmeasured']})"
)
"""The part of each GPU's time that was not work: all of it while busy and not working, else what was idle."""
assert {state for state, code in CODES.items() if code >= CODES["starved"] and state != "unmeasured"} == (
    set(FLEET_NOT_WORK) - {"busy_not_working"}
), "from starved on every state but one has idle time that is lost"

_OWN_IDLE = 'max by ({by}) ({gputop_gpu_state_seconds_total.rate.2m|state="idle"})'
_IS_UNUSED = f"on ({{by}}) {is_state('allocated_unused')}"
OWN_IN_STATE = "sum by (cluster, state) (" + " or ".join((
    'max by ({by}, state) ({gputop_gpu_state_seconds_total.rate.2m|state!="idle"})',
    f'label_replace({_OWN_IDLE} and {_IS_UNUSED}, "state", "allocated_unused", "", "")',
    f'label_replace({_OWN_IDLE} unless {_IS_UNUSED}, "state", "idle", "", "")',
)) + ")"  # fmt: skip
"""GPUs by state over a minute, from the seconds that nodes count; they count an unused GPU of a job as idle."""


def _named(expr: str, *labels: tuple[str, str]) -> str:
    for to, label in labels:
        expr = f'label_replace({expr}, "{to}", "$1", "{label}", "(.+)")'
    return expr


OWN_OWNER = "topk by ({by}) (1, " + " or ".join((
    _named("max by ({by}, k8s_namespace_name, k8s_pod_name) ({gputop_pod_info}) * 3",
           ("k8s_namespace", "k8s_namespace_name"), ("k8s_pod", "k8s_pod_name")),
    'max by ({by}, scheduler, job_id, user) ({gputop_job_info|job_id!=""}) * 2',
    'max by ({by}, user) ({gputop_job_info|job_id=""})',
    "max by ({by}) ({gputop_gpu_info}) * 0",
    "{util} * 0",
)) + ") * 0 + 1"  # fmt: skip
"""One owner of each GPU, the best known first, and GPUs that nobody owns."""
DCGM_OWNER = "topk by ({by}) (1, " + " or ".join((
    "max by ({by}, job_id) (" + _named('{util_series|hpc_job!=""}', ("job_id", "hpc_job")) + ") * 0 + 2",
    "max by ({by}, k8s_namespace, k8s_pod) ("
    + _named('{util_series|hpc_job="",exported_pod!=""}', ("k8s_namespace", "exported_namespace"),
             ("k8s_pod", "exported_pod")) + ") * 0 + 1",
    "{util} * 0",
)) + ") * 0 + 1"  # fmt: skip
