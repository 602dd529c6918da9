"""The busy family: kernels run; kinds of work.

Thresholds are in ``thresholds.py``, their hysteresis in ``Signals.conditions``.
"""

from __future__ import annotations

from msgspec.structs import replace

from gputop.diagnosis import thresholds
from gputop.diagnosis.rules.base import Rule, RuleResult
from gputop.diagnosis.rules.remedy_rows import ALL_LEFT, spares
from gputop.diagnosis.sanity import has_impossible_power
from gputop.diagnosis.signals import ENDED, WAITS_S, Signals
from gputop.diagnosis.sm_remedy import DRAWS_LITTLE, SHORT, WORKS_HARD
from gputop.diagnosis.types import STATE_WORDS, Confidence, Level
from gputop.model.derived import APPLICATION_CLOCKS, DISPLAY_CLOCKS, HARDWARE_SLOWDOWN, SYNC_BOOST, WORDS
from gputop.model.quantity import clamp_pct, duration, pct, share


def _flag_level(s: Signals) -> Level:
    return "yellow" if s.flag == "B" else "red"


def chip_share(s: Signals) -> str:
    """How much of the chip kernels use while they run, in words."""
    return "n/a" if s.sm_ratio is None else pct(clamp_pct(100.0 * s.sm_ratio))


def _util(s: Signals) -> str:
    return f"util {'' if s.util_known else '≥ '}{pct(s.util_pct)}"


def _power(s: Signals) -> str:
    """Share of its power that the GPU draws, as a suffix; may be empty."""
    return "" if s.mean.power is None else f", power {share(s.mean.power)} of its limit"


# --- memory bandwidth -----------------------------------------------------------------------------------------------


def _tell_memory(s: Signals) -> RuleResult:
    return RuleResult(
        "info",
        (f"DRAM {pct(s.mean.dram)} of its peak, {_util(s)}, SM {pct(s.mean.sm)}, tensor {pct(s.mean.tensor)}",),
        confidence="high" if s.util_pct >= thresholds.HALF_UTIL.leave else "medium",
    )  # fmt: skip


MEMORY_BANDWIDTH = Rule(
    id="memory_bandwidth",
    title="memory-bandwidth-bound",
    condition=f"util ≥ {thresholds.MEMORY_UTIL:.0f} %; DRAM / util ≥ {thresholds.MEMORY_RATIO:g} (leaves at "
    f"{thresholds.MEMORY_RATIO.leave:g}); where util is not measured: DRAM ≥ {thresholds.MEMORY_DRAM:.0f} % of its "
    f"peak",
    level="info",
    state="working",
    matches=lambda s: s.conditions.memory,
    tell=_tell_memory,
    remedy="usually inherent (decode): {gpu_memory:larger batch, }FlashAttention, fusion, quantised weights and KV "
    "cache",
    remedy_short="{gpu_memory:larger batch, }fp8 KV",
    checked="decoding on real GPUs has DRAM / util 0.650–0.698; the nearest load that is not memory-bound, tuned "
    "training on an H100, 0.595",
)

# --- communication --------------------------------------------------------------------------------------------------


HIDE_COMMUNICATION = "overlap (bucket_cap_mb, FSDP prefetch), accumulate gradients, bf16 communication; NCCL_DEBUG=INFO"


def _tell_communication(s: Signals) -> RuleResult:
    certain = s.conditions.moves_data
    if s.mean.nvlink is not None and s.mean.nvlink >= thresholds.COMM_NVLINK.leave:
        line = f"NVLink {share(s.mean.nvlink)}, "
    elif certain:
        line = f"PCIe RX {share(s.mean.pcie_rx)} and TX {share(s.mean.pcie_tx)}, "
    else:
        line = f"NCCL threads, DRAM {pct(s.mean.dram)}, "
    line += f"SM {pct(s.mean.sm)}, tensor {pct(s.mean.tensor)}"
    if s.mean.power is not None:
        line += f", power {share(s.mean.power)}"
    notes = ("suspected: the traffic itself was not measured",) if not certain else ()
    if s.waits_for is not None:
        notes = (*notes, f"it may be waiting for GPU {s.waits_for}: see the straggler badge")
    notes = (*notes, *_or_stuck(s))
    evidence = (line,) if s.fabric is None else (line, *s.fabric.evidence())
    title = None if certain else "communication (suspected)"
    return RuleResult("red", evidence, confidence="high" if certain else "low", notes=notes, title=title)


