"""Write the recording rules of GPUs and hosts: states, wasted and idle time, owners.

States follow from the screen's thresholds in the order of ``gpu_state.judged``. One series says which GPUs there are,
each once, however many exporters and addresses it is scraped under; one has the state as its number, each minute; one
the share of the minute that was no work; one says whose GPU it is. Hours, dashboards and alerts are sums and joins of
these. Where gputop itself judges on the node its own state is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from gputop.diagnosis.host.idle_runs import QUIET_UTIL
from gputop.diagnosis.thresholds import (
    FLAG_A_SM,
    FLAG_A_UTIL,
    FLAG_B_RATIO,
    FLAG_B_UTIL,
    FLAG_C_RATIO,
    FLAG_C_UTIL,
    HELD_BYTES,
)
from gputop.diagnosis.types import STATES
from gputop.features.fleet.exporter_names import DIALECTS
from gputop.features.fleet.fleet_reading import WINDOW_S, GpuState
from gputop.features.fleet.judge.gpu_state import FLEET_NOT_WORK, GPU_STATES
from gputop.features.fleet.promql import (
    ALL_NAMES,
    MEANS,
    NAMES_LABEL,
    Scope,
    any_of,
    marked,
    renamed,
    selector,
    union,
)
from gputop.model.cards import OF_FOUR, SLICES

IDENTITY = "gputop:gpu:identity"
STATE, LOST, OWNER, HOST_GPUS = (
    "gputop:gpu:state",
    "gputop:gpu:lost",
    "gputop:gpu:owner",
    "gputop:host:gpus",
)
BY_STATE, IN_STATE, JOB_LOST = (
    "gputop:fleet:gpus_by_state",
    "gputop:fleet:gpus_in_state",
    "gputop:job:lost",
)
TARGETS = "gputop:fleet:targets"
HOST_STATES, HOST_LOST, HOST_ADDRESS = (
    "gputop:host:gpus_in_state",
    "gputop:host:lost",
    "gputop:host:address",
)
HOST_UTIL, HOST_SM, HOST_POWER = (f"gputop:host:{word}" for word in ("util", "sm", "power"))
CODE = "code"
"""The label of ``HOST_STATES`` that holds a state's number, see ``CODES``."""
CODES: Mapping[GpuState, int] = MappingProxyType(
    {state: number for number, state in enumerate(GPU_STATES, 1)}
)
"""A state's number in ``STATE``: 1 is working."""
OWNER_LABELS = ("job_id", "user", "k8s_namespace", "k8s_pod")
"""Labels of ``OWNER`` besides those of the GPU: none of them collides with a target's."""
_MINUTES_S = 120.0
"""The window of what is counted again each minute."""


def share(percent: float) -> str:
    """A threshold in percent as the ratio that exporters' series are rendered in."""
    return f"{percent / 100.0:.10g}"


def by_owner(q: Scope, expr: str, *labels: str) -> str:
    """A series of every GPU with these labels of its owner."""
    return f"({expr}) * on ({q.gpu_labels}) group_left ({', '.join(labels)}) {q.record(OWNER)}"


def in_state(q: Scope, state: GpuState) -> str:
    """GPUs that are in that state, as recorded."""
    return f"({q.per_gpu(q.record(STATE))} == {CODES[state]})"


def identity(q: Scope) -> str:
    """Write the series of each GPU; its value is its share.

    ``id`` is the same whoever exports it: the UUID and the instance, or host and number where there is no UUID. Of two
    addresses of one exporter one is taken, of two exporters the first one among ``DIALECTS``.
    """
    if q.is_own:
        # An exporter from before there were shares knows no parents either.
        shared = q.per_gpu(q.series("gputop_gpu_share"), "parent")
        older = f"({q.per_gpu(q.moment())} * 0 + 1) unless on ({q.gpu_labels}) {shared}"
        gpus = f"(({shared} > 0) or ({older}))"
    else:
        gpus = f"({_shares(q)})"
    named = f'label_join({gpus}, "id", "/", "{q.dialect.hosts[0]}", "{q.dialect.number[0]}")'
    for label in (*q.dialect.uuid, *("parent",) * q.is_own):
        named = renamed(named, "id", label)
    named = f'label_join({named}, "id", "/", "id", "{q.dialect.instance[0]}")'
    if q.is_own:
        # The compute instance that an instance has alone is no part of its name elsewhere.
        named = renamed(named, "id", "id", "(.+/[0-9]+)/0")
    ranks = list(DIALECTS)
    before = [name for name in ALL_NAMES if ranks.index(name) < ranks.index(q.dialect.id)]
    others = selector(IDENTITY, any_of(NAMES_LABEL, before), q.select) if before else ""
    return (
        f"topk by (cluster, id) (1, {named}){f' unless on (cluster, id) {others}' * bool(before)}"
    )


