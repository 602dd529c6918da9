"""Rules for work that could go faster: without tensor cores, or on half of the chip."""

from __future__ import annotations

from gputop.diagnosis import thresholds
from gputop.diagnosis.rules.base import Rule, RuleResult
from gputop.diagnosis.rules.busy_words import chip_share, few_warps, power_part
from gputop.diagnosis.rules.remedy_conditions import is_launch_bound
from gputop.diagnosis.rules.remedy_words import (
    HIDE_COMMUNICATION,
    LARGER_SHORT_TEMPLATE,
    LARGER_WORK_TEMPLATE,
    spares,
)
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.types import HALF_WORKING as HALF_WORKING_TITLE
from gputop.model.durations import duration
from gputop.model.quantity import clamp_pct, pct, share

USE_TENSOR_CORES = (
    'bf16 autocast, torch.set_float32_matmul_precision("high") (TF32), dimensions that are '
    "multiples of 8"
)
USE_TENSOR_CORES_JAX = (
    'bf16, jax.default_matmul_precision("tensorfloat32"), dimensions that are multiples of 8'
)
USE_LOWER_PRECISION = (
    "matrix work in bf16, FP16 or TF32 runs on them; other work does not need them"
)


def _tell_no_tensor(s: Signals) -> RuleResult:
    mean = s.mean
    has_framework = s.tick.framework is not None
    proven = mean.fp32 is not None and mean.fp32 >= thresholds.SOME_FP32
    line = (
        f"SM {pct(mean.sm)}, FP32 {pct(mean.fp32)}, tensor {pct(mean.tensor)} for "
        f"{duration(s.little_tensor_s)}"
    )
    notes: tuple[str, ...] = ()
    if mean.fp32 is None:
        notes = ("tensor cores hardly used; whether FP32 work or a stall is not measured here",)
    if s.conditions.half:
        notes = (*notes, f"while kernels run they use {chip_share(s)} of the SMs")
    remedy, remedy_short = USE_LOWER_PRECISION, "bf16 or TF32, if matrices"
    if s.tick.framework in ("torch", "jax"):
        remedy = USE_TENSOR_CORES if s.tick.framework == "torch" else USE_TENSOR_CORES_JAX
        remedy_short = "bf16 autocast, TF32"
    is_sure = proven and has_framework
    return RuleResult(
        (line,),
        remedy,
        remedy_short,
        "high" if is_sure else "medium",
        (*notes, *few_warps(s)),
        None if proven else "tensor cores hardly used",
        role="waiting" if is_sure or s.conditions.half else "information",
    )


NO_TENSOR_CORES = Rule(
    id="no_tensor_cores",
    title="no tensor cores",
    condition=f"for {thresholds.TENSOR_FOR_S:.0f} s: SM ≥ {thresholds.TENSOR_SM:.0f} %, tensor < "
    f"{thresholds.LITTLE_TENSOR:.0f} %, tensor / "
    f"SM < {thresholds.LITTLE_TENSOR_RATIO:g} (leaves at {thresholds.LITTLE_TENSOR_RATIO.leave:g}), DRAM / util < "
    f"{thresholds.MUCH_DRAM_RATIO:g}; not with FP64 ≥ {thresholds.SOME_FP64:.0f} % or rendering",
    state="working",
    levels=f"yellow with FP32 ≥ {thresholds.SOME_FP32:.0f} % measured and torch, jax or tensorflow in the process, "
    f"or where SM / util < {thresholds.HALF_RATIO:g}, else info",
    matches=lambda s: s.little_tensor_s >= thresholds.TENSOR_FOR_S and not s.tick.draws,
    tell=_tell_no_tensor,
    remedy="with torch or jax: bf16 autocast, TF32, dims multiple of 8",
    checked="FP32 training on an H100: tensor / SM 0.017, beside SM 90 and 26.6 times slower than its tuned twin; the "
    "nearest load that uses them has 0.213",
)


EXCHANGES = "exchanges data: communication or pipeline"


def _fabric_share(s: Signals) -> float | None:
    """The busier direction of the fabric as a share of its peak.

    None where this GPU's job does not use it.
    """
    f = s.fabric
    if f is None or not f.peak_bytes_per_s or not (s.tick.nccl or not s.tick.computing):
        return None
    return max(f.rx_bytes_per_s or 0.0, f.tx_bytes_per_s or 0.0) / f.peak_bytes_per_s


def _tell_half(s: Signals) -> RuleResult:
    mean = s.mean
    line = f"util {pct(s.util_pct)}, SM {pct(mean.sm)}, tensor {pct(mean.tensor)}{power_part(s)}"
    fabric = _fabric_share(s)
    over = (
        f"NVLink {share(mean.nvlink)}"
        if mean.nvlink is not None and mean.nvlink >= thresholds.HALF_NVLINK
        else f"fabric {share(fabric)}"
        if fabric is not None and fabric >= thresholds.HALF_NVLINK
        else "PCIe both ways"
        if mean.pcie_both_ways is not None and mean.pcie_both_ways >= thresholds.COMM_PCIE
        else None
    )
    if over is not None:
        note, remedy, short = f"{EXCHANGES} ({over})", FEWER_WAITS, "overlap, fewer bubbles"
    elif is_launch_bound(s):
        note = f"launch-bound: the main thread is busy {share(s.host.mean.main)}"
        remedy, short = (
            words.format(**spares(s)) for words in (LARGER_WORK_TEMPLATE, LARGER_SHORT_TEMPLATE)
        )
    else:
        note = "the cause is not seen from outside"
        remedy, short = (
            "a profiler's trace of a few steps shows the rest: `gputop trace FILE`",
            "trace a few steps",
        )
    waits_for = s.waits_for
    return RuleResult(
        (line,) if s.fabric is None else (line, *s.fabric.evidence()),
        remedy,
        short,
        "high" if mean.power is not None and mean.power < thresholds.HALF_POWER else "medium",
        (note,)
        if waits_for is None
        else (f"waits for GPU {waits_for}: see the straggler badge", note),
        f"half working: {clamp_pct(100.0 * (s.sm_ratio or 0.0)):.0f} of 100 while kernels run",
    )


FEWER_WAITS = f"{HIDE_COMMUNICATION}; with a pipeline: more micro-batches, stages of equal cost"

HALF_WORKING = Rule(
    id="half_working",
    title=HALF_WORKING_TITLE,
    condition=f"util ≥ {thresholds.HALF_UTIL:.0f} % (leaves at {thresholds.HALF_UTIL.leave:.0f} %); SM / util < "
    f"{thresholds.HALF_RATIO:g} "
    f"(leaves at {thresholds.HALF_RATIO.leave:g}); DRAM / util < {thresholds.MUCH_DRAM_RATIO:g}",
    state="working",
    role="waiting",
    matches=lambda s: s.conditions.half,
    tell=_tell_half,
    remedy=f"NVLink or fabric busy: overlap, more micro-batches; main thread ≥ "
    f"{100 * thresholds.LAUNCH_BOUND_MAIN:.0f} % "
    f"runnable: {LARGER_SHORT_TEMPLATE}; else a profiler's trace",
    checked="tensor- and pipeline-parallel training over two nodes of H100: SM / util 0.406–0.543, 10 % of peak "
    "FLOP/s; the nearest loads that are well have 0.645 and 0.739",
)