COMMUNICATION = Rule(
    id="communication",
    title="communication",
    condition=f"A, B or C; tensor < {thresholds.COMM_TENSOR:.0f} %; NVLink ≥ {100 * thresholds.COMM_NVLINK:.0f} %, "
    f"or PCIe ≥ "
    f"{100 * thresholds.COMM_PCIE:.0f} % both ways; suspected without that traffic: NCCL threads run, DRAM < "
    f"{thresholds.COMM_DRAM:.0f} %, power < {100 * thresholds.COMM_POWER:.0f} % of its limit",
    level="red",
    state="busy_not_working",
    matches=lambda s: s.flag is not None and (s.conditions.moves_data or (s.tick.nccl and s.conditions.rests)),
    tell=_tell_communication,
    remedy=HIDE_COMMUNICATION,
    remedy_short="overlap, bucket_cap_mb",
    checked="simulated loads alone: no real load that was recorded waits so long in its collectives",
)

# --- waits inside a kernel ------------------------------------------------------------------------------------------


FLIGHT_RECORDER = (
    "TORCH_FR_BUFFER_SIZE=2000 (older PyTorch: TORCH_NCCL_TRACE_BUFFER_SIZE) and TORCH_NCCL_DUMP_ON_TIMEOUT=1"
)
"""Settings of PyTorch's flight recorder: c10d/FlightRecorder.hpp (2.13 reads both names) and ProcessGroupNCCL.hpp."""


def _tell_hang(s: Signals) -> RuleResult:
    spin = s.spin
    assert spin is not None
    title, lasted = "hang: waits inside a kernel", duration(spin.for_s)
    line = f"util {pct(s.util_pct)}, SM {pct(s.mean.sm)} and DRAM {pct(s.mean.dram)} stand still{_power(s)}"
    pid = s.tick.pid
    remedy = f"py-spy dump --pid {'PID' if pid is None else pid} shows where it waits"
    evidence: tuple[str, ...] = (line,)
    short = "py-spy dump"
    if spin.behind:
        first = spin.behind[0]
        who = "1 GPU waits" if spin.waiting == 1 else f"{spin.waiting} GPUs wait"
        evidence = (f"{who} for {spin.late}", line)
        dump = "" if first.reason == ENDED else f": py-spy dump --pid {first.pid}"
        remedy = f"look at {first.name} first{dump}; its log and dmesg"
        short = f"look at {first.name}"
    elif spin.is_asleep:
        evidence = (f"its main thread has slept all of {lasted}", line)
    if spin.is_collective:
        remedy += f"; {FLIGHT_RECORDER} keep who entered which collective: read the dumps with torchfrtrace"
    return RuleResult(
        "red", evidence, remedy, short, "high" if spin.behind else "medium",
        ("it has worked otherwise before: this is no property of its kernels",),
        title=f"{title} for {lasted}", plain_title=title, cause="collective" if spin.is_collective else None,
        for_s=spin.for_s, about=spin.behind[0].gpu if spin.behind else None,
    )  # fmt: skip


HANG = Rule(
    id="hang",
    title="hang: waits inside a kernel",
    short="hang",
    condition=f"for {WAITS_S:.0f} s: util ≥ {thresholds.LOW_POWER_UTIL:.0f} %, SM < {thresholds.FLAG_A_SM:.0f} % and "
    f"steady within 3 "
    "points, pipes and DRAM ≤ 2 %, links ≤ 5 %, power < 50 % of its limit; the job worked otherwise before for 30 s, "
    "or its announced steps have stopped; another rank of it is idle or has ended, or its main thread slept for 120 s "
    "in ≥ 95 % of the time while it has NCCL's threads or stopped steps; not while a rank works, for two minutes also "
    "on the CPU or writing; not for less than twice the longest such wait that ended",
    level="red",
    state="busy_not_working",
    matches=lambda s: s.spin is not None and s.spin.is_hang,
    tell=_tell_hang,
    remedy=f"the rank that differs is named: look at it; else `py-spy dump` on each rank; {FLIGHT_RECORDER}",
    checked="simulated loads alone; of real hangs the power is known, 10 % of the limit on every rank",
)


