"""All queries joined: rules, alerts, dashboards and the command are made of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from gputop.diagnosis.types import NOT_WORKING, STATE_WORDS
from gputop.features.fleet.template import Alert, Planted, Query


@lru_cache(maxsize=1)
def library() -> Mapping[str, Query]:
    """Every query by its id, in the order of the failure modes."""

    rows: tuple[Query, ...] = (
        *HEALTH_QUERIES, *THROUGHPUT_QUERIES, *BOTTLENECK_QUERIES, *BREADTH_QUERIES, *WASTE_QUERIES
    )  # fmt: skip
    return MappingProxyType({row.id: row for row in rows})


# What holds a GPU back.

_BOTTLENECK_OWN = 'gpu="0",uuid="GPU-0",instance="n1:9401"'
_LANE = "0.985e9 * 2 ^ ({pcie_gen} - 3) * 0.8"
"""Usable bytes a second of one PCIe lane, one direction: 0.985 GB/s in generation 3, doubled by each next one."""
_BOTTLENECK_STARVED = "pcie_transfer|dataloader_.*|main_process|worker_restart|checkpoint_pause|starved_unattributed"
BOTTLENECK_QUERIES = (
    Query(
        "gap", "bottleneck", NOT_WORKING.capitalize(), "ratio",
        "({util.avg_over_time.5m} - {sm.avg_over_time.5m}) "
        "and ({util.avg_over_time.5m} >= 0.8) and ({sm.avg_over_time.5m} < 0.3)",
        "Kernels run all the time, on less than a third of the chip: small kernels, NCCL that spins, or one block that "
        "keeps a whole GPU busy. The value is the gap between utilisation and SM activity.",
        "On the host gputop says which: the verdict small_kernels, communication or low_sm, with evidence and remedy.",
        alert=Alert("GpuBusyNotWorking", "", "15m", "warning",
                    Planted(({"util": 0.97, "sm": 0.1},)), Planted(({"util": 0.97, "sm": 0.85},))),
    ),
    Query(
        "memory_bound", "bottleneck", "Bound by memory bandwidth", "ratio",
        "{dram.avg_over_time.5m} and ({dram.avg_over_time.5m} >= 0.6) and ({util.avg_over_time.5m} >= 0.5)",
        "Three quarters of the bandwidth that kernels reach. SM activity is high meanwhile: warps wait for memory, so "
        "the usual condition of DRAM high and SM low finds nothing.",
        "Inherent in decoding; larger batch, FlashAttention, fused kernels, quantised weights.",
    ),
    Query(
        "pcie_saturation", "bottleneck", "PCIe traffic as a share of the link", "ratio",
        f"({{pcie_rx.avg_over_time.5m}} > {{pcie_tx.avg_over_time.5m}} or {{pcie_tx.avg_over_time.5m}}) / "
        f"({_LANE} * {{pcie_width}})",
        "The busier direction against what the link carries at its present generation and width. A fixed limit in GB/s "
        "is wrong on every other machine.",
        "pin_memory=True and non_blocking copies; keep data on the GPU; check that the link runs at its full width.",
        alert=Alert("GpuPcieSaturated", " > 0.9", "15m", "info",
                    Planted(({"pcie_rx": 50e9, "pcie_tx": 1e9, "pcie_gen": 5.0, "pcie_width": 16.0},)),
                    Planted(({"pcie_rx": 20e9, "pcie_tx": 1e9, "pcie_gen": 5.0, "pcie_width": 16.0},))),
    ),
    Query(
        "pcie_against_dram", "bottleneck", "PCIe traffic with little use of device memory", "bytes/s",
        "{pcie_rx.avg_over_time.5m} and ({pcie_rx.avg_over_time.5m} > 1e9) and ({dram.avg_over_time.5m} < 0.15)",
        "Data comes over PCIe and little is done with it: copies set the pace.",
        "Preprocess on the GPU, send bytes and not floats, prefetch to the device.",
    ),
    Query(
        "communication", "bottleneck", "Waits for other GPUs", "ratio",
        'max by ({by}) ({gputop_gpu_verdict|verdict="communication"}) == 1',
        "The GPU is busy and not working because its kernels wait in NCCL.",
        "Find the rank that the others wait for: straggler_slow, straggler_starved. Overlap communication.",
        "{nvlink_rx.avg_over_time.5m} and ({util.avg_over_time.5m} >= 0.8) and ({sm.avg_over_time.5m} < 0.3) "
        "and ({nvlink_rx.avg_over_time.5m} > 1e9)",
    ),
    Query(
        "starved_by_cause", "bottleneck", "Starved GPUs by cause", "GPUs",
        f'count by (verdict) ({{gputop_gpu_verdict|verdict=~"{_BOTTLENECK_STARVED}"}} == 1)',
        "GPUs that wait for their host, by what the host did meanwhile: loaders short of cores, on disk or network, "
        "the main thread, copies.",
        "Each verdict has its remedy: gputop help verdicts.", None,
    ),
    Query(
        "starved", "bottleneck", "Starved GPUs", "ratio",
        f'max by ({{by}}) ({{gputop_gpu_idle_ratio.avg_over_time.5m}}) and on ({{by}}) '
        f'({{gputop_gpu_verdict|verdict=~"{_BOTTLENECK_STARVED}"}} == 1)',
        "Share of time in which no kernel ran on a GPU that a job holds.",
        "On the host: gputop, or gputop diagnose for a ticket.",
        "(1 - {util.avg_over_time.5m}) and ({util.avg_over_time.5m} < 0.8) and ({util.avg_over_time.5m} >= 0.05) "
        "and ({memory} >= 1073741824)",
        Alert("GpuStarved", " > 0.2", "30m", "info",
              Planted(({"util": 0.4, "memory": 4e10},),
                      ((f"gputop_gpu_idle_ratio{{{_BOTTLENECK_OWN}}}", 0.6),
                       (f'gputop_gpu_verdict{{{_BOTTLENECK_OWN},verdict="dataloader_cpu"}}', 1.0))),
              Planted(({"util": 0.95, "memory": 4e10},),
                      ((f"gputop_gpu_idle_ratio{{{_BOTTLENECK_OWN}}}", 0.05),
                       (f'gputop_gpu_verdict{{{_BOTTLENECK_OWN},verdict="healthy"}}', 1.0)))),
    ),
    Query(
        "loaders_waiting", "bottleneck", "Loaders short of cores", "ratio",
        "max by ({by}) ({gputop_loader_queued_ratio.avg_over_time.5m}) > 0.1",
        "Share of time the dataloader workers were runnable and had no core.",
        "Fewer workers a GPU, more cores a job; decode on the GPU.", None,
    ),
    Query(
        "loaders_on_disk", "bottleneck", "Loaders that wait for the disk", "ratio",
        "max by ({by}) ({gputop_loader_disk_ratio.avg_over_time.5m}) > 0.1",
        "Share of the dataloader workers that waited for the disk.",
        "Larger files, local NVMe, a cache; more workers help only where the disk has room.", None,
    ),
)  # fmt: skip


# Does every GPU of a job keep up.
#
# In a synchronous job those that wait spin in NCCL: busy, at low SM activity. The one that holds them up does more than
# the others, or starves while they spin. So looking for the lowest SM activity names the victims. GPUs are compared
# only within one job, by the median and the median absolute deviation: the straggler itself would move a mean.

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

BREADTH_QUERIES = (
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


# Is every GPU there and healthy.

_HEALTH_OWN = 'gpu="0",uuid="GPU-0",instance="n1:9401"'
_THROTTLED = "gputop_gpu_throttle_seconds_total"
HEALTH_QUERIES = (
    Query(
        "down", "health", "Exporters down", "GPUs", "max_over_time({up}[{w}]) == 0",
        "The last scrapes of this target all failed: the host, its network or its exporter is down. One failed scrape "
        "says nothing.",
        "Check whether the host answers at all; then systemctl status gputop-export, or the pod of the DaemonSet.",
        alert=Alert("GpuExporterDown", "", "1m", "critical",
                    Planted(series=(("up{UP}", 0.0),)), Planted(series=(("up{UP}", 1.0),))),
    ),
    Query(
        "late", "health", "Drivers late or hung", "GPUs", "{gputop_up} == 0",
        "The exporter answers and has no current values: the driver hangs, or there is no GPU.",
        "Run gputop doctor on the host: it says which call hangs. A driver that hangs usually needs a reboot.", None,
        Alert("GpuDriverLate", "", "5m", "critical",
              Planted(series=((f"gputop_up{{{_HEALTH_OWN}}}", 0.0),)),
              Planted(series=((f"gputop_up{{{_HEALTH_OWN}}}", 1.0),))),
    ),
    Query(
        "vanished", "health", "GPUs that vanished", "GPUs",
        "count by ({host}) (last_over_time({util}[10m:1m])) - count by ({host}) ({util}) > 0",
        "Fewer GPUs of this host are exported than in the last ten minutes: one fell off the bus, or was drained.",
        "dmesg | grep -i xid on the host. Xid 79 means that the GPU fell off the bus: drain the node and reset it.",
    ),
    Query(
        "lost", "health", "Unreadable GPUs", "flag", "max by ({by}) ({gputop_gpu_lost}) == 1",
        "The driver lists the GPU and calls on it fail or hang.",
        "Drain the node; reset the GPU or reboot.", None,
        Alert("GpuLost", "", "2m", "critical",
              Planted(series=((f"gputop_gpu_lost{{{_HEALTH_OWN}}}", 1.0),)), Planted()),
    ),
    Query(
        "temperature", "health", "Temperature", "celsius", "{temp}",
        "Temperature of the chip. What matters is whether clocks are cut for it: see throttled.",
        "Airflow, fans, dust, inlet temperature; neighbours in the same chassis.",
        alert=Alert("GpuHot", " > 85", "10m", "warning",
                    Planted(({"temp": 90.0},)), Planted(({"temp": 70.0},))),
    ),
    Query(
        "throttled", "health", "Time with clocks held down by heat or power brake", "ratio",
        'sum by ({by}) ({gputop_gpu_throttle_seconds_total.rate.5m|'
        'reason=~"hardware_thermal|software_thermal|hardware_slowdown|power_brake"})',
        "Share of time in which heat or the power brake cut the clocks. A power cap is not among them: that is how a "
        "busy GPU normally runs.",
        "Cooling, or the power supply of the chassis. The job that runs there slows all its peers down.", None,
        Alert("GpuThrottled", " > 0.1", "10m", "warning",
              Planted(series=((f'{_THROTTLED}{{{_HEALTH_OWN},reason="hardware_thermal"}}', (0.0, 30.0)),)),
              Planted(series=((f'{_THROTTLED}{{{_HEALTH_OWN},reason="power_cap"}}', (0.0, 60.0)),))),
    ),
    Query(
        "power_sawtooth", "health", "Power that swings", "ratio",
        "{power.stddev_over_time.10m} / {power.avg_over_time.10m}",
        "Spread of power over its mean. A training job near 0 is steady; above 0.3 it stops and starts: it waits for "
        "data, for checkpoints or for other ranks, whatever its utilisation says.",
        "Look at starved and gap for the same GPU; gputop trace shows the step.",
    ),
    Query(
        "ecc_uncorrected", "health", "Uncorrected ECC, last hour", "GPUs",
        'sum by ({by}) ({gputop_gpu_ecc_errors_total.increase.1h|kind="uncorrected",counter="volatile"}) > 0',
        "Uncorrected ECC errors in the last hour: what this GPU computed may be wrong, and its job usually dies.",
        "Drain the node, reset the GPU; replace it when they come back or row remapping has failed.",
        "{ecc.increase.1h} > 0",
        Alert("GpuUncorrectedEcc", "", "0m", "critical",
              Planted(({"ecc": (0.0, 1.0)},)), Planted(({"ecc": 3.0},))),
    ),
    Query(
        "xid", "health", "Xid errors", "GPUs",
        "sum by ({by}, xid) ({gputop_gpu_xid_errors_total.increase.10m}) > 0 or sum by ({by}, xid) "
        "({gputop_gpu_xid_errors_total} unless {gputop_gpu_xid_errors_total} offset 10m) > 0",
        "Xid errors of the last ten minutes by number. 13, 31, 43 and 45 point at the program; 48, 63, 64, 74, 79, 94 "
        "and 95 at the hardware. A number that is seen for the first time counts, too.",
        "Cordon the node at 48, 63, 64, 74, 79, 94, 95; tell the job's owner at the others.",
        "max by ({by}) ({DCGM_FI_DEV_XID_ERRORS} > 0)",
        Alert("GpuXid", "", "0m", "warning",
              Planted(series=((f'gputop_gpu_xid_errors_total{{{_HEALTH_OWN},xid="79"}}', (0.0, 1.0)),
                              ('DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-0",HOST="n1"}', 79.0))),
              Planted(series=((f'gputop_gpu_xid_errors_total{{{_HEALTH_OWN},xid="79"}}', 4.0),
                              ('DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-0",HOST="n1"}', 0.0)))),
    ),
    Query(
        "row_remap", "health", "Row remap due or failed", "flag",
        "max by ({by}) ({gputop_gpu_remap_pending} or {gputop_gpu_remap_failed}) == 1",
        "Memory rows wait for a reset to be remapped, or could not be.",
        "Drain and reset the GPU; where it failed, replace it.",
        "max by ({by}) ({DCGM_FI_DEV_ROW_REMAP_FAILURE}) > 0",
    ),
)  # fmt: skip


# How much work is done.

THROUGHPUT_QUERIES = (
    Query(
        "utilization", "throughput", "Utilisation", "ratio", "{util}",
        "Share of time in which at least one kernel ran, on however little of the chip. High utilisation is not work.",
        "Never judge by it alone: see sm_active and gap.",
    ),
    Query(
        "sm_active", "throughput", "SM activity", "ratio", "{sm}",
        "Share of the multiprocessors that had a warp, averaged over cycles. Absent where nothing measures it: "
        "dcgm-exporter comes with it switched off.",
        "To switch it on there, add the line `DCGM_FI_PROF_SM_ACTIVE, gauge, SM activity` to its counters file.",
    ),
    Query(
        "occupancy", "throughput", "SM occupancy", "ratio", "{occupancy}",
        "Resident warps as a share of those that the multiprocessors could hold. 0.25 is enough for many kernels.",
        "Worth a look only where SM activity is low: larger batch, fewer registers a thread.",
    ),
    Query(
        "tensor", "throughput", "Tensor pipes", "ratio", "{tensor}",
        "Share of cycles in which a tensor pipe was active. The best single number of training throughput.",
        "Near 0 in training: matrices in FP32, or shapes that are not multiples of 8; bf16, torch.compile.",
    ),
    Query(
        "dram", "throughput", "Device memory bandwidth", "ratio", "{dram}",
        "Bandwidth used of the theoretical peak; about 0.8 is what kernels reach.", "See memory_bound.",
    ),
    Query(
        "memory_share", "throughput", "Device memory in use", "ratio", "{memory} / {memory_total}",
        "Memory held, not memory used: a framework's cache keeps it while the GPU idles.",
        "A job that holds little might share a GPU, or take a larger batch.",
    ),
    Query(
        "power", "throughput", "Power", "watts", "{power}",
        "Power of the board. The same matrix product draws up to two thirds more or less by its data alone, so it "
        "ranks GPUs, and is no measure of work.",
        "Compare GPUs of one job: they should draw alike.",
    ),
    Query(
        "cluster_power", "throughput", "Power of all GPUs", "watts", "sum({power})",
        "Boards alone, without hosts and cooling.", "For capacity planning.",
    ),
    Query(
        "energy", "throughput", "Energy in the last hour", "joules", "sum by ({host}) ({energy.increase.1h})",
        "What the boards took, by host.", "Divide by 3.6 million for kWh.",
    ),
    Query(
        "steps_per_second", "throughput", "Training steps a second", "1/s",
        "sum by (job_id, rank) ({gputop_step_seconds_count.rate.5m})",
        "Steps as jobs announce them: the one number that says whether a job became faster.",
        "Announce steps from the job with gputop.watch().", None,
    ),
    Query(
        "samples_per_second", "throughput", "Training samples a second", "1/s",
        "sum by (job_id) ({gputop_step_samples_total.rate.5m})",
        "Samples that all announced steps of a job took in, where the job says how many a step has.",
        "Announce them with gputop.watch(): work(samples=…), or step(batch_size=…).", None,
    ),
    Query(
        "step_seconds", "throughput", "Time of a training step", "seconds",
        "sum by (job_id, rank) ({gputop_step_seconds_sum.rate.5m}) / "
        "sum by (job_id, rank) ({gputop_step_seconds_count.rate.5m} > 0)",
        "Mean over five minutes.", "Record a run with gputop record where it rises.", None,
    ),
    Query(
        "efficiency", "throughput", "SM activity as a share of utilisation", "ratio",
        "{sm.avg_over_time.5m} / ({util.avg_over_time.5m} > 0.1)",
        "How much of the chip works while the GPU counts as busy.", "Below 0.3: see gap and its verdict.",
    ),
)  # fmt: skip


# GPU time that did no work.
#
# Counted in GPU-hours. (1 - utilisation) x price, as it is often taught, trusts the number that is in doubt: a GPU that
# is busy and not working costs as much. GPUs whose SM activity is not measured are counted apart, neither as waste nor
# as work.

_WASTE_OWN = 'gpu="0",uuid="GPU-0",instance="n1:9401"'
_NOT_WORK = "busy_not_working|starved|idle_allocated|idle"
_BUSY = "({util.avg_over_time.5m} >= 0.8) and ({sm.avg_over_time.5m} < 0.3)"
_IDLE = "({util.quantile_over_time.5m.0_95} < 0.05)"
_HELD = "({memory} >= 1073741824)"
_WASTE_STARVED = f"(({{util.avg_over_time.5m}} <= 0.8) and {_HELD} unless {_IDLE})"
_PRESENT = {
    "busy_not_working": _BUSY,
    "starved": f"{_WASTE_STARVED} unless ({_BUSY})",
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
WASTE_QUERIES = (
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
              Planted(series=((f'gputop_gpu_state_seconds_total{{{_WASTE_OWN},state="starved"}}', (0.0, 60.0)),
                              (f'gputop_gpu_state_seconds_total{{{_WASTE_OWN},state="working"}}', (0.0, 10.0)))),
              Planted(series=((f'gputop_gpu_state_seconds_total{{{_WASTE_OWN},state="starved"}}', (0.0, 10.0)),
                              (f'gputop_gpu_state_seconds_total{{{_WASTE_OWN},state="working"}}', (0.0, 60.0))))),
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
