"""Every question to a fleet, with its alert, as rows.

Rules, dashboards, ``fleet queries`` and docs are made of these. A query is a function of a ``promql.Scope`` that gives
PromQL: ``q.gpu("sm")`` is a signal of every GPU in base units, ``q.mean`` its mean over the window of a state,
``q.series`` a series by its own name, ``q.record`` one that the rules record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from gputop.diagnosis.sample_facts import PCIE_LANE_BYTES, PCIE_USABLE
from gputop.diagnosis.stragglers import ALL_UTIL, LEAST_GPUS, LEAST_POINTS, MAD_FACTOR, STEP_FACTOR
from gputop.diagnosis.thresholds import IDLE, MEMORY_DRAM, MEMORY_UTIL
from gputop.diagnosis.types import NOT_WORKING, STATE_WORDS, State
from gputop.features.fleet.fleet_reading import HOUR_S, GpuState
from gputop.features.fleet.gpu_state import GPU_STATES, UNUSED
from gputop.features.fleet.promql import (
    Names,
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
from gputop.features.fleet.state_rules import (
    HOST_GPUS,
    IDENTITY,
    IN_STATE,
    JOB_LOST,
    OWNER_LABELS,
    TARGETS,
    in_state,
    share,
)

Mode = Literal["health", "throughput", "bottleneck", "breadth", "waste"]
MODES: Mapping[Mode, str] = MappingProxyType({
    "health": "Health: is every GPU there and healthy",
    "throughput": "Throughput: how much work is done",
    "bottleneck": "Bottleneck: what holds it back",
    "breadth": "Breadth: does every GPU of a job keep up",
    "waste": "Waste: GPU time that did no work",
})  # fmt: skip
"""What questions are grouped by."""
Unit = Literal[
    "ratio", "watts", "celsius", "bytes", "bytes/s", "joules", "seconds", "GPU-hours", "GPUs", "flag", "1/s", "money"
]  # fmt: skip
Severity = Literal["critical", "warning", "info"]


class AlertRule(Struct, frozen=True):
    """When a question's answer is worth a page.

    ``when`` follows the query, ``lasts`` is how long it must hold. ``about`` says whose labels an alert carries: a
    target is known by its address alone.
    """

    name: str
    when: str
    lasts: str
    severity: Severity
    about: Literal["gpu", "host", "target", "fleet"] = "gpu"


Query = Callable[[Scope], str]
"""Writes PromQL for a scope."""


class FleetQuestion(Struct, frozen=True):
    """One question; ``dcgm`` is its query for dcgm-exporter.

    ``dcgm`` is None where dcgm-exporter cannot answer.
    """

    id: str
    mode: Mode
    title: str
    unit: Unit
    query: Query
    meaning: str
    advice: str
    dcgm: Query | Literal["same"] | None = "same"
    alert: AlertRule | None = None

    def is_answered(self, names: Names) -> bool:
        """Whether something exported under these names can answer."""
        return names == "gputop" or self.dcgm is not None

    def promql(self, q: Scope) -> str | None:
        """The query in PromQL; None if it cannot be asked."""
        query = self.query if q.is_own or self.dcgm == "same" else self.dcgm
        if query is None or (self.needs_price and not q.price):
            return None
        return query(q)

    @property
    def needs_price(self) -> bool:
        """Whether it asks about money."""
        return self.unit == "money"


def _node_says(q: Scope, state: State) -> str:
    return q.says("gputop_gpu_state", state=state)


def _own_mean(q: Scope, series: str) -> str:
    return q.per_gpu(q.over("avg_over_time", q.series(series)))


# What holds a GPU back.

_LANE = f"{PCIE_LANE_BYTES[3] / 1e9:g}e9"
"""Bytes a second of one PCIe lane in generation 3, one direction: each next one doubles them."""
_STARVED_VERDICTS = (
    'verdict=~"pcie_transfer|dataloader_.*|main_process|worker_restart|checkpoint_pause|kv_cache_full|'
    'starved_unattributed"'
)
BOTTLENECK_QUERIES = (
    FleetQuestion(
        "gap", "bottleneck", NOT_WORKING.capitalize(), "ratio",
        lambda q: f"(({q.mean('util')} - {q.mean('sm')}) or {q.mean('util')}) "
        f"and on ({q.by}) ({_node_says(q, 'busy_not_working')})",
        "Kernels run all the time, on less than a third of the chip: small kernels, NCCL that spins, or one block that "
        "keeps a whole GPU busy. The value is the gap between utilisation and SM activity. Where gputop runs on the "
        "node, its own state decides.",
        "On the host gputop says which: the verdict small_kernels, communication or low_sm, with evidence and remedy.",
        lambda q: f"({q.mean('util')} - {q.mean('sm')}) and {in_state(q, 'busy_not_working')}",
        alert=AlertRule("GpuBusyNotWorking", "", "15m", "warning"),
    ),
    FleetQuestion(
        "memory_bound", "bottleneck", "Bound by memory bandwidth", "ratio",
        lambda q: f"{q.mean('dram')} and ({q.mean('dram')} >= {share(MEMORY_DRAM)}) "
        f"and ({q.mean('util')} >= {share(MEMORY_UTIL)})",
        "Three quarters of the bandwidth that kernels reach. SM activity is high meanwhile: warps wait for memory, so "
        "the usual condition of DRAM high and SM low finds nothing.",
        "Inherent in decoding; larger batch, FlashAttention, fused kernels, quantised weights.",
    ),
    FleetQuestion(
        "pcie_saturation", "bottleneck", "PCIe traffic as a share of the link", "ratio",
        lambda q: f"({q.mean('pcie_rx')} > {q.mean('pcie_tx')} or {q.mean('pcie_tx')}) / "
        f"({_LANE} * 2 ^ ({q.gpu('pcie_gen')} - 3) * {PCIE_USABLE} * {q.gpu('pcie_width')})",
        "The busier direction against what the link carries at its present generation and width. A fixed limit in GB/s "
        "is wrong on every other machine.",
        "pin_memory=True and non_blocking copies; keep data on the GPU; check that the link runs at its full width.",
        alert=AlertRule("GpuPcieSaturated", " > 0.9", "15m", "info"),
    ),
    FleetQuestion(
        "communication", "bottleneck", "Waits for other GPUs", "ratio",
        lambda q: q.says("gputop_gpu_verdict", verdict="communication"),
        "The GPU is busy and not working because its kernels wait in NCCL. Under dcgm-exporter's names it may be small "
        "kernels as well: what is seen is traffic over NVLink meanwhile.",
        "Find the rank that the others wait for: straggler_slow, straggler_starved. Overlap communication.",
        lambda q: f"{q.mean('nvlink_rx')} and {in_state(q, 'busy_not_working')} and ({q.mean('nvlink_rx')} > 1e9)",
    ),
    FleetQuestion(
        "hang", "bottleneck", "Waits inside a kernel", "flag",
        lambda q: q.says("gputop_gpu_verdict", verdict="hang"),
        "The GPU spins in a collective, or on a lock, for what does not come: a hang, most of the time. It takes what "
        "gputop on the node saw before and of the other ranks; under dcgm-exporter's names, where small kernels look "
        "exactly so, it does not exist.",
        "On its host gputop diagnose names the rank that differs; of a job over several hosts, look where no GPU of it "
        "waits. py-spy dump on that rank.", None,
        AlertRule("GpuStuck", "", "2m", "warning"),
    ),
    FleetQuestion(
        "starved_by_cause", "bottleneck", "Starved GPUs by cause", "GPUs",
        lambda q: f"count by (cluster, verdict) ({q.series('gputop_gpu_verdict', _STARVED_VERDICTS)} == 1)",
        "GPUs that wait for their host, by what the host did meanwhile: loaders short of cores, on disk or network, "
        "the main thread, copies.",
        "Each verdict has its remedy: gputop help verdicts.", None,
    ),
    FleetQuestion(
        "starved", "bottleneck", "Starved GPUs", "ratio",
        lambda q: f"{_own_mean(q, 'gputop_gpu_idle_ratio')} and on ({q.by}) ({_node_says(q, 'starved')})",
        "Share of time in which no kernel ran on a GPU that a job holds.",
        "On the host: gputop, or gputop diagnose for a ticket.",
        lambda q: f"(1 - {q.mean('util')}) and {in_state(q, 'starved')}",
        AlertRule("GpuStarved", f" > {share(IDLE)}", "30m", "info"),
    ),
    FleetQuestion(
        "loaders_waiting", "bottleneck", "Loaders short of cores", "ratio",
        lambda q: f"{_own_mean(q, 'gputop_loader_queued_ratio')} > 0.1",
        "Share of time the dataloader workers were runnable and had no core.",
        "Fewer workers a GPU, more cores a job; decode on the GPU.", None,
    ),
    FleetQuestion(
        "loaders_on_disk", "bottleneck", "Loaders that wait for the disk", "ratio",
        lambda q: f"{_own_mean(q, 'gputop_loader_disk_ratio')} > 0.1",
        "Share of the dataloader workers that waited for the disk.",
        "Larger files, local NVMe, a cache; more workers help only where the disk has room.", None,
    ),
)  # fmt: skip


# Does every GPU of a job keep up.
#
# As in ``judge.stragglers``: looking for the lowest SM activity would name those that wait. GPUs are compared within
# one job, by the median and the median absolute deviation: the straggler itself would move a mean.

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
    return f"({steps}) / on (cluster, job_id) group_left () {_median(steps, 'cluster, job_id')} > {STEP_FACTOR:g}"


BREADTH_QUERIES = (
    FleetQuestion(
        "straggler_slow", "breadth", "GPUs that the others of their job wait for", "ratio",
        _slow,
        "All GPUs of the job are busy, and this one does more than the others: they wait for it in NCCL. The value is "
        "how far its SM activity lies above the median.",
        "Compare its clocks, temperature and link with the others'; uneven batches or layers; drain it if it is the "
        "hardware.",
        alert=AlertRule("GpuStragglerSlow", "", "1m", "warning"),
    ),
    FleetQuestion(
        "straggler_starved", "breadth", "GPUs that starve while their job is busy", "ratio",
        _starved,
        "One GPU of the job, or one host with all its GPUs, is not busy while all others are. The value is how far its "
        "utilisation lies below the median.",
        "On its host gputop names what it waits for: loaders, disk, network or the main thread.",
        alert=AlertRule("GpuStragglerStarved", "", "1m", "warning"),
    ),
    FleetQuestion(
        "straggler_step", "breadth", "Ranks whose steps take longer", "ratio",
        lambda q: _outlying(_steps(q)),
        "A rank's step against the median of its job, where ranks announce steps. Ranks that wait for each other have "
        "equal steps: this finds those that do not.",
        "See straggler_slow and straggler_starved for jobs that wait for each other in every step.", None,
    ),
    FleetQuestion(
        "straggler_own_step", "breadth", "Ranks whose own part of a step takes longer", "ratio",
        lambda q: _outlying(_own_steps(q)),
        "A rank's step without what it waited for others, against the median of its job, where ranks announce both. "
        "The others wait for it in every step, so that all steps take equal time.",
        "On its host gputop names what it does; compare clocks, temperature and data there.", None,
    ),
)  # fmt: skip


# Is every GPU there and healthy.

_THROTTLED, _HELD_DOWN = "gputop_gpu_throttle_seconds_total", (
    "hardware_thermal", "software_thermal", "hardware_slowdown", "power_brake",
)  # fmt: skip
_XIDS, _DCGM_XID = "gputop_gpu_xid_errors_total", "DCGM_FI_DEV_XID_ERRORS"
_XID_S, _DAY_S = 600.0, 86400.0
"""How long an Xid is new, and a GPU or a target missed."""


def _own_xids(q: Scope) -> str:
    xids = q.series(_XIDS)
    risen, first = q.over("increase", xids, _XID_S), f"{xids} unless {xids} offset {window(_XID_S)}"
    return f"sum by ({q.by}, xid) ({risen}) > 0 or sum by ({q.by}, xid) ({first}) > 0"


def _dcgm_xid(q: Scope) -> str:
    xid = q.series(_DCGM_XID)
    changed, now, before = map(q.per_gpu, (q.over("changes", xid, _XID_S), xid, f"{xid} offset {window(_XID_S)}"))
    return f"{q.per_gpu(f'{xid} > 0')} and on ({q.by}) ({changed} > 0 or ({now} unless {before}))"


HEALTH_QUERIES = (
    FleetQuestion(
        "down", "health", "Exporters down", "GPUs",
        lambda q: f"{q.over('max_over_time', q.up(), q.least_s)} == 0",
        "The last scrapes of this target all failed: the host, its network or its exporter is down. One failed scrape "
        "says nothing.",
        "Check whether the host answers at all; then systemctl status gputop-export, or the pod of the DaemonSet.",
        alert=AlertRule("GpuExporterDown", "", "1m", "critical", "target"),
    ),
    FleetQuestion(
        "absent", "health", "No exporter at all", "flag", lambda q: f"absent({q.up()})",
        "Prometheus scrapes no exporter of these names: its discovery lost them, or they have another job's name.",
        "See the targets' page of Prometheus, and the job's name in its configuration.",
        alert=AlertRule("GpuExportersAbsent", "", "5m", "critical", "fleet"),
    ),
    FleetQuestion(
        "fewer_targets", "health", "Fewer exporters than within the last day", "GPUs",
        lambda q: f"{q.over('max_over_time', q.record(TARGETS), _DAY_S)} - {q.record(TARGETS)} > 0",
        "Targets that were scraped within the last day are no longer in the configuration, or in no discovery's list.",
        "Nothing, where nodes come and go on purpose: leave this alert out there.",
        alert=AlertRule("GpuExportersFewer", "", "1h", "info", "fleet"),
    ),
    FleetQuestion(
        "late", "health", "Drivers late or hung", "GPUs", lambda q: f"{q.series('gputop_up')} == 0",
        "The exporter answers and has no current values: the driver hangs, or there is no GPU.",
        "Run gputop doctor on the host: it says which call hangs. A driver that hangs usually needs a reboot.", None,
        AlertRule("GpuDriverLate", "", "5m", "critical", "host"),
    ),
    FleetQuestion(
        "dead", "health", "Exporters whose file stays", "seconds", unwritten,
        "Nobody writes the file of `gputop export --textfile` any more, and node_exporter goes on serving what is in "
        "it. The value is its age. That it does not change is what counts: a node's clock may be wrong.",
        "See why the exporter ended; remove the file until it runs again.", None,
        AlertRule("GpuExporterDead", "", "1m", "critical", "host"),
    ),
    FleetQuestion(
        "vanished", "health", "GPUs that vanished", "GPUs",
        lambda q: f"{q.over('max_over_time', q.record(HOST_GPUS), _DAY_S)} - {q.record(HOST_GPUS)} > 0",
        "Fewer GPUs of this host are exported than within the last day: one fell off the bus, or was taken away. GPUs "
        "are counted, not MIG instances.",
        "dmesg | grep -i xid on the host. Xid 79 means that the GPU fell off the bus: drain the node and reset it.",
        alert=AlertRule("GpuVanished", "", "2m", "critical", "host"),
    ),
    FleetQuestion(
        "lost", "health", "Unreadable GPUs", "flag", lambda q: q.says("gputop_gpu_lost"),
        "The driver lists the GPU and calls on it fail or hang.",
        "Drain the node; reset the GPU or reboot.", None,
        AlertRule("GpuLost", "", "2m", "critical"),
    ),
    FleetQuestion(
        "temperature", "health", "Temperature", "celsius", lambda q: q.gpu("temp"),
        "Temperature of the chip. What matters is whether clocks are cut for it: see throttled.",
        "Airflow, fans, dust, inlet temperature; neighbours in the same chassis.",
        alert=AlertRule("GpuHot", " > 85", "10m", "warning"),
    ),
    FleetQuestion(
        "throttled", "health", "Time with clocks held down by heat or power brake", "ratio",
        # Two jobs that scrape one exporter are one.
        lambda q: f"sum by ({q.by}) "
        f"({q.per_gpu(q.over('rate', q.series(_THROTTLED, any_of('reason', _HELD_DOWN))), 'reason')})",
        "Share of time in which heat or the power brake cut the clocks. A power cap is not among them: that is how a "
        "busy GPU normally runs.",
        "Cooling, or the power supply of the chassis. The job that runs there slows all its peers down.", None,
        AlertRule("GpuThrottled", " > 0.1", "10m", "warning"),
    ),
    FleetQuestion(
        "ecc_uncorrected", "health", "Uncorrected ECC, last hour", "GPUs",
        lambda q: f"sum by ({q.by}) ({q.over('increase', q.exported('ecc_uncorrected_volatile'), HOUR_S)}) > 0",
        "Uncorrected ECC errors in the last hour: what this GPU computed may be wrong, and its job usually dies.",
        "Drain the node, reset the GPU; replace it when they come back or row remapping has failed.",
        lambda q: f"{q.gpu('ecc', 'increase', HOUR_S)} > 0",
        AlertRule("GpuUncorrectedEcc", "", "0m", "critical"),
    ),
    FleetQuestion(
        "xid", "health", "Xid errors", "GPUs",
        _own_xids,
        "Xid errors of the last ten minutes by number. 13, 31, 43 and 45 point at the program; 48, 63, 64, 74, 79, 94 "
        "and 95 at the hardware. A number that is seen for the first time counts, too. dcgm-exporter gives the last "
        "number and no count: there the value is that number, and it ends ten minutes after it last changed.",
        "Cordon the node at 48, 63, 64, 74, 79, 94, 95; tell the job's owner at the others.",
        _dcgm_xid,
        AlertRule("GpuXid", "", "0m", "warning"),
    ),
    FleetQuestion(
        "row_remap", "health", "Row remap due or failed", "flag",
        lambda q: f"{q.per_gpu(union(map(q.series, ('gputop_gpu_remap_pending', 'gputop_gpu_remap_failed'))))} == 1",
        "Memory rows wait for a reset to be remapped, or could not be.",
        "Drain and reset the GPU; where it failed, replace it.",
        lambda q: f"{q.per_gpu(q.series('DCGM_FI_DEV_ROW_REMAP_FAILURE'))} > 0",
    ),
)  # fmt: skip


# How much work is done.

THROUGHPUT_QUERIES = (
    FleetQuestion(
        "utilization", "throughput", "Utilisation", "ratio", lambda q: q.gpu("util"),
        "Share of time in which at least one kernel ran, on however little of the chip. High utilisation is not work.",
        "Never judge by it alone: see sm_active and gap.",
    ),
    FleetQuestion(
        "sm_active", "throughput", "SM activity", "ratio", lambda q: q.gpu("sm"),
        "Share of the multiprocessors that had a warp, averaged over cycles. Absent where nothing measures it: "
        "dcgm-exporter comes with it switched off.",
        "To switch it on there, add the line `DCGM_FI_PROF_SM_ACTIVE, gauge, SM activity` to its counters file.",
    ),
    FleetQuestion(
        "occupancy", "throughput", "SM occupancy", "ratio", lambda q: q.gpu("occupancy"),
        "Resident warps as a share of those that the multiprocessors could hold. 0.25 is enough for many kernels.",
        "Worth a look only where SM activity is low: larger batch, fewer registers a thread.",
    ),
    FleetQuestion(
        "tensor", "throughput", "Tensor pipes", "ratio", lambda q: q.gpu("tensor"),
        "Share of cycles in which a tensor pipe was active. The best single number of training throughput.",
        "Near 0 in training: matrices in FP32, or shapes that are not multiples of 8; bf16, torch.compile.",
    ),
    FleetQuestion(
        "dram", "throughput", "Device memory bandwidth", "ratio", lambda q: q.gpu("dram"),
        "Bandwidth used of the theoretical peak; about 0.8 is what kernels reach.", "See memory_bound.",
    ),
    FleetQuestion(
        "memory_share", "throughput", "Device memory in use", "ratio",
        lambda q: f"{q.gpu('memory')} / {q.gpu('memory_total')}",
        "Memory held, not memory used: a framework's cache keeps it while the GPU idles.",
        "A job that holds little might share a GPU, or take a larger batch.",
    ),
    FleetQuestion(
        "power", "throughput", "Power", "watts", lambda q: q.gpu("power"),
        "Power of the board. The same matrix product draws up to two thirds more or less by its data alone, so it "
        "ranks GPUs, and is no measure of work.",
        "Compare GPUs of one job: they should draw alike.",
    ),
    FleetQuestion(
        "cluster_power", "throughput", "Power of all GPUs", "watts",
        lambda q: f"sum({q.gpu('power')} * on ({q.by}) {q.record(IDENTITY)})",
        "Boards alone, without hosts and cooling.", "For capacity planning.",
    ),
    FleetQuestion(
        "energy", "throughput", "Energy in the last hour", "joules",
        lambda q: f"sum by ({q.host}) ({q.gpu('energy', 'increase', HOUR_S)})",
        "What the boards took, by host.", "Divide by 3.6 million for kWh.",
    ),
    FleetQuestion(
        "steps_per_second", "throughput", "Training steps a second", "1/s",
        lambda q: f"sum by (cluster, job_id, rank) ({q.over('rate', q.series('gputop_step_seconds_count'))})",
        "Steps as jobs announce them: the one number that says whether a job became faster.",
        "Announce steps from the job with gputop.watch().", None,
    ),
    FleetQuestion(
        "samples_per_second", "throughput", "Training samples a second", "1/s",
        lambda q: f"sum by (cluster, job_id) ({q.over('rate', q.series('gputop_step_samples_total'))})",
        "Samples that all announced steps of a job took in, where the job says how many a step has.",
        "Announce them with gputop.watch(): work(samples=…), or step(batch_size=…).", None,
    ),
    FleetQuestion(
        "step_seconds", "throughput", "Time of a training step", "seconds",
        _steps,
        "Mean over five minutes.", "Record a run with gputop record where it rises.", None,
    ),
    FleetQuestion(
        "efficiency", "throughput", "SM activity as a share of utilisation", "ratio",
        lambda q: f"{q.mean('sm')} / ({q.mean('util')} > 0.1)",
        "How much of the chip works while the GPU counts as busy.", "Below 0.3: see gap and its verdict.",
    ),
)  # fmt: skip


# GPU time that did no work.
#
# Counted in GPU-hours. (1 - utilisation) x price, as it is often taught, trusts the number that is in doubt: a GPU that
# is busy and not working costs as much. GPUs whose SM activity is not measured are counted apart, neither as waste nor
# as work.

_MEASURED = 'state!="unmeasured"'


def _minutes(q: Scope, *matchers: str, by: str = "cluster", of: str = IN_STATE) -> str:
    """The GPU-minutes of the last hour, as recorded each minute.

    Divided by the number of writers: two that record into one engine write each minute twice. A host that was there
    all hour has 60 samples of each writer.
    """
    minutes = hour_of("sum_over_time", q.record(of, *matchers))
    counts = union(hour_of("count_over_time", q.record(name)) for name in (HOST_GPUS, of))
    return f"(sum by ({by}) ({minutes}) / on (cluster) group_left () clamp_min(max by (cluster) ({counts}) / 60, 1))"


def _by_job(q: Scope) -> str:
    return f"{_minutes(q, by=', '.join(('cluster', *OWNER_LABELS)), of=JOB_LOST)} / 60"


def _in_hours(q: Scope, state: GpuState) -> str:
    return f"{_minutes(q, equal('state', state))} / 60"


def _no_work(q: Scope) -> str:
    """GPU-minutes of the last hour that were no work."""
    return _minutes(q, of=JOB_LOST)


_HOURS: tuple[tuple[GpuState, str, str, str], ...] = (
    ("busy_not_working", NOT_WORKING,
     "Kernels ran, the chip did not work. Counted second by second on the host by gputop; from dcgm-exporter's "
     "numbers minute by minute.", "See gap and the verdicts."),
    ("starved", "starved", "A job held the GPU and no kernel ran.", "See starved_by_cause."),
    ("idle_allocated", STATE_WORDS["idle_allocated"],
     "Nothing runs and nobody else can use it: a forgotten notebook, usually.",
     "gputop shows whose process it is; ask, then end it."),
    ("idle", "idle", "Nobody holds memory there and no kernel ran.", "Capacity, not waste of a job."),
    ("allocated_unused", UNUSED, "A job held the GPU, and no process used it.",
     "A job that asks for fewer GPUs; idle limits."),
)  # fmt: skip
WASTE_QUERIES = (
    FleetQuestion(
        "gpus_by_state", "waste", "GPUs by state", "GPUs",
        lambda q: union(
            marked(f"count by (cluster) ({in_state(q, state)})", "state", state) for state in GPU_STATES
        ),
        "The state that each GPU's time counts as now; a MIG instance counts as one.",
        "Those that are not working come first: gap, starved.",
    ),
    *(
        FleetQuestion(f"hours_{state}", "waste", f"{words.capitalize()}: last hour", "GPU-hours",
                      partial(_in_hours, state=state), meaning, advice)
        for state, words, meaning, advice in _HOURS
    ),
    FleetQuestion(
        "hours_total", "waste", "All GPUs: last hour", "GPU-hours",
        lambda q: f"{_minutes(q)} / 60", "The total of which the other states are parts.", "Nothing to do.",
    ),
    FleetQuestion(
        "unmeasured", "waste", "GPUs without SM activity", "GPUs",
        lambda q: "count by (cluster, source) "
        f"({q.per_gpu(q.series('gputop_sm_source', any_of('source', ('bound', 'none'))), 'source')})",
        "Nothing measures SM activity there, so it is unknown whether they work. Neither waste nor work.",
        "gputop doctor on the host says what would measure it. In dcgm-exporter add DCGM_FI_PROF_SM_ACTIVE to the "
        "counters file.",
        lambda q: f"count by (cluster) ({q.gpu('util')} unless {q.gpu('sm')})",
    ),
    FleetQuestion(
        "waste_by_job", "waste", "No work, by job and user: last hour", "GPU-hours", _by_job,
        "Busy and not working, starved and idle, minute by minute, under the job that had the GPU in that minute.",
        "Start with the first: one job often wastes more than all others together.",
    ),
    FleetQuestion(
        "idle_with_memory", "waste", "Idle GPUs that hold memory", "bytes",
        lambda q: f"{q.gpu('memory')} and on ({q.by}) ({_node_says(q, 'idle_allocated')})",
        "No kernel ran, and at least 1 GiB is held: nobody else can use it.",
        "Ask the owner; idle limits for notebooks.",
        lambda q: f"{q.gpu('memory')} and {in_state(q, 'idle_allocated')}",
        alert=AlertRule("GpuIdleWithMemory", "", "30m", "info"),
    ),
    FleetQuestion(
        "allocated_unused", "waste", "GPUs that a job holds and does not use", "flag",
        lambda q: f"{in_state(q, 'allocated_unused')} * 0 + 1",
        "The scheduler or the kubelet gave the GPU to a job, and no process of it uses the GPU or holds memory there.",
        "Ask the owner: a job that asks for fewer GPUs leaves this one to another.",
        alert=AlertRule("GpuAllocatedUnused", "", "30m", "info"),
    ),
    FleetQuestion(
        "waste_share", "waste", "No work: share, last hour", "ratio",
        lambda q: f"{_no_work(q)} / {_minutes(q, _MEASURED)}",
        "Of the time in which it is known. Unmeasured GPUs are in neither number.",
        "Track it by week: it is the number to bring down.",
    ),
    FleetQuestion(
        "cost_no_work", "waste", "Cost of GPU time that did no work, last hour", "money",
        lambda q: f"{_no_work(q)} / 60 * {q.price}",
        "GPU-hours that did no work, at the price of a GPU-hour that you gave: an assumption, so state the price "
        "beside the number. (1 - utilisation) x price counts a GPU that is busy and not working as work.",
        "Give your own price: --price 2.50.",
    ),
    FleetQuestion(
        "cost_by_job", "waste", "Cost by job and user, last hour", "money", lambda q: f"{_by_job(q)} * {q.price}",
        "What each job's GPUs cost while they did no work, minute by minute under the job that had them then.",
        "Start with the first. Give your own price: --price 2.50.",
    ),
)  # fmt: skip
QUESTIONS: Mapping[str, FleetQuestion] = MappingProxyType({
    row.id: row
    for row in (*HEALTH_QUERIES, *THROUGHPUT_QUERIES, *BOTTLENECK_QUERIES, *BREADTH_QUERIES, *WASTE_QUERIES)
})  # fmt: skip
"""Every question by its id, in the order of the failure modes."""