def _or_stuck(s: Signals) -> tuple[str, ...]:
    """A note that small kernels may be a wait inside one."""
    if s.spin is None:
        return ()
    if s.spin.behind:
        return (f"or stuck inside one kernel, for {s.spin.late}; what the job did before is not known",)
    return (f"or stuck inside one kernel: `py-spy dump --pid {'PID' if s.tick.pid is None else s.tick.pid}` tells",)


# --- small kernels, or low SM of unknown cause ----------------------------------------------------------------------

_LARGER_WORK, _LARGER_SHORT = (
    '{gpu_memory:larger batch, }CUDA graphs, torch.compile(mode="reduce-overhead"), fused kernels'
    "{gpu_memory:; a smaller GPU, MIG}", "{gpu_memory:larger batch, }CUDA graphs",
)  # fmt: skip
LARGER_WORK = _LARGER_WORK.format(**ALL_LEFT)
HOLLOW = "hollow: warps are hardly resident on any multiprocessor"


def _is_launch_bound(s: Signals) -> bool:
    return s.host.mean.main is not None and s.host.mean.main >= thresholds.LAUNCH_BOUND_MAIN


def _flag_confidence(s: Signals) -> Confidence:
    """Low SM under high util is measured.

    Who runs the kernels, and what the host does, may not be.
    """
    return "high" if s.host.is_measured and s.tick.computing else "medium"


def _tell_small(s: Signals) -> RuleResult:
    launch = _is_launch_bound(s)
    line = f"util {pct(s.util_pct)}, SM {pct(s.mean.sm)}, DRAM {pct(s.mean.dram)}"
    if s.host.mean.main is not None:
        line += f", main thread {share(s.host.mean.main)} runnable"
    line += ": many tiny kernels" if launch else ": kernels too small for this GPU"
    notes = ("launch-bound: the main thread cannot launch faster",) if launch else ()
    if s.flag == "C":
        notes = (*notes, f"{HOLLOW}: while kernels run they use {chip_share(s)} of the SMs")
    sure = _flag_confidence(s) if s.spin is None else "low"
    return RuleResult(_flag_level(s), (line,), confidence=sure, notes=(*notes, *_or_stuck(s)))


SMALL_KERNELS = Rule(
    id="small_kernels",
    title="small kernels",
    condition="A, B or C; neither memory-bound nor communication; launch-bound where the main thread is ≥ "
    f"{100 * thresholds.LAUNCH_BOUND_MAIN:.0f} % runnable",
    level="red for A and C, yellow for B",
    state="busy_not_working",
    matches=lambda s: s.flag is not None and s.mean.dram is not None,
    tell=_tell_small,
    remedy=_LARGER_WORK,
    remedy_short=_LARGER_SHORT,
    checked="a loop of 64-element additions on a T4 (C: SM / util 0.010); the lowest load that does work has "
    "0.341. A and B: simulated loads alone",
)


def _tell_low_sm(s: Signals) -> RuleResult:
    line = f"util {pct(s.util_pct)} but SM {pct(s.mean.sm)}; memory bandwidth is not measured here"
    notes: tuple[str, ...] = ("the cause cannot be measured here: no DRAM counter",)
    if s.flag == "C":
        notes = (*notes, f"{HOLLOW}: while kernels run they use {chip_share(s)} of the SMs")
    return RuleResult(_flag_level(s), (line,), notes=notes)


LOW_SM = replace(
    SMALL_KERNELS,
    id="low_sm",
    title="low SM activity",
    condition="A, B or C; DRAM not measured",
    matches=lambda s: s.flag is not None and s.mean.dram is None,
    tell=_tell_low_sm,
    checked="simulated loads alone",
)

# --- warps that do nothing ------------------------------------------------------------------------------------------


def _tell_stalled(s: Signals) -> RuleResult:
    others = f"tensor, FP64, FP32, FP16, INT, DRAM, PCIe and NVLink all < {thresholds.STALLED_PIPE:.0f} %"
    note = "warps are resident and nothing was computed: latency, locks or spinning"
    return RuleResult("yellow", (f"SM {pct(s.mean.sm)}, and {others}",), confidence="low", notes=(note,))


