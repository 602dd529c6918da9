"""The busy family: kernels run, and what kind of work they are."""

from __future__ import annotations

from gputop.diagnosis.rules.base import Rule, Told
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.types import Confidence, Level
from gputop.model.quantity import duration, pct, share


def _flag_level(s: Signals, otherwise: Level) -> Level:
    return "red" if s.flag == "A" else "yellow" if s.flag == "B" else otherwise


# --- memory bandwidth -----------------------------------------------------------------------------------------------

DRAM_BOUND, DRAM_UTIL = 60.0, 50.0
"""Percent of the theoretical peak; about 80 % is the practical one (NVIDIA DCGM). Never NVML's memory time."""


def _tell_memory(s: Signals) -> Told:
    return Told(
        _flag_level(s, "info"),
        (f"DRAM {pct(s.dram)}, SM {pct(s.sm)}, tensor {pct(s.tensor)}",),
        "usually inherent (decode): larger batch, FlashAttention, fusion, quantised weights and KV cache",
        "larger batch, fp8 KV",
    )


MEMORY_BANDWIDTH = Rule(
    id="memory_bandwidth",
    title="memory-bandwidth-bound",
    short="memory-bandwidth-bound",
    condition="DRAM ≥ 60 % of its peak, util ≥ 50 %",
    levels="info",
    state="working",
    holds=lambda s: s.dram is not None and s.dram >= DRAM_BOUND and s.u >= DRAM_UTIL,
    tell=_tell_memory,
    remedy="usually inherent: larger batch (decode), FlashAttention, fusion, quantise",
)

# --- communication --------------------------------------------------------------------------------------------------

LITTLE_TENSOR, NVLINK_BUSY, PCIE_BUSY = 10.0, 0.1, 0.3
LITTLE_DRAM, LITTLE_POWER = 15.0, 0.5


def _moves_data(s: Signals) -> bool:
    if s.tensor is None or s.tensor >= LITTLE_TENSOR:
        return False
    nvlink = s.nvlink is not None and s.nvlink >= NVLINK_BUSY
    pcie = s.pcie_rx is not None and s.pcie_tx is not None and min(s.pcie_rx, s.pcie_tx) >= PCIE_BUSY
    return nvlink or pcie


def _suspected(s: Signals) -> bool:
    return (
        s.nccl
        and s.dram is not None
        and s.dram < LITTLE_DRAM
        and s.power is not None
        and s.power < LITTLE_POWER
        and (s.tensor is None or s.tensor < LITTLE_TENSOR)
    )


HIDE_COMMUNICATION = "overlap (bucket_cap_mb, FSDP prefetch), accumulate gradients, bf16 communication; NCCL_DEBUG=INFO"


COUNTS_AS_WORK = "exchanging data is part of the job, so this time counts as work, not as waste"
"""For a GPU that is called busy, not working, although its time counts as work."""


def _tell_communication(s: Signals) -> Told:
    certain = _moves_data(s)
    if s.nvlink is not None and s.nvlink >= NVLINK_BUSY:
        line = f"NVLink {share(s.nvlink)}, "
    elif certain:
        line = f"PCIe RX {share(s.pcie_rx)} and TX {share(s.pcie_tx)}, "
    else:
        line = f"NCCL threads, DRAM {pct(s.dram)}, "
    line += f"SM {pct(s.sm)}, tensor {pct(s.tensor)}, power {share(s.power)}"
    notes = ("suspected: the traffic itself was not measured",) if not certain else ()
    if s.peer is not None and s.peer.straggler != s.gpu:
        notes = (*notes, f"it may be waiting for GPU {s.peer.straggler}: see the straggler badge")
    notes = (*notes, COUNTS_AS_WORK)
    return Told(
        "red",
        (line,) if s.fabric is None else (line, *s.fabric.evidence()),
        HIDE_COMMUNICATION,
        "overlap, bucket_cap_mb",
        "high" if certain else "low",
        notes,
        None if certain else "communication (suspected)",
    )


COMMUNICATION = Rule(
    id="communication",
    title="communication",
    short="communication",
    condition="A or B, tensor < 10 % and (NVLink ≥ 10 % or PCIe both ways ≥ 30 %); suspected with NCCL threads, "
    "DRAM < 15 % and power < 50 %",
    levels="red",
    state="working",
    holds=lambda s: s.flag is not None and (_moves_data(s) or _suspected(s)),
    tell=_tell_communication,
    remedy="overlap (bucket_cap_mb, FSDP prefetch), accumulate gradients, bf16 comms, NCCL_DEBUG=INFO",
)

# --- small kernels, or low SM of unknown cause ----------------------------------------------------------------------

LAUNCH_BOUND_MAIN = 0.9
LARGER_WORK = 'larger batch, CUDA graphs, torch.compile(mode="reduce-overhead"), fused kernels; a smaller GPU, MIG'


def _tell_small(s: Signals) -> Told:
    launch = s.main is not None and s.main >= LAUNCH_BOUND_MAIN
    confidence: Confidence = "high" if s.host else "medium"
    line = f"SM {pct(s.sm)}, DRAM {pct(s.dram)}"
    if s.main is not None:
        line += f", main thread {share(s.main)} runnable"
    line += ": many tiny kernels" if launch else ": kernels too small for this GPU"
    notes = ("launch-bound: the main thread cannot launch faster",) if launch else ()
    return Told(_flag_level(s, "yellow"), (line,), LARGER_WORK, "larger batch, CUDA graphs", confidence, notes)


