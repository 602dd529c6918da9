"""Thresholds of verdicts, traces, steps, comparisons and links.

Of a GPU each has the value at which its rule enters and the one at which it leaves.

Ratios are of means over busy time: r = SM / util, d = DRAM / util, x = tensor / SM. Util, SM and the pipes are in
percent, ratios and shares of a limit from 0 to 1. Recordings of real GPUs, and how far each threshold lies from them,
are in docs/design/diagnosis.md. Nothing here is computed: queries of a fleet are written from the same numbers.
"""

from __future__ import annotations

from typing import Final


class Threshold(float):
    """The value at which a condition enters.

    ``leave`` is the one at which it leaves.
    """

    leave: float

    def __new__(cls, enter: float, *, leave: float) -> Threshold:
        """Both values, in one unit."""
        made = super().__new__(cls, enter)
        made.leave = leave
        return made


# --- the flags: busy, not working -----------------------------------------------------------------------------------

FLAG_A_UTIL: Final = Threshold(80.0, leave=77.0)
FLAG_A_SM: Final = Threshold(30.0, leave=33.0)
"""A: util at least this, SM below that (Packet.ai)."""

FLAG_B_UTIL: Final = Threshold(50.0, leave=47.0)
FLAG_B_RATIO: Final = Threshold(0.3, leave=0.33)
"""B, only where A is not: util at least this, r below that (Packet.ai)."""

FLAG_C_UTIL: Final = Threshold(10.0, leave=8.0)
FLAG_C_RATIO: Final = Threshold(0.10, leave=0.12)
"""C, hollow, only where A and B are not: util at least this, and 0 < r below that. A loop of tiny kernels on a T4 has
0.010, the lowest load that does work 0.341."""

# --- idle GPUs ----------------------------------------------------------------------------------------------------

HELD_BYTES: Final = 2.0**30
"""Device memory that makes a process an owner of the GPU: 1 GiB [judged]."""

# --- the cause of a flag ----------------------------------------------------------------------------------------------

COMM_TENSOR: Final = Threshold(10.0, leave=12.0)
COMM_NVLINK: Final = Threshold(0.1, leave=0.08)
COMM_PCIE: Final = Threshold(0.3, leave=0.25)
"""Communication: hardly any tensor work, and NVLink, or PCIe both ways, this busy (shares of their peaks)."""
COMM_DRAM: Final = Threshold(15.0, leave=18.0)
COMM_POWER: Final = Threshold(0.5, leave=0.55)
"""Suspected communication, of a process with NCCL's threads: neither the memory nor the board has much to do."""
LAUNCH_BOUND_MAIN: Final = 0.9
"""Share of the time in which the main thread is runnable, from which on it cannot launch faster."""
LAUNCH_BOUND_RATIO: Final = 0.5
"""r below which kernels of such a thread are small: 0.34 in training with small steps on an H200, 0.87 where the main
thread computed between kernels that fill the chip."""

# --- what a busy GPU is bound by ------------------------------------------------------------------------------------

MEMORY_UTIL: Final = Threshold(50.0, leave=47.0)
MEMORY_RATIO: Final = Threshold(0.62, leave=0.55)
"""d of a GPU that is bound by its memory: 0.650 to 0.698 on real loads, and 0.595 on one that is not."""
MEMORY_DRAM: Final = Threshold(60.0, leave=55.0)
"""The same where util is not measured (MIG instances): percent of the peak of all time."""
MUCH_DRAM_RATIO: Final = Threshold(0.5, leave=0.45)
"""From this d on the memory is a reason of its own for a low SM activity, and a witness of work."""

TENSOR_SM: Final = Threshold(50.0, leave=47.0)
LITTLE_TENSOR: Final = Threshold(5.0, leave=6.0)
LITTLE_TENSOR_RATIO: Final = Threshold(0.08, leave=0.10)
"""x of a GPU whose tensor cores hardly take part: 0.017 in FP32 training, and 0.213 in the nearest load that uses
them."""
SOME_FP64: Final = 5.0
SOME_FP32: Final = 20.0
TENSOR_FOR_S: Final = 60.0

HALF_UTIL: Final = Threshold(80.0, leave=77.0)
HALF_RATIO: Final = Threshold(0.60, leave=0.63)
"""r of a GPU that half works: 0.406 to 0.543 in training over two nodes, and 0.645 and 0.739 in loads that are well."""
HALF_POWER: Final = 0.75
"""Below this share of its limit power agrees that a GPU half works."""
HALF_NVLINK: Final = 0.05
"""Share of NVLink's peak from which on a GPU that half works exchanges data."""