STALLED = Rule(
    id="stalled",
    title="warps resident, nothing computed",
    short="nothing computed",
    condition=f"SM ≥ {thresholds.STALLED_SM:.0f} % (leaves at {thresholds.STALLED_SM.leave:.0f} %); tensor, FP64, "
    f"FP32, FP16, INT, "
    f"DRAM, PCIe and NVLink are all measured, and each is < {thresholds.STALLED_PIPE:.0f} % (leaves at "
    f"{thresholds.STALLED_PIPE.leave:.0f} %)",
    level="yellow",
    state="working",
    matches=lambda s: s.conditions.stalled and not s.conditions.half and not s.tick.draws,
    tell=_tell_stalled,
    remedy="look where kernels wait: a profiler's trace (`gputop trace FILE`), Nsight Compute's stall reasons; "
    "spinning collectives, locks, atomics on one address, pointer chasing",
    remedy_short="find what kernels wait for",
    checked="argued, not seen: no load was recorded with all of these counters; on each a pipe has ≥ 45 % of SM",
)

# --- low clock ------------------------------------------------------------------------------------------------------

WHY_LOW_CLOCK = (
    "nvidia-smi -q -d CLOCK,PERFORMANCE shows limits; nvidia-smi -rgc and -rac remove those that were set; else cold "
    "boot, driver and firmware"
)
FROZEN_POWER = (
    "the firmware holds the clock by a wrong power reading: shut down and cut the power (cold boot), new driver"
)
_GIVEN = APPLICATION_CLOCKS | SYNC_BOOST | DISPLAY_CLOCKS | HARDWARE_SLOWDOWN


def low_clock_words(s: Signals) -> str:
    """``SM clock 345 of 1980 MHz (17 %), reason: application clocks``."""
    gpu, reasons = s.gpu, s.gpu.throttle_reasons
    most = gpu.sm_clock_max_mhz or 0.0
    given = [] if reasons is None else [word for bit, word in WORDS.items() if bit & _GIVEN & reasons]
    if gpu.pstate is not None and gpu.pstate >= SLOW_PSTATE:
        given.append(f"P{gpu.pstate}")
    if reasons is None:
        given.append("not readable here")
    clock = f"SM clock {(s.mean.clock or 0.0) * most:.0f} of {most:.0f} MHz ({share(s.mean.clock)})"
    if has_impossible_power(gpu):
        return f"{clock}, power reading: {gpu.unavailable['power_w']}"
    return f"{clock}, reason: {', '.join(given) or 'none given'}"


def low_clock_remedy(s: Signals) -> str:
    """Remedy for a low clock: by hand, or by a firmware that reads impossible power."""
    return FROZEN_POWER if has_impossible_power(s.gpu) else WHY_LOW_CLOCK


def _tell_low_clock(s: Signals) -> RuleResult:
    sure: Confidence = "high" if s.gpu.throttle_reasons is not None else "medium"
    return RuleResult(
        "yellow", (low_clock_words(s), f"{_numbers(s)}{_power(s)}"), low_clock_remedy(s), "nvidia-smi -rgc, cold boot",
        sure, title=f"low clock: {share(s.mean.clock)} of its maximum", plain_title="low clock",
    )  # fmt: skip


LOW_CLOCK = Rule(
    id="low_clock",
    title="low clock",
    condition=f"util ≥ {thresholds.LOW_CLOCK_UTIL:.0f} %; SM clock < {100 * thresholds.LOW_CLOCK:.0f} % of its "
    f"maximum (leaves at "
    f"{100 * thresholds.LOW_CLOCK.leave:.0f} %); power < {100 * thresholds.LOW_CLOCK_POWER:.0f} % of its limit; a "
    f"thermal or power "
    f"reason in < {100 * thresholds.SLOWED:.0f} % of the samples; or impossible power",
    level="yellow",
    state="working",
    matches=lambda s: s.conditions.low_clock,
    tell=_tell_low_clock,
    remedy=WHY_LOW_CLOCK,
    remedy_short="nvidia-smi -rgc, cold boot",
    checked="recordings after public reports (345 of 1980 MHz at SM 92); a busy H200 had 86 % at the lowest",
)