SMALL_KERNELS = Rule(
    id="small_kernels",
    title="small kernels",
    short="small kernels",
    condition="A or B, DRAM < 60 %, not communication; with the main thread ≥ 90 % runnable: launch-bound",
    levels="red for A, yellow for B",
    state="busy_not_working",
    holds=lambda s: s.flag is not None and s.dram is not None and s.dram < DRAM_BOUND,
    tell=_tell_small,
    remedy='larger batch, CUDA graphs, torch.compile(mode="reduce-overhead"), fused kernels; smaller GPU, MIG',
)


def _tell_low_sm(s: Signals) -> Told:
    return Told(
        _flag_level(s, "yellow"),
        (f"util {pct(s.u)} but SM {pct(s.sm)}; memory bandwidth is not measured here",),
        LARGER_WORK,
        "larger batch, CUDA graphs",
        "medium",
        ("the cause cannot be measured here: no DRAM counter",),
    )


LOW_SM = Rule(
    id="low_sm",
    title="low SM activity",
    short="low SM activity",
    condition="A or B, DRAM not measured",
    levels="red for A, yellow for B",
    state="busy_not_working",
    holds=lambda s: s.flag is not None and s.dram is None,
    tell=_tell_low_sm,
    remedy="as for small kernels",
)

# --- no tensor cores ------------------------------------------------------------------------------------------------

FP32_ONLY_S = 60.0
USE_TENSOR_CORES = (
    'bf16 autocast, torch.set_float32_matmul_precision("high") (TF32), dimensions that are multiples of 8'
)

NO_TENSOR_CORES = Rule(
    id="no_tensor_cores",
    title="no tensor cores",
    short="no tensor cores",
    condition="SM ≥ 50 %, tensor < 1 %, FP32 ≥ 20 % for 60 s; not with FP64 or rendering",
    levels="yellow",
    state="working",
    holds=lambda s: s.fp32_only_s >= FP32_ONLY_S and not s.graphics,
    tell=lambda s: Told(
        "yellow",
        (f"SM {pct(s.sm)}, FP32 {pct(s.fp32)}, tensor {pct(s.tensor)} for {duration(s.fp32_only_s)}",),
        USE_TENSOR_CORES,
        "bf16 autocast, TF32",
    ),
    remedy="bf16 autocast, TF32, dims multiple of 8",
)

# --- low occupancy --------------------------------------------------------------------------------------------------

OCC_SM, LOW_OCC = 50.0, 15.0


def _low_occupancy(s: Signals) -> bool:
    return (
        s.sm is not None
        and s.sm >= OCC_SM
        and s.occ is not None
        and s.occ < LOW_OCC
        and s.tensor is not None
        and s.tensor < LITTLE_TENSOR
        and s.dram is not None
        and s.dram < DRAM_BOUND
    )


LOW_OCCUPANCY = Rule(
    id="low_occupancy",
    title="low occupancy",
    short="low occupancy",
    condition="SM ≥ 50 %, occupancy < 15 %, tensor < 10 %, DRAM < 60 %",
    levels="info",
    state="working",
    holds=_low_occupancy,
    tell=lambda s: Told(
        "info",
        (f"SM {pct(s.sm)} with {pct(s.occ)} of the warp slots, tensor {pct(s.tensor)}",),
        "larger batch or thread blocks, torch.compile",
        "larger batch",
        "medium",
    ),
    remedy="bigger batch or blocks, torch.compile",
)


# End states: busy, with nothing found wrong.

HEALTHY_UTIL, HEALTHY_SM, HEALTHY_TENSOR = 80.0, 80.0, 40.0
"""SM ≥ 80 % is necessary, not sufficient, for good use (NVIDIA DCGM)."""
WORKING_UTIL = 50.0


def _healthy(s: Signals) -> bool:
    return (
        s.u >= HEALTHY_UTIL
        and s.sm is not None
        and (s.sm >= HEALTHY_SM or (s.tensor is not None and s.tensor >= HEALTHY_TENSOR))
    )


def _numbers(s: Signals) -> str:
    line = f"util {'' if s.util_known else '≥ '}{pct(s.u)}, SM {pct(s.sm)}"
    return line if s.tensor is None else f"{line}, tensor {pct(s.tensor)}"


HEALTHY = Rule(
    id="healthy",
    title="working",
    short="working",
    condition="util ≥ 80 %, SM ≥ 80 % (or tensor ≥ 40 %), nothing else",
    levels="green",
    state="working",
    holds=_healthy,
    tell=lambda s: Told("green", (f"healthy: {_numbers(s)}",)),
)

WORKING = Rule(
    id="working",
    title="working",
    short="working",
    condition="util ≥ 50 %, SM measured, nothing else",
    levels="green",
    state="working",
    holds=lambda s: s.u >= WORKING_UTIL and s.sm is not None,
    tell=lambda s: Told("green", (_numbers(s),)),
)


def _tell_unseen(s: Signals) -> Told:
    line = f"util {pct(s.u)}"
    if s.power is not None:
        line += f", power {share(s.power)}"
    return Told("grey-green", (f"{line}; {s.sm_off or 'SM activity was not measured'}",), confidence="low")


NO_BOTTLENECK_SEEN = Rule(
    id="no_bottleneck_seen",
    title="no bottleneck seen",
    short="no bottleneck seen",
    condition="util ≥ 80 %, SM not measured",
    levels="grey-green",
    state="unmeasured",
    holds=lambda s: s.sm is None,
    tell=_tell_unseen,
)
