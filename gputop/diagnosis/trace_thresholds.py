"""The thresholds of a profiler's trace. What it shares with a running GPU (flags, idle, half working, healthy) is in
``thresholds``. Shares are in percent of the window, lengths in the unit of their name.
"""

from __future__ import annotations

from typing import Final

# --- what an idle time is put down to -------------------------------------------------------------------------------

KERNEL_GAP_NS: Final = 30_000
"""Shorter waits between launched kernels are the GPU's own switching time, as in Holistic Trace Analysis."""
MODULE_LOAD_NS: Final = 1_000_000
"""A launching call that takes longer loads its kernel's module: real ones take 5 to 60 µs, and 5 ms to 4 s."""
LATENCY_NS: Final = 50_000
"""From the end of the call to the kernel's begin; beyond it the kernel waits for something else."""
HOST_WORK_NS: Final = 5_000_000
"""A gap in which the host launches nothing for so long is other work, and not many launches that are each late."""

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

FEWEST_STEPS: Final = 3
"""With fewer no step is typical, and no verdict certain."""
SLOW_STEP: Final = 2.0
"""A step is slow from this many times the median on."""
SAME_STEP_PCT: Final = 2.0
"""Steps whose medians differ by less are about as fast [judged]."""
LATE_PCT: Final = 5.0
OFTEN: Final = 0.5
"""A straggler costs the others this share of the window, and is last in this part (0–1) of the collectives [judged]."""