# --- no tensor cores ------------------------------------------------------------------------------------------------

USE_TENSOR_CORES = (
    'bf16 autocast, torch.set_float32_matmul_precision("high") (TF32), dimensions that are multiples of 8'
)
USE_TENSOR_CORES_JAX = 'bf16, jax.default_matmul_precision("tensorfloat32"), dimensions that are multiples of 8'
USE_LOWER_PRECISION = "matrix work in bf16, FP16 or TF32 runs on them; other work does not need them"


def _tell_no_tensor(s: Signals) -> RuleResult:
    mean = s.mean
    has_framework = s.tick.framework is not None
    proven = mean.fp32 is not None and mean.fp32 >= thresholds.SOME_FP32
    line = f"SM {pct(mean.sm)}, FP32 {pct(mean.fp32)}, tensor {pct(mean.tensor)} for {duration(s.little_tensor_s)}"
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
        "yellow" if is_sure or s.conditions.half else "info", (line,), remedy, remedy_short,
        "high" if is_sure else "medium", (*notes, *_few_warps(s)), None if proven else "tensor cores hardly used",
    )  # fmt: skip


NO_TENSOR_CORES = Rule(
    id="no_tensor_cores",
    title="no tensor cores",
    condition=f"for {thresholds.TENSOR_FOR_S:.0f} s: SM ≥ {thresholds.TENSOR_SM:.0f} %, tensor < "
    f"{thresholds.LITTLE_TENSOR:.0f} %, tensor / "
    f"SM < {thresholds.LITTLE_TENSOR_RATIO:g} (leaves at {thresholds.LITTLE_TENSOR_RATIO.leave:g}), DRAM / util < "
    f"{thresholds.MUCH_DRAM_RATIO:g}; not with FP64 ≥ {thresholds.SOME_FP64:.0f} % or rendering",
    level=f"yellow with FP32 ≥ {thresholds.SOME_FP32:.0f} % measured and torch, jax or tensorflow in the process, "
    f"else info",
    state="working",
    matches=lambda s: s.little_tensor_s >= thresholds.TENSOR_FOR_S and not s.tick.draws,
    tell=_tell_no_tensor,
    remedy="with torch or jax: bf16 autocast, TF32, dims multiple of 8",
    checked="FP32 training on an H100: tensor / SM 0.017, beside SM 90 and 26.6 times slower than its tuned twin; the "
    "nearest load that uses them has 0.213",
)

# --- half working ---------------------------------------------------------------------------------------------------

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
    line = f"util {pct(s.util_pct)}, SM {pct(mean.sm)}, tensor {pct(mean.tensor)}{_power(s)}"
    fabric = _fabric_share(s)
    over = (
        f"NVLink {share(mean.nvlink)}" if mean.nvlink is not None and mean.nvlink >= thresholds.HALF_NVLINK
        else f"fabric {share(fabric)}" if fabric is not None and fabric >= thresholds.HALF_NVLINK
        else "PCIe both ways" if mean.pcie_both_ways is not None and mean.pcie_both_ways >= thresholds.COMM_PCIE
        else None
    )  # fmt: skip
    if over is not None:
        note, remedy, short = f"{EXCHANGES} ({over})", FEWER_WAITS, "overlap, fewer bubbles"
    elif _is_launch_bound(s):
        note = f"launch-bound: the main thread is {share(s.host.mean.main)} runnable"
        remedy, short = (words.format(**spares(s)) for words in (_LARGER_WORK, _LARGER_SHORT))
    else:
        note = "the cause is not seen from outside"
        remedy, short = "a profiler's trace of a few steps shows the rest: `gputop trace FILE`", "trace a few steps"
    waits_for = s.waits_for
    return RuleResult(
        "yellow" if waits_for is None else "info",
        (line,) if s.fabric is None else (line, *s.fabric.evidence()),
        remedy,
        short,
        "high" if mean.power is not None and mean.power < thresholds.HALF_POWER else "medium",
        (note,) if waits_for is None else (f"waits for GPU {waits_for}: see the straggler badge", note),
        f"half working: {clamp_pct(100.0 * (s.sm_ratio or 0.0)):.0f} of 100 while kernels run",
    )


