"""How much work is done."""

from __future__ import annotations

from gputop.fleet.query import Query

QUERIES = (
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