STALLED_SM: Final = Threshold(50.0, leave=47.0)
STALLED_PIPE: Final = Threshold(10.0, leave=12.0)

# --- what works -----------------------------------------------------------------------------------------------------

HEALTHY_UTIL: Final = Threshold(80.0, leave=77.0)
HEALTHY_SM: Final = Threshold(80.0, leave=76.0)
"""SM ≥ 80 % is necessary, not sufficient, for good use (NVIDIA DCGM)."""
HEALTHY_TENSOR: Final = Threshold(40.0, leave=37.0)
WORKING_UTIL: Final = 50.0
WITNESS_TENSOR_RATIO: Final = Threshold(0.10, leave=0.08)
WITNESS_PIPE: Final = Threshold(20.0, leave=17.0)
"""A second witness of work beside SM activity: x, d (``MUCH_DRAM_RATIO``) or a pipe this busy."""

SEEN_PIPE: Final = Threshold(5.0, leave=4.0)
SEEN_DRAM: Final = Threshold(10.0, leave=8.0)
SEEN_POWER: Final = Threshold(0.5, leave=0.47)
"""One of these shows work: a pipe or the memory, percent, or power as a share of its limit [judged]."""
UNEXPLAINED_SM: Final = Threshold(60.0, leave=57.0)
UNEXPLAINED_PIPE: Final = Threshold(2.0, leave=3.0)
"""SM from here on with all pipes and the memory below this is explained by nothing that was measured, whatever the
power: a kernel that squares one float has SM 79 to 100 on an A100, tensor 1 and DRAM 0."""

FULL_POWER: Final = Threshold(0.95, leave=0.92)
LOW_POWER: Final = Threshold(0.5, leave=0.53)
LOW_POWER_UTIL: Final = Threshold(95.0, leave=92.0)
"""Shares of the power limit, the witness where SM is not measured: works hard, and draws little for a GPU this busy."""

# --- clocks ---------------------------------------------------------------------------------------------------------

LOW_CLOCK: Final = Threshold(0.5, leave=0.55)
LOW_CLOCK_UTIL: Final = Threshold(90.0, leave=85.0)
LOW_CLOCK_POWER: Final = Threshold(0.85, leave=0.90)
"""Low clock: share of the maximum SM clock, on a GPU this busy, with power (share of the limit) to spare
[judged]. A busy H200 at its power limit had 0.856 at the lowest."""
SLOWED: Final = 0.1
"""Share of the samples with a thermal or power reason from which on clocks are held down by it [judged]."""
MOST_POWER: Final = 1.2
"""Power above this share of its limit is not possible. Boards swing around their limit by some percent; a frozen
reading was 16.8 times the limit (open-gpu-kernel-modules#1237) [judged]."""

DEGRADED_UTIL: Final = 50.0
DEGRADED_S: Final = 30.0
"""A PCIe link below its best is told of a GPU this busy for so long: idle links rest at a low generation."""
PCIE_FULL: Final = 0.7
"""Share of the PCIe link's usable rate from which on the link is the bottleneck, whatever util is [judged]."""

# --- GPUs that take turns -------------------------------------------------------------------------------------------

TURNS_SUM: Final = 110.0
TURNS_SHARE: Final = 0.9
"""Util of the GPUs of one process or job adds up to no more than one GPU's in so many of the samples [judged]."""
TURNS_SEEN_SUM: Final = 50.0
TURNS_JOB_SUM: Final = 80.0
TURNS_FAST_SUM: Final = 85.0
"""The least sum: of one process whose GPUs are seen at work one after the other, of several processes, and where turns
are shorter than a sample [judged]."""

# --- what stands still ----------------------------------------------------------------------------------------------

IDLE_PCT: Final = Threshold(20.0, leave=16.0)
DEMAND_IDLE_LEAVE: Final = 4.0
DEMAND_SLOW_LEAVE: Final = 12.0
"""Percent of idle time from which on a GPU waits for something (TensorFlow's input-pipeline analyzer). Where requests
come and go by chance, the idle time of half a minute does too: there a slower mean decides with it."""
DEMAND_SLOW_S: Final = 60.0
SURELY_BUSY_UTIL: Final = 10.0
"""From this mean on the 95th percentile of util is above 5 % whatever the rest did: 0.95 x 5 + 0.05 x 100 is less. For
a fleet that keeps no percentile."""

# --- what holds a job's other ranks up ------------------------------------------------------------------------------

TOLD_SLOWER: Final = 1.02
"""A rank is named where its steps take 2 % longer than the others': steps of one job end together."""


# The thresholds of a profiler's trace. What it shares with a running GPU (flags, idle, half working, healthy) is above.
# Shares are in percent of the window, lengths in the unit of their name.

