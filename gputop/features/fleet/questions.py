"""All queries joined: rules, alerts, dashboards and the command are made of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from gputop.diagnosis.other_jobs import ALL_UTIL, LEAST_GPUS, LEAST_POINTS, MAD_FACTOR, STEP_FACTOR
from gputop.diagnosis.thresholds import MEMORY_DRAM, MEMORY_UTIL
from gputop.diagnosis.types import NOT_WORK, NOT_WORKING, STATE_WORDS, State
from gputop.features.fleet.fleet_reading import GpuState
from gputop.features.fleet.judge import FLEET_NOT_WORK, GPU_STATES, UNUSED
from gputop.features.fleet.state_rules import HOST_GPUS, IN_STATE, JOB_LOST, OWNER_LABELS, SM, UTIL, is_state, share
from gputop.features.fleet.template import AlertRule, FleetQuestion, Planted, Stops


@lru_cache(maxsize=1)
def library() -> Mapping[str, FleetQuestion]:
    """Every query by its id, in the order of the failure modes."""

    rows: tuple[FleetQuestion, ...] = (
        *HEALTH_QUERIES, *THROUGHPUT_QUERIES, *BOTTLENECK_QUERIES, *BREADTH_QUERIES, *WASTE_QUERIES
    )  # fmt: skip
    return MappingProxyType({row.id: row for row in rows})


# What holds a GPU back.

_BOTTLENECK_OWN = 'gpu="0",uuid="GPU-n1-0",instance="n1:9401"'
_LANE = "0.985e9 * 2 ^ ({pcie_gen} - 3) * 0.8"
"""Usable bytes a second of one PCIe lane, one direction: 0.985 GB/s in generation 3, doubled by each next one."""
_BOTTLENECK_STARVED = "pcie_transfer|dataloader_.*|main_process|worker_restart|checkpoint_pause|starved_unattributed"
BOTTLENECK_QUERIES = (
    FleetQuestion(
        "gap", "bottleneck", NOT_WORKING.capitalize(), "ratio",
        '(({util.avg_over_time.5m} - {sm.avg_over_time.5m}) or {util.avg_over_time.5m}) and on ({by}) '
        '(max by ({by}) ({gputop_gpu_state|state="busy_not_working"}) == 1)',
        "Kernels run all the time, on less than a third of the chip: small kernels, NCCL that spins, or one block that "
        "keeps a whole GPU busy. The value is the gap between utilisation and SM activity. Where gputop runs on the "
        "node, its own state decides.",
        "On the host gputop says which: the verdict small_kernels, communication or low_sm, with evidence and remedy.",
        f"({UTIL} - {SM}) and {is_state('busy_not_working')}",
        alert=AlertRule("GpuBusyNotWorking", "", "15m", "warning",
                    Planted(({"util": 0.97, "sm": 0.29, "memory": 4e10},),
                            ((f'gputop_gpu_state{{{_BOTTLENECK_OWN},state="busy_not_working"}}', 1.0),)),
                    Planted(({"util": 0.97, "sm": 0.31, "memory": 4e10},),
                            ((f'gputop_gpu_state{{{_BOTTLENECK_OWN},state="busy_not_working"}}', 0.0),))),
    ),
    FleetQuestion(
        "memory_bound", "bottleneck", "Bound by memory bandwidth", "ratio",
        f"{{dram.avg_over_time.5m}} and ({{dram.avg_over_time.5m}} >= {share(MEMORY_DRAM)}) "
        f"and ({{util.avg_over_time.5m}} >= {share(MEMORY_UTIL)})",
        "Three quarters of the bandwidth that kernels reach. SM activity is high meanwhile: warps wait for memory, so "
        "the usual condition of DRAM high and SM low finds nothing.",
        "Inherent in decoding; larger batch, FlashAttention, fused kernels, quantised weights.",
    ),
    FleetQuestion(
        "pcie_saturation", "bottleneck", "PCIe traffic as a share of the link", "ratio",
        f"({{pcie_rx.avg_over_time.5m}} > {{pcie_tx.avg_over_time.5m}} or {{pcie_tx.avg_over_time.5m}}) / "
        f"({_LANE} * {{pcie_width}})",
        "The busier direction against what the link carries at its present generation and width. A fixed limit in GB/s "
        "is wrong on every other machine.",
        "pin_memory=True and non_blocking copies; keep data on the GPU; check that the link runs at its full width.",
        alert=AlertRule("GpuPcieSaturated", " > 0.9", "15m", "info",
                    Planted(({"pcie_rx": 50e9, "pcie_tx": 1e9, "pcie_gen": 5.0, "pcie_width": 16.0},)),
                    Planted(({"pcie_rx": 20e9, "pcie_tx": 1e9, "pcie_gen": 5.0, "pcie_width": 16.0},))),
    ),
    FleetQuestion(
        "pcie_against_dram", "bottleneck", "PCIe traffic with little use of device memory", "bytes/s",
        "{pcie_rx.avg_over_time.5m} and ({pcie_rx.avg_over_time.5m} > 1e9) and ({dram.avg_over_time.5m} < 0.15)",
        "Data comes over PCIe and little is done with it: copies set the pace.",
        "Preprocess on the GPU, send bytes and not floats, prefetch to the device.",
    ),
    FleetQuestion(
        "communication", "bottleneck", "Waits for other GPUs", "ratio",
        'max by ({by}) ({gputop_gpu_verdict|verdict="communication"}) == 1',
        "The GPU is busy and not working because its kernels wait in NCCL. Under dcgm-exporter's names it may be small "
        "kernels as well: what is seen is traffic over NVLink meanwhile.",
        "Find the rank that the others wait for: straggler_slow, straggler_starved. Overlap communication.",
        f"{{nvlink_rx.avg_over_time.5m}} and {is_state('busy_not_working')} and ({{nvlink_rx.avg_over_time.5m}} > 1e9)",
    ),
    FleetQuestion(
        "starved_by_cause", "bottleneck", "Starved GPUs by cause", "GPUs",
        f'count by (verdict) ({{gputop_gpu_verdict|verdict=~"{_BOTTLENECK_STARVED}"}} == 1)',
        "GPUs that wait for their host, by what the host did meanwhile: loaders short of cores, on disk or network, "
        "the main thread, copies.",
        "Each verdict has its remedy: gputop help verdicts.", None,
    ),
    FleetQuestion(
        "starved", "bottleneck", "Starved GPUs", "ratio",
        'max by ({by}) ({gputop_gpu_idle_ratio.avg_over_time.5m}) and on ({by}) '
        '(max by ({by}) ({gputop_gpu_state|state="starved"}) == 1)',
        "Share of time in which no kernel ran on a GPU that a job holds.",
        "On the host: gputop, or gputop diagnose for a ticket.",
        f"(1 - {UTIL}) and {is_state('starved')}",
        AlertRule("GpuStarved", " > 0.2", "30m", "info",
              Planted(({"util": 0.79, "sm": 0.7, "memory": 4e10},),
                      ((f"gputop_gpu_idle_ratio{{{_BOTTLENECK_OWN}}}", 0.21),
                       (f'gputop_gpu_state{{{_BOTTLENECK_OWN},state="starved"}}', 1.0)), has_job=True),
              Planted(({"util": 0.81, "sm": 0.7, "memory": 4e10},),
                      ((f"gputop_gpu_idle_ratio{{{_BOTTLENECK_OWN}}}", 0.19),
                       (f'gputop_gpu_state{{{_BOTTLENECK_OWN},state="starved"}}', 1.0)), has_job=True)),
    ),
    FleetQuestion(
        "loaders_waiting", "bottleneck", "Loaders short of cores", "ratio",
        "max by ({by}) ({gputop_loader_queued_ratio.avg_over_time.5m}) > 0.1",
        "Share of time the dataloader workers were runnable and had no core.",
        "Fewer workers a GPU, more cores a job; decode on the GPU.", None,
    ),
    FleetQuestion(
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
_POINTS, _BUSY = share(LEAST_POINTS), share(ALL_UTIL)


def _median(of: str) -> str:
    return f"quantile by (workload) (0.5, {of})"


_ABOVE = f"({_SM} - on (workload) group_left () {_median(_SM)})"
_ALL_BUSY = f"(min by (workload) ({_UTIL}) >= {_BUSY})"
_ENOUGH = f"(count by (workload) ({_UTIL}) >= {LEAST_GPUS})"
_WAITING = ({"util": 0.98, "sm": 0.12},) * 7
_EVEN = ({"util": 0.98, "sm": 0.62},) * 8
_OWN_STEP = " - ".join(
    f"sum by (job_id, rank) ({{{series}_sum.rate.5m}}) / sum by (job_id, rank) ({{{series}_count.rate.5m}} > 0)"
    for series in ("gputop_step_seconds", "gputop_step_wait_seconds")
)

BREADTH_QUERIES = (
    FleetQuestion(
        "straggler_slow", "breadth", "GPUs that the others of their job wait for", "ratio",
        f"({_ABOVE} > {_POINTS}) and on (workload) {_ALL_BUSY} and on (workload) {_ENOUGH} "
        f"unless ({_ABOVE} <= on (workload) group_left () "
        f"{MAD_FACTOR:g} * {_median(f'abs({_ABOVE})')})",
        "All GPUs of the job are busy, and this one does more than the others: they wait for it in NCCL. The value is "
        "how far its SM activity lies above the median.",
        "Compare its clocks, temperature and link with the others'; uneven batches or layers; drain it if it is the "
        "hardware.",
        alert=AlertRule("GpuStragglerSlow", "", "1m", "warning",
                    Planted(({"util": 0.99, "sm": 0.9}, *_WAITING), has_job=True), Planted(_EVEN, has_job=True)),
    ),
    FleetQuestion(
        "straggler_starved", "breadth", "GPUs that starve while their job spins", "ratio",
        f"(({_UTIL} - on (workload) group_left () {_median(_UTIL)}) < -{_POINTS}) "
        f"and on (workload) (count by (workload) ({_UTIL} < {_BUSY}) == 1) and on (workload) {_ENOUGH}",
        "One GPU of the job is not busy while all others are: they spin until it arrives. The value is how far its "
        "utilisation lies below the median.",
        "On its host gputop names what it waits for: loaders, disk, network or the main thread.",
        alert=AlertRule("GpuStragglerStarved", "", "1m", "warning",
                    Planted(({"util": 0.4, "sm": 0.35}, *_WAITING), has_job=True), Planted(_EVEN, has_job=True)),
    ),
    FleetQuestion(
        "straggler_step", "breadth", "Ranks whose steps take longer", "ratio",
        "(sum by (job_id, rank) ({gputop_step_seconds_sum.rate.5m}) / "
        "sum by (job_id, rank) ({gputop_step_seconds_count.rate.5m} > 0)) "
        "/ on (job_id) group_left () quantile by (job_id) (0.5, "
        "sum by (job_id, rank) ({gputop_step_seconds_sum.rate.5m}) / "
        f"sum by (job_id, rank) ({{gputop_step_seconds_count.rate.5m}} > 0)) > {STEP_FACTOR:g}",
        "A rank's step against the median of its job, where ranks announce steps. Ranks that wait for each other have "
        "equal steps: this finds those that do not.",
        "See straggler_slow and straggler_starved for jobs that wait for each other in every step.", None,
    ),
    FleetQuestion(
        "straggler_own_step", "breadth", "Ranks whose own part of a step takes longer", "ratio",
        f"({_OWN_STEP}) / on (job_id) group_left () quantile by (job_id) (0.5, {_OWN_STEP}) > {STEP_FACTOR:g}",
        "A rank's step without what it waited for others, against the median of its job, where ranks announce both. "
        "The others wait for it in every step, so that all steps take equal time.",
        "On its host gputop names what it does; compare clocks, temperature and data there.", None,
    ),
    FleetQuestion(
        "spread", "breadth", "Spread of SM activity within a job", "ratio",
        f"max by (workload) ({_SM}) - min by (workload) ({_SM})",
        "Between the busiest and the least busy GPU of a job. Large with a straggler, and in pipelines that are meant "
        "to be uneven.",
        "Then see which GPU stands out: straggler_slow.",
    ),
)  # fmt: skip


# Is every GPU there and healthy.

_HEALTH_OWN = 'gpu="0",uuid="GPU-n1-0",instance="n1:9401"'
_THROTTLED = "gputop_gpu_throttle_seconds_total"
HEALTH_QUERIES = (
    FleetQuestion(
        "down", "health", "Exporters down", "GPUs", "max_over_time({up}[{w}]) == 0",
        "The last scrapes of this target all failed: the host, its network or its exporter is down. One failed scrape "
        "says nothing.",
        "Check whether the host answers at all; then systemctl status gputop-export, or the pod of the DaemonSet.",
        alert=AlertRule("GpuExporterDown", "", "1m", "critical",
                    Planted(series=(("up{UP}", 0.0),)), Planted(series=(("up{UP}", 1.0),)), "host"),
    ),
    FleetQuestion(
        "late", "health", "Drivers late or hung", "GPUs", "{gputop_up} == 0",
        "The exporter answers and has no current values: the driver hangs, or there is no GPU.",
        "Run gputop doctor on the host: it says which call hangs. A driver that hangs usually needs a reboot.", None,
        AlertRule("GpuDriverLate", "", "5m", "critical",
              Planted(series=((f"gputop_up{{{_HEALTH_OWN}}}", 0.0),)),
              Planted(series=((f"gputop_up{{{_HEALTH_OWN}}}", 1.0),)), "host"),
    ),
    FleetQuestion(
        "dead", "health", "Exporters whose file stays", "seconds",
        "(time() - {gputop_last_sample_timestamp_seconds}) and on (instance) ({gputop_up} == 1) and on (instance) "
        "({gputop_last_sample_timestamp_seconds.max_over_time.2m} == "
        "{gputop_last_sample_timestamp_seconds.min_over_time.2m}"
        ") and on (instance) "
        "({gputop_last_sample_timestamp_seconds.count_over_time.2m} >= 3)",
        "Nobody writes the file of `gputop export --textfile` any more, and node_exporter goes on serving what is in "
        "it. The value is its age. That it does not change is what counts: a node's clock may be wrong.",
        "See why the exporter ended; remove the file until it runs again.", None,
        AlertRule("GpuExporterDead", "", "1m", "critical",
              Planted(series=((f"gputop_last_sample_timestamp_seconds{{{_HEALTH_OWN}}}", 0.0),
                              (f"gputop_up{{{_HEALTH_OWN}}}", 1.0))),
              Planted(series=((f"gputop_last_sample_timestamp_seconds{{{_HEALTH_OWN}}}", (0.0, 60.0)),
                              (f"gputop_up{{{_HEALTH_OWN}}}", 1.0))), "host"),
    ),
    FleetQuestion(
        "vanished", "health", "GPUs that vanished", "GPUs",
        f"max_over_time({{{HOST_GPUS}}}[1h]) - {{{HOST_GPUS}}} > 0",
        "Fewer GPUs of this host are exported than within the last hour: one fell off the bus, or was drained. GPUs "
        "are counted, not MIG instances.",
        "dmesg | grep -i xid on the host. Xid 79 means that the GPU fell off the bus: drain the node and reset it.",
        alert=AlertRule("GpuVanished", "", "2m", "critical",
                    Planted(({"util": 0.9}, {"util": Stops(0.9, 6)})),
                    Planted(({"util": 0.9}, {"util": Stops(0.9, 90)})), "host"),
    ),
    FleetQuestion(
        "lost", "health", "Unreadable GPUs", "flag", "max by ({by}) ({gputop_gpu_lost}) == 1",
        "The driver lists the GPU and calls on it fail or hang.",
        "Drain the node; reset the GPU or reboot.", None,
        AlertRule("GpuLost", "", "2m", "critical",
              Planted(series=((f"gputop_gpu_lost{{{_HEALTH_OWN}}}", 1.0),)),
              Planted(series=((f"gputop_gpu_lost{{{_HEALTH_OWN}}}", 0.0),))),
    ),
    FleetQuestion(
        "temperature", "health", "Temperature", "celsius", "{temp}",
        "Temperature of the chip. What matters is whether clocks are cut for it: see throttled.",
        "Airflow, fans, dust, inlet temperature; neighbours in the same chassis.",
        alert=AlertRule("GpuHot", " > 85", "10m", "warning",
                    Planted(({"temp": 86.0},)), Planted(({"temp": 84.0},))),
    ),
    FleetQuestion(
        "throttled", "health", "Time with clocks held down by heat or power brake", "ratio",
        'sum by ({by}) ({gputop_gpu_throttle_seconds_total.rate.5m|'
        'reason=~"hardware_thermal|software_thermal|hardware_slowdown|power_brake"})',
        "Share of time in which heat or the power brake cut the clocks. A power cap is not among them: that is how a "
        "busy GPU normally runs.",
        "Cooling, or the power supply of the chassis. The job that runs there slows all its peers down.", None,
        AlertRule("GpuThrottled", " > 0.1", "10m", "warning",
              Planted(series=((f'{_THROTTLED}{{{_HEALTH_OWN},reason="hardware_thermal"}}', (0.0, 7.0)),)),
              Planted(series=((f'{_THROTTLED}{{{_HEALTH_OWN},reason="hardware_thermal"}}', (0.0, 5.0)),))),
    ),
    FleetQuestion(
        "power_sawtooth", "health", "Power that swings", "ratio",
        "{power.stddev_over_time.10m} / {power.avg_over_time.10m}",
        "Spread of power over its mean. A training job near 0 is steady; above 0.3 it stops and starts: it waits for "
        "data, for checkpoints or for other ranks, whatever its utilisation says.",
        "Look at starved and gap for the same GPU; gputop trace shows the step.",
    ),
    FleetQuestion(
        "ecc_uncorrected", "health", "Uncorrected ECC, last hour", "GPUs",
        'sum by ({by}) ({gputop_gpu_ecc_errors_total.increase.1h|kind="uncorrected",counter="volatile"}) > 0',
        "Uncorrected ECC errors in the last hour: what this GPU computed may be wrong, and its job usually dies.",
        "Drain the node, reset the GPU; replace it when they come back or row remapping has failed.",
        "{ecc.increase.1h} > 0",
        AlertRule("GpuUncorrectedEcc", "", "0m", "critical",
              Planted(({"ecc": (0.0, 1.0)},)), Planted(({"ecc": 3.0},))),
    ),
    FleetQuestion(
        "xid", "health", "Xid errors", "GPUs",
        "sum by ({by}, xid) ({gputop_gpu_xid_errors_total.increase.10m}) > 0 or sum by ({by}, xid) "
        "({gputop_gpu_xid_errors_total} unless {gputop_gpu_xid_errors_total} offset 10m) > 0",
        "Xid errors of the last ten minutes by number. 13, 31, 43 and 45 point at the program; 48, 63, 64, 74, 79, 94 "
        "and 95 at the hardware. A number that is seen for the first time counts, too. dcgm-exporter gives the last "
        "number and no count: there the value is that number, and it ends ten minutes after it last changed.",
        "Cordon the node at 48, 63, 64, 74, 79, 94, 95; tell the job's owner at the others.",
        "max by ({by}) ({DCGM_FI_DEV_XID_ERRORS} > 0) and on ({by}) "
        "(max by ({by}) ({DCGM_FI_DEV_XID_ERRORS.changes.10m}) > 0 or "
        "(max by ({by}) ({DCGM_FI_DEV_XID_ERRORS}) unless max by ({by}) ({DCGM_FI_DEV_XID_ERRORS} offset 10m)))",
        AlertRule("GpuXid", "", "0m", "warning",
              Planted(series=((f'gputop_gpu_xid_errors_total{{{_HEALTH_OWN},xid="79"}}', (0.0, 1.0)),
                              ('DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-0",HOST="n1"}', (0.0, 1.0)))),
              Planted(series=((f'gputop_gpu_xid_errors_total{{{_HEALTH_OWN},xid="79"}}', 4.0),
                              ('DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-0",HOST="n1"}', 31.0)))),
    ),
    FleetQuestion(
        "row_remap", "health", "Row remap due or failed", "flag",
        "max by ({by}) ({gputop_gpu_remap_pending} or {gputop_gpu_remap_failed}) == 1",
        "Memory rows wait for a reset to be remapped, or could not be.",
        "Drain and reset the GPU; where it failed, replace it.",
        "max by ({by}) ({DCGM_FI_DEV_ROW_REMAP_FAILURE}) > 0",
    ),
)  # fmt: skip


# How much work is done.

THROUGHPUT_QUERIES = (
    FleetQuestion(
        "utilization", "throughput", "Utilisation", "ratio", "{util}",
        "Share of time in which at least one kernel ran, on however little of the chip. High utilisation is not work.",
        "Never judge by it alone: see sm_active and gap.",
    ),
    FleetQuestion(
        "sm_active", "throughput", "SM activity", "ratio", "{sm}",
        "Share of the multiprocessors that had a warp, averaged over cycles. Absent where nothing measures it: "
        "dcgm-exporter comes with it switched off.",
        "To switch it on there, add the line `DCGM_FI_PROF_SM_ACTIVE, gauge, SM activity` to its counters file.",
    ),
    FleetQuestion(
        "occupancy", "throughput", "SM occupancy", "ratio", "{occupancy}",
        "Resident warps as a share of those that the multiprocessors could hold. 0.25 is enough for many kernels.",
        "Worth a look only where SM activity is low: larger batch, fewer registers a thread.",
    ),
    FleetQuestion(
        "tensor", "throughput", "Tensor pipes", "ratio", "{tensor}",
        "Share of cycles in which a tensor pipe was active. The best single number of training throughput.",
        "Near 0 in training: matrices in FP32, or shapes that are not multiples of 8; bf16, torch.compile.",
    ),
    FleetQuestion(
        "dram", "throughput", "Device memory bandwidth", "ratio", "{dram}",
        "Bandwidth used of the theoretical peak; about 0.8 is what kernels reach.", "See memory_bound.",
    ),
    FleetQuestion(
        "memory_share", "throughput", "Device memory in use", "ratio", "{memory} / {memory_total}",
        "Memory held, not memory used: a framework's cache keeps it while the GPU idles.",
        "A job that holds little might share a GPU, or take a larger batch.",
    ),
    FleetQuestion(
        "power", "throughput", "Power", "watts", "{power}",
        "Power of the board. The same matrix product draws up to two thirds more or less by its data alone, so it "
        "ranks GPUs, and is no measure of work.",
        "Compare GPUs of one job: they should draw alike.",
    ),
    FleetQuestion(
        "cluster_power", "throughput", "Power of all GPUs", "watts", "sum({power})",
        "Boards alone, without hosts and cooling.", "For capacity planning.",
    ),
    FleetQuestion(
        "energy", "throughput", "Energy in the last hour", "joules", "sum by ({host}) ({energy.increase.1h})",
        "What the boards took, by host.", "Divide by 3.6 million for kWh.",
    ),
    FleetQuestion(
        "steps_per_second", "throughput", "Training steps a second", "1/s",
        "sum by (job_id, rank) ({gputop_step_seconds_count.rate.5m})",
        "Steps as jobs announce them: the one number that says whether a job became faster.",
        "Announce steps from the job with gputop.watch().", None,
    ),
    FleetQuestion(
        "samples_per_second", "throughput", "Training samples a second", "1/s",
        "sum by (job_id) ({gputop_step_samples_total.rate.5m})",
        "Samples that all announced steps of a job took in, where the job says how many a step has.",
        "Announce them with gputop.watch(): work(samples=…), or step(batch_size=…).", None,
    ),
    FleetQuestion(
        "step_seconds", "throughput", "Time of a training step", "seconds",
        "sum by (job_id, rank) ({gputop_step_seconds_sum.rate.5m}) / "
        "sum by (job_id, rank) ({gputop_step_seconds_count.rate.5m} > 0)",
        "Mean over five minutes.", "Record a run with gputop record where it rises.", None,
    ),
    FleetQuestion(
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

_WASTE_OWN = 'gpu="0",uuid="GPU-n1-0",instance="n1:9401"'
_OWN_IDLE = f'gputop_gpu_state{{{_WASTE_OWN},state="idle"}}'
_NOT_WORK, _LOST = "|".join(NOT_WORK), "|".join(FLEET_NOT_WORK)
_WATCHED = "max by ({by}, state) ({gputop_gpu_state_seconds_total.increase.1h})"
_WASTED = f'max by ({{by}}, state) ({{gputop_gpu_state_seconds_total.increase.1h|state=~"{_NOT_WORK}"}})'
"""Of an exporter that is scraped twice, by a pair of Prometheus or by two jobs, the seconds count once."""
_ALL_MINUTES = f"sum by (cluster) (sum_over_time({{{IN_STATE}}}[1h])) / 60"
_LOST_MINUTES = f'sum by (cluster) (sum_over_time({{{IN_STATE}|state=~"{_LOST}"}}[1h]))'
_KNOWN_MINUTES = f'sum by (cluster) (sum_over_time({{{IN_STATE}|state!="unmeasured"}}[1h]))'
_COST_MINUTES = f'sum by (cluster, state) (sum_over_time({{{IN_STATE}|state=~"{_LOST}"}}[1h])) / 60 * {{price}}'


def _minutes(state: GpuState) -> str:
    return f'sum by (cluster) (sum_over_time({{{IN_STATE}|state="{state}"}}[1h])) / 60'


def _state(id: str, state: State, title: str, meaning: str, advice: str) -> FleetQuestion:
    own = f'max by ({{by}}) ({{gputop_gpu_state_seconds_total.increase.1h|state="{state}"}})'
    minutes = _minutes(state)
    asked = f"sum by (cluster) ({own}) / 3600"
    return FleetQuestion(id, "waste", title, "GPU-hours", asked, meaning, advice, minutes, recorded=minutes)


_BY_JOB = f"sum by (cluster, {', '.join(OWNER_LABELS)}) (sum_over_time({{{JOB_LOST}}}[1h])) / 60"
WASTE_QUERIES = (
    FleetQuestion(
        "gpus_by_state", "waste", "GPUs by state", "GPUs",
        "count by (cluster, state) (max by ({by}, state) ({gputop_gpu_state}) == 1)",
        "The state that each GPU's time counts as now.", "Those that are not working come first: gap, starved.",
        " or ".join(
            f'label_replace(count by (cluster) ({is_state(state)}), "state", "{state}", "", "")' for state in GPU_STATES
        ),
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
           "Nobody holds memory there and no kernel ran. Nodes that run gputop count a GPU here, too, that a job holds "
           "and does not use: hours_allocated_unused.", "Capacity, not waste of a job."),
    FleetQuestion(
        "hours_allocated_unused", "waste", f"{UNUSED.capitalize()}: last hour", "GPU-hours",
        _minutes("allocated_unused"),
        "A job held the GPU, and no process used it. Minute by minute; a node counts the same time as idle.",
        "A job that asks for fewer GPUs; idle limits.", recorded=_minutes("allocated_unused"),
    ),
    FleetQuestion(
        "hours_total", "waste", "All GPUs: last hour", "GPU-hours",
        f"sum by (cluster) ({_WATCHED}) / 3600", "The total of which the other states are parts.",
        "Nothing to do.", _ALL_MINUTES, recorded=_ALL_MINUTES,
    ),
    FleetQuestion(
        "unmeasured", "waste", "GPUs without SM activity", "GPUs",
        'count by (cluster, source) (max by ({by}, source) ({gputop_sm_source|source=~"bound|none"}))',
        "Nothing measures SM activity there, so it is unknown whether they work. Neither waste nor work.",
        "gputop doctor on the host says what would measure it. In dcgm-exporter add DCGM_FI_PROF_SM_ACTIVE to the "
        "counters file.",
        "count by (cluster) ({util} unless {sm})",
    ),
    FleetQuestion(
        "waste_by_job", "waste", "No work, by job and user: last hour", "GPU-hours", _BY_JOB,
        "Busy and not working, starved and idle, minute by minute, under the job that had the GPU in that minute.",
        "Start with the first: one job often wastes more than all others together.",
    ),
    FleetQuestion(
        "idle_with_memory", "waste", "Idle GPUs that hold memory", "bytes",
        '{memory} and on ({by}) (max by ({by}) ({gputop_gpu_state|state="idle_allocated"}) == 1)',
        "No kernel ran, and at least 1 GiB is held: nobody else can use it.",
        "Ask the owner; idle limits for notebooks.",
        f"{{memory}} and {is_state('idle_allocated')}",
        alert=AlertRule("GpuIdleWithMemory", "", "30m", "info",
                    Planted(({"util": 0.0, "memory": 1.1e9},),
                            ((f'gputop_gpu_state{{{_WASTE_OWN},state="idle_allocated"}}', 1.0),)),
                    Planted(({"util": 0.0, "memory": 1e9},),
                            ((f'gputop_gpu_state{{{_WASTE_OWN},state="idle_allocated"}}', 0.0),))),
    ),
    FleetQuestion(
        "allocated_unused", "waste", "GPUs that a job holds and does not use", "flag",
        f"{is_state('allocated_unused')} * 0 + 1",
        "The scheduler or the kubelet gave the GPU to a job, and no process of it uses the GPU or holds memory there.",
        "Ask the owner: a job that asks for fewer GPUs leaves this one to another.",
        alert=AlertRule("GpuAllocatedUnused", "", "30m", "info",
                    Planted(({"util": 0.0, "memory": 1e8},), ((_OWN_IDLE, 1.0),), has_job=True, has_process=False),
                    Planted(({"util": 0.06, "memory": 1e8},), ((_OWN_IDLE, 0.0),), has_job=True, has_process=False)),
    ),
    FleetQuestion(
        "waste_share", "waste", "No work: share, last hour", "ratio",
        f"sum by (cluster) ({_WASTED}) / sum by (cluster) "
        '(max by ({by}, state) ({gputop_gpu_state_seconds_total.increase.1h|state!="unmeasured"}))',
        "Of the time in which it is known. Unmeasured GPUs are in neither number.",
        "Track it by week: it is the number to bring down.",
        f"sum by (cluster) (sum_over_time({{{JOB_LOST}}}[1h])) / {_KNOWN_MINUTES}",
        AlertRule("GpuFleetWasted", " > 0.5", "1h", "info",
              Planted(({"util": 0.3, "sm": 0.25, "memory": 1e8},),
                      ((f'gputop_gpu_state_seconds_total{{{_WASTE_OWN},state="starved"}}', (0.0, 60.0)),
                       (f'gputop_gpu_state_seconds_total{{{_WASTE_OWN},state="working"}}', (0.0, 10.0))), has_job=True),
              Planted(({"util": 0.7, "sm": 0.65, "memory": 1e8},),
                      ((f'gputop_gpu_state_seconds_total{{{_WASTE_OWN},state="starved"}}', (0.0, 10.0)),
                       (f'gputop_gpu_state_seconds_total{{{_WASTE_OWN},state="working"}}', (0.0, 60.0))), has_job=True),
              "fleet"),
        recorded=f"{_LOST_MINUTES} / {_KNOWN_MINUTES}",
    ),
    FleetQuestion(
        "cost_no_work", "waste", "Cost of GPU time that did no work, last hour", "money",
        f"sum by (cluster) ({_WASTED}) / 3600 * {{price}}",
        "GPU-hours that did no work, at the price of a GPU-hour that you gave: an assumption, so state the price "
        "beside the number. (1 - utilisation) x price counts a GPU that is busy and not working as work.",
        "Give your own price: --price 2.50.",
        f"sum by (cluster) (sum_over_time({{{JOB_LOST}}}[1h])) / 60 * {{price}}",
        recorded=f"{_LOST_MINUTES} / 60 * {{price}}",
    ),
    FleetQuestion(
        "cost_by_state", "waste", "Cost by state, last hour", "money",
        f"sum by (cluster, state) ({_WASTED}) / 3600 * {{price}}",
        "The same by what the time counted as. Unmeasured GPUs have no cost here: it is unknown whether they work.",
        "Busy and not working first: it looks like work. Give your own price: --price 2.50.",
        _COST_MINUTES, recorded=_COST_MINUTES,
    ),
    FleetQuestion(
        "cost_by_job", "waste", "Cost by job and user, last hour", "money", f"{_BY_JOB} * {{price}}",
        "What each job's GPUs cost while they did no work, minute by minute under the job that had them then.",
        "Start with the first. Give your own price: --price 2.50.",
    ),
)  # fmt: skip