def _shares(q: Scope) -> str:
    """Write the shares of GPUs under DCGM's names.

    A whole GPU is 1; an instance has the slices of its profile, or an equal part. A GPU that has instances is not
    counted besides.
    """
    gpu = f"cluster, {q.host}, {q.dialect.number[0]}"
    four, seven = (f'{q.dialect.model[0]}{op}".*(?:{"|".join(OF_FOUR)}).*"' for op in ("=~", "!~"))
    instances = q.per_gpu(q.moment(*q.instances))
    parts = [f"({q.per_gpu(q.moment(*q.whole))} * 0 + 1) unless on ({gpu}) {instances}"]
    for slices in (1, 2, 3, 4, SLICES):
        profile = f'{q.dialect.profile[0]}=~"{slices}g.*"'
        parts += [
            f"({q.per_gpu(q.moment(profile, cards))} * 0 + {slices} / {of})"
            for cards, of in ((seven, SLICES), (four, 4))
            if slices <= of
        ]
    return union(
        (*parts, f"({instances} * 0 + 1) / on ({gpu}) group_left () count by ({gpu}) ({instances})")
    )


def state_of(q: Scope) -> str:
    """Write the number of each GPU's state.

    The node's own, or the first rule that holds: other exporters give no verdicts.
    """
    if q.is_own:
        of_states = {state: f"({q.says('gputop_gpu_state', state=state)})" for state in STATES}
        pods, jobs = (q.per_gpu(q.series(f"gputop_{name}_info")) for name in ("pod", "job"))
        # The kubelet gave the GPU to a pod, and no process has a context there.
        idle = (
            f"{of_states['idle']} and on ({q.gpu_labels}) {pods} unless on ({q.gpu_labels}) {jobs}"
        )
        unused = f"({idle}) * {CODES['allocated_unused']}"
        return union(
            (unused, *(f"{is_state} * {CODES[state]}" for state, is_state in of_states.items()))
        )
    util, sm = q.mean("util"), q.mean("sm")
    quiet = f"({q.gpu('util', 'quantile_over_time', WINDOW_S, '0.95')} < {share(QUIET_UTIL)})"
    # Hollow takes a witness that somebody computes there: the label of a job.
    of_a_job = f"({q.per_gpu(q.of_jobs('util', WINDOW_S))})"
    flag_a = f"(({util} >= {share(FLAG_A_UTIL)}) and ({sm} < {share(FLAG_A_SM)}))"
    flag_b = f"(({util} >= {share(FLAG_B_UTIL)}) and ({sm} / {util} < {FLAG_B_RATIO:g}))"
    flag_c = (
        f"(({of_a_job} >= {share(FLAG_C_UTIL)}) and ({sm} > 0) and ({sm} / {util} < "
        f"{FLAG_C_RATIO:g}))"
    )
    conditions: tuple[tuple[str, GpuState], ...] = (
        (f"{quiet} and ({q.gpu('memory')} >= {HELD_BYTES:.0f})", "idle_allocated"),
        (f"{quiet} and {of_a_job}", "allocated_unused"),
        (quiet, "idle"),
        (f"({flag_a} or {flag_b} or {flag_c})", "busy_not_working"),
        (f"{of_a_job} <= {share(FLAG_A_UTIL)}", "starved"),
        (f"{util} unless {sm}", "unmeasured"),
        (util, "working"),
    )
    return union(f"({condition}) * 0 + {CODES[state]}" for condition, state in conditions)


def no_work_seconds(q: Scope, over: Callable[[str], str]) -> str:
    """Write the seconds that each GPU wasted or was idle, as its node counts them.

    Idle time is a state's alone; nodes of an older version count it under a cause of its own, too.
    """
    wasted = q.per_gpu(over(q.series("gputop_gpu_lost_seconds_total", 'cause!="idle"')), "cause")
    idle = q.per_gpu(over(q.series("gputop_gpu_state_seconds_total", state="idle")), "state")
    return f"sum by ({q.gpu_labels}) ({union((wasted, idle))})"


def lost(q: Scope) -> str:
    """Write the share of each GPU's time that was no work.

    The node's own count comes first, which knows the share of each second; else all of it while busy and not working,
    and the idle part. Of a MIG instance that much of its share.
    """
    state = q.per_gpu(q.record(STATE))
    by_state = (
        f"{in_state(q, 'busy_not_working')} * 0 + 1 or clamp_min(1 - {q.mean('util')}, 0) and "
        f"({state} >= {CODES['starved']}) and ({state} != {CODES['unmeasured']})"
    )
    counted = no_work_seconds(q, lambda series: q.over("rate", series, _MINUTES_S))
    parts = f"{counted} or {by_state}" if q.is_own else by_state
    return f"({parts}) * on ({q.gpu_labels}) {q.record(IDENTITY)}"