FEWER_WAITS = f"{HIDE_COMMUNICATION}; with a pipeline: more micro-batches, stages of equal cost"

HALF_WORKING = Rule(
    id="half_working",
    title="half working",
    condition=f"util ≥ {thresholds.HALF_UTIL:.0f} % (leaves at {thresholds.HALF_UTIL.leave:.0f} %); SM / util < "
    f"{thresholds.HALF_RATIO:g} "
    f"(leaves at {thresholds.HALF_RATIO.leave:g}); DRAM / util < {thresholds.MUCH_DRAM_RATIO:g}",
    level="yellow; info where it waits for a straggler",
    state="working",
    matches=lambda s: s.conditions.half,
    tell=_tell_half,
    remedy=f"NVLink or fabric busy: overlap, more micro-batches; main thread ≥ "
    f"{100 * thresholds.LAUNCH_BOUND_MAIN:.0f} % "
    f"runnable: {_LARGER_SHORT}; else a profiler's trace",
    checked="tensor- and pipeline-parallel training over two nodes of H100: SM / util 0.406–0.543, 10 % of peak "
    "FLOP/s; the nearest loads that are well have 0.645 and 0.739",
)


# End states: busy, with nothing found wrong.

SLOW_PSTATE = 3
"""P0 to P2 are those of compute work (CUDA runs in P2 on GeForce); from here on a GPU is kept slow."""
FEW_WARPS_SM, FEW_WARPS = 50.0, 15.0


def _numbers(s: Signals) -> str:
    line = f"{_util(s)}, SM {pct(s.mean.sm)}"
    return line if s.mean.tensor is None else f"{line}, tensor {pct(s.mean.tensor)}"


def _few_warps(s: Signals) -> tuple[str, ...]:
    """Occupancy tells good loads from bad ones in neither direction, so it is no verdict."""
    if s.mean.sm is None or s.mean.sm < FEW_WARPS_SM or s.mean.occ is None or s.mean.occ >= FEW_WARPS:
        return ()
    if s.mean.tensor is None or s.mean.tensor >= thresholds.COMM_TENSOR or s.conditions.memory:
        return ()
    return (f"few warps: SM {pct(s.mean.sm)} with {pct(s.mean.occ)} of the warp slots",)


HEALTHY = Rule(
    id="healthy",
    title="working",
    condition=f"util ≥ {thresholds.HEALTHY_UTIL:.0f} %; SM ≥ {thresholds.HEALTHY_SM:.0f} %, or tensor ≥ "
    f"{thresholds.HEALTHY_TENSOR:.0f} %; a "
    f"second witness: tensor / SM ≥ {thresholds.WITNESS_TENSOR_RATIO:g}, DRAM / util ≥ "
    f"{thresholds.MUCH_DRAM_RATIO:g}, or FP64, FP32, "
    f"FP16 or INT ≥ {thresholds.WITNESS_PIPE:.0f} %; nothing else",
    level="green",
    state="working",
    matches=lambda s: s.conditions.broad and s.conditions.witness,
    tell=lambda s: RuleResult("green", (f"healthy: {_numbers(s)}",), confidence="high", notes=_few_warps(s)),
    checked="eight real loads that are well, tuned training on an H100 (SM 88, tensor 19, DRAM 59) and FP16 products "
    "on a T4 (SM 98, tensor 88) among them",
)


UNEXPLAINED = "busy, and nothing measured explains it"
LOOKS_BUSY = "looks busy"
OTHER_PIPES = (
    "have FP32, FP64 and integer work measured: GPM where the card has it, else DCGM's DCGM_FI_PROF_PIPE_… fields"
)


def _tell_working(s: Signals) -> RuleResult:
    mean = s.mean
    if not s.conditions.shows_work:
        return _tell_unexplained(s)
    sure: Confidence = (
        "high" if mean.sm is not None and mean.sm >= thresholds.HEALTHY_SM and s.conditions.witness else "medium"
    )
    notes: tuple[str, ...] = ()
    if not s.conditions.witness:
        notes = ("no second witness: SM activity says that warps are resident, not that they compute",)
    return RuleResult("green", (_numbers(s),), confidence=sure, notes=(*notes, *_few_warps(s)))