# --- what an idle time is put down to -------------------------------------------------------------------------------

KERNEL_GAP_NS: Final = 30_000
"""Shorter waits between launched kernels are the GPU's own switching time, as in Holistic Trace Analysis."""
MODULE_LOAD_NS: Final = 1_000_000
"""A launching call that takes longer loads its kernel's module: real ones take 5 to 60 µs, and 5 ms to 4 s."""
LATENCY_NS: Final = 50_000
"""From the end of the call to the kernel's begin; beyond it the kernel waits for something else."""
HOST_WORK_NS: Final = 5_000_000
"""A thread that makes no CUDA call for so long does other work, also after a wait for the GPU."""
LONG_OPERATOR_NS: Final = 1_000_000
"""An operator or function that makes no CUDA call for so long is work of the host itself; without a wait before, so is
any such stretch: launching takes 5 to 60 µs a kernel."""
DEVICE_WAIT_NS: Final = 1_000_000
"""On a device with one stream and no event to wait for, shorter gaps after an early launch are its own switching time
(MI300X: 21 to 44 µs) [judged]."""

# --- the verdict ----------------------------------------------------------------------------------------------------

EXPOSED_COMM: Final = 20.0
SOME_COMM: Final = 10.0
"""Exposed communication from which on it is the verdict, and from which on a note [judged]."""
EMPTY_QUEUE: Final = 50.0
"""Percent of kernels that find an empty queue on a GPU that waits for launches [judged; 85 and 0.3 were measured]."""
SMALL_KERNEL_US: Final = 20.0
"""Half of the kernels' time in kernels shorter than this: they are too small for the GPU."""
FP32_SHARE: Final = 20.0
TENSOR_CORES_SINCE: Final = 7
"""FP32 matrix products' share of the compute time that is worth a note, from this compute capability on."""
SOME_LOSS: Final = 20.0
"""Percent of the time without compute from which on its largest part is a finding, and not only a remark [judged]."""
LEAST_LOSS: Final = 1.0
"""Less is none."""
SLOW_FAULTS: Final = 1.0
"""Percent of the time in page faults of unified memory from which on they are noted [judged]."""

# --- steps and ranks ------------------------------------------------------------------------------------------------

WARM_UP_FACTOR: Final = 2.0
"""Steps at the beginning that take more than so many times the median of the first thirty are warm-up: they compile,
allocate and fill caches [judged]."""
FEWEST_STEPS: Final = 3
"""With fewer no step is typical, and no verdict certain."""
SLOW_STEP: Final = 2.0
"""A step is slow from this many times the median on. A run's slow steps are told where its 99th percentile is one."""
NOTICED_WAIT: Final = 0.05
"""Share of a step from which on its wait for a batch is worth a remedy: a loader below it is quick enough [judged]."""
SAME_STEP_PCT: Final = 2.0
"""Steps whose medians differ by less are about as fast [judged]."""
LATE_PCT: Final = 5.0
OFTEN: Final = 0.5
"""A straggler costs the others this share of the window, and is last in this part (0–1) of the collectives [judged]."""

# --- two recordings -------------------------------------------------------------------------------------------------

SAME_POINTS: Final = 1.0
SAME_RATIO: Final = 0.02
"""Differences below one point, or below 2 % of a quantity without a scale, are called the same [judged]."""
CLEAR_POINTS: Final = 10.0
"""A difference of WORK that is told beside equal shares of time [judged]."""
SLOWER_PCT: Final = 5.0
"""A comparison of traces fails where a step takes so many percent longer and the user names no limit [judged]."""

# --- what holds a GPU's memory -------------------------------------------------------------------------------------

FRAGMENTED_PCT: Final = 20.0
FRAGMENTED_BYTES: Final = 1 << 30
"""Free memory that cannot be given back is a finding from this share of the reserved and so many bytes on [judged]."""

FULL_CACHE_PCT: Final = 95.0
"""A KV cache fuller than this has no room for another request [judged]: vLLM keeps 1 % free, and a prompt takes several
blocks."""

# --- what is told ---------------------------------------------------------------------------------------------------

LEAST_GAIN: Final = 0.05
"""A fix that would win less of the judged GPU time is not proposed [judged]."""
WIDE_GAP: Final = 20.0
"""Points between UTIL and SM from which on the gap has a colour of its own [judged]."""
AWAKE_PCT: Final = 50.0
"""What ran for more than this percentage of one core since the last look is not called asleep [judged]."""

SLOW_PSTATE: Final = 3
"""P0 to P2 are those of compute work (CUDA runs in P2 on GeForce); from here on a GPU is kept slow."""