def _in_states(q: Scope) -> str:
    """Write GPUs by state over a minute, an instance as its share.

    Nodes that count their seconds give them; they count an unused GPU of a job as idle.
    """
    share = f"on ({q.gpu_labels}) group_left () {q.record(IDENTITY)}"
    if not q.is_own:
        of_states = (
            marked(f"{in_state(q, state)} * 0 + 1", "state", state) for state in GPU_STATES
        )
        return f"sum by (cluster, state) (({union(of_states)}) * {share})"
    seconds = "gputop_gpu_state_seconds_total"
    counted = q.per_gpu(q.over("rate", q.series(seconds, 'state!="idle"'), _MINUTES_S), "state")
    idle = q.per_gpu(q.over("rate", q.series(seconds, state="idle"), _MINUTES_S))
    unused = f"on ({q.gpu_labels}) {in_state(q, 'allocated_unused')}"
    parts = (counted, marked(f"{idle} and {unused}", "state", "allocated_unused"),
             marked(f"{idle} unless {unused}", "state", "idle"))  # fmt: skip
    return f"sum by (cluster, state) (({union(parts)}) * {share})"


def _owner(q: Scope) -> str:
    """One owner of each GPU, the best known first, and GPUs without an owner."""
    if q.is_own:
        pods = q.per_gpu(q.series("gputop_pod_info"), "k8s_namespace_name", "k8s_pod_name")
        jobs = q.per_gpu(q.series("gputop_job_info", 'job_id!=""'), "scheduler", "job_id", "user")
        owners = [
            _renamed(f"{pods} * 3", k8s_namespace="k8s_namespace_name", k8s_pod="k8s_pod_name"),
            f"{jobs} * 2",
            q.per_gpu(q.series("gputop_job_info", 'job_id=""'), "user"),
            f"{q.per_gpu(q.series('gputop_gpu_info'))} * 0",
        ]
    else:
        jobs = _renamed(q.utilisation('hpc_job!=""'), job_id="hpc_job")
        pods = _renamed(
            q.utilisation('hpc_job=""', 'exported_pod!=""'),
            k8s_namespace="exported_namespace",
            k8s_pod="exported_pod",
        )
        owners = [
            f"{q.per_gpu(jobs, 'job_id')} * 0 + 2",
            f"{q.per_gpu(pods, 'k8s_namespace', 'k8s_pod')} * 0 + 1",
        ]
    owner = f"topk by ({q.gpu_labels}) (1, {union((*owners, q.gpu('util') + ' * 0'))}) * 0 + 1"
    return f"({owner}) and on ({q.gpu_labels}) {q.record(IDENTITY)}"


def _renamed(expr: str, **labels: str) -> str:
    for to, label in labels.items():
        expr = renamed(expr, to, label)
    return expr


def of_gpus(q: Scope, by_state: str) -> tuple[tuple[str, str], ...]:
    """The recording rules of GPUs, hosts, jobs and the fleet, in order.

    ``by_state`` is the query of ``BY_STATE``.
    """
    owned = (*OWNER_LABELS, "scheduler")
    whose = f"cluster, {q.host}, {', '.join(owned)}"
    place = "cluster, instance" if q.is_own else f"cluster, {q.host}, instance"
    # An instance has its GPU's number, but under gputop's names.
    gpus = q.moment(*q.whole * q.is_own)

    def of_owners(expr: str) -> str:
        return f"({by_owner(q, expr, *owned)})"

    lost_by_state = union(
        marked(
            f"sum by ({whose}) ({of_owners(q.record(LOST))} and on ({q.gpu_labels}) {in_state(q, state)})",
            "state",
            state,
        )
        # A node counts what half of a working chip leaves unused, too.
        for state in (*FLEET_NOT_WORK, *(("working",) if q.is_own else ()))
    )
    plain = replace(q, uses_records=False)
    # Instances have their board's power each.
    power = f"{q.gpu('power')} * on ({q.gpu_labels}) {q.record(IDENTITY)}"
    return (
        (IDENTITY, identity(q)),
        *(
            (name, f"({plain.mean(word)}) and on ({q.gpu_labels}) {q.record(IDENTITY)}")
            for word, name in MEANS.items()
        ),
        (OWNER, _owner(q)),
        (STATE, f"({state_of(q)}) and on ({q.gpu_labels}) {q.record(IDENTITY)}"),
        (LOST, lost(q)),
        (HOST_GPUS, f"count by (cluster, {q.host}) (count by (cluster, {q.host}, gpu) ({gpus}))"),
        (HOST_STATES, f'count_values by ({whose}) ("{CODE}", {of_owners(q.record(STATE))})'),
        (HOST_UTIL, f"avg by ({whose}) ({of_owners(q.mean('util'))})"),
        (HOST_SM, f"avg by ({whose}) ({of_owners(q.mean('sm'))})"),
        (HOST_POWER, f"sum by ({whose}) ({of_owners(power)})"),
        (HOST_LOST, lost_by_state),
        (HOST_ADDRESS, f"count by ({place}) (count by ({place}, gpu) ({gpus}))"),
        (JOB_LOST, f"sum by (cluster, {', '.join(OWNER_LABELS)}, state) ({q.record(HOST_LOST)})"),
        (TARGETS, f"count by (cluster) ({q.up()})"),
        (BY_STATE, by_state),
        (IN_STATE, _in_states(q)),
    )