def _tell_unexplained(s: Signals) -> RuleResult:
    """Busy SMs in which nothing was seen to work: no praise and no blame."""
    mean = s.mean
    asked = {"FP32": mean.fp32, "FP64": mean.fp64, "integer": mean.integer, "DRAM": mean.dram}
    lacks = [name for name, value in asked.items() if value is None]
    line = _numbers(s) if mean.dram is None else f"{_numbers(s)}, DRAM {pct(mean.dram)}"
    if all(value is None for value in (mean.tensor, *mean.pipes, mean.dram, mean.power)):
        note = "neither the pipes nor the memory nor the power are measured here: warps are resident, no more is known"
        remedy = s.measure or OTHER_PIPES
        return RuleResult("grey-green", (line,), remedy, "measure the pipes", "low", (note,), LOOKS_BUSY)
    note, remedy, short = f"not measured here: {', '.join(lacks)}", OTHER_PIPES, "measure the pipes"
    if not lacks:
        note, remedy, short = "all that is measured rests", "a trace shows its kernels: `gputop trace FILE`", ""
    return RuleResult("info", (f"{line}{_power(s)}",), remedy, short, "low", (note,), UNEXPLAINED)


WORKING = Rule(
    id="working",
    title="working",
    condition=f"util ≥ {thresholds.WORKING_UTIL:.0f} %; SM measured; nothing else; green with one witness: a tensor, "
    f"FP or "
    f"INT pipe ≥ {thresholds.SEEN_PIPE:.0f} %, DRAM ≥ {thresholds.SEEN_DRAM:.0f} %, or power ≥ "
    f"{100 * thresholds.SEEN_POWER:.0f} % of its "
    f"limit (not at SM ≥ {thresholds.UNEXPLAINED_SM:.0f} % with all that is measured below "
    f"{thresholds.UNEXPLAINED_PIPE:.0f} %); "
    f"medium confidence below SM {thresholds.HEALTHY_SM:.0f} % or without a second witness",
    level=f"green; info where nothing measured explains it; grey-green ({LOOKS_BUSY}) where no witness is measured",
    state="working",
    matches=lambda s: s.util_pct >= thresholds.WORKING_UTIL and s.mean.sm is not None,
    tell=_tell_working,
    checked="SM / util of servers on GeForce and data-centre GPUs under a benchmark: 0.78 and more",
)


HELD_DOWN = 0.1
"""Share of the time with clocks held down by heat or a power brake, from which on low power has that reason."""


def _tell_unseen(s: Signals) -> RuleResult:
    why = "SM activity was not measured" if s.sm_off is None else s.sm_off.words
    evidence = f"util {pct(s.util_pct)}{_power(s)}; {why}"
    works_hard = s.conditions.at_power_limit
    if not works_hard and s.conditions.draws_little and max(s.mean.thermal, s.mean.brake) < HELD_DOWN:
        return RuleResult("grey", (evidence,), s.measure, SHORT, "low", (f"{DRAWS_LITTLE}: it may hardly work",))
    if works_hard:
        return RuleResult("grey-green", (evidence,), s.measure, SHORT, "medium", (f"at its power limit: {WORKS_HARD}",))
    return RuleResult("grey-green", (evidence,), s.measure, SHORT, "low")


NO_BOTTLENECK_SEEN = Rule(
    id="no_bottleneck_seen",
    title=f"{STATE_WORDS['unmeasured']}: no bottleneck seen",
    short="no bottleneck seen",
    condition=f"util ≥ {thresholds.HEALTHY_UTIL:.0f} %; SM not measured; power is the only witness: from "
    f"{100 * thresholds.FULL_POWER:.0f} % of its limit on the GPU works hard, below {100 * thresholds.LOW_POWER:.0f} "
    f"% with util ≥ "
    f"{thresholds.LOW_POWER_UTIL:.0f} % it draws little for a busy one",
    level="grey-green, grey where it draws little",
    state="unmeasured",
    matches=lambda s: s.mean.sm is None,
    tell=_tell_unseen,
    remedy="have SM measured: `--perf` with the right to read counters, dcgm-exporter, or GPM, as the card allows",
    checked="power against SM on the loads recorded: FP32 and tuned training both draw 82–85 % of an H100's limit, so "
    "power alone never makes a GPU healthy",
)
