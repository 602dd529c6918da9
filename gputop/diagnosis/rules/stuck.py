"""Rules for kernels that only wait: hangs, and warps that do nothing."""

from __future__ import annotations

from gputop.diagnosis import thresholds
from gputop.diagnosis.rules.base import Rule, RuleResult
from gputop.diagnosis.rules.busy_words import power_part
from gputop.diagnosis.signals import ENDED, WAITS_S, Signals
from gputop.model.durations import duration
from gputop.model.quantity import pct

FLIGHT_RECORDER = (
    "TORCH_FR_BUFFER_SIZE=2000 (older PyTorch: TORCH_NCCL_TRACE_BUFFER_SIZE) and "
    "TORCH_NCCL_DUMP_ON_TIMEOUT=1"
)
"""Settings of PyTorch's flight recorder: c10d/FlightRecorder.hpp (2.13 reads both names) and ProcessGroupNCCL.hpp."""


def _tell_hang(s: Signals) -> RuleResult:
    spin = s.spin
    assert spin is not None
    title, lasted = "hang: waits inside a kernel", duration(spin.for_s)
    line = (
        f"util {pct(s.util_pct)}, SM {pct(s.mean.sm)} and DRAM {pct(s.mean.dram)} stand "
        f"still{power_part(s)}"
    )
    pid = s.tick.pid
    remedy = "see where it waits (py-spy dump)"
    if pid is not None:
        remedy = f"py-spy dump --pid {pid} shows where it waits"
    evidence: tuple[str, ...] = (line,)
    short = "py-spy dump"
    if spin.behind:
        first = spin.behind[0]
        who = "1 GPU waits" if spin.waiting == 1 else f"{spin.waiting} GPUs wait"
        evidence = (f"{who} for {spin.late}", line)
        dump = "" if first.reason == ENDED else f": py-spy dump --pid {first.pid}"
        remedy = f"look at {first.name} first{dump}; its log and dmesg"
        short = f"look at {first.name}"
    elif spin.together > 1:
        together = f"{spin.together} GPUs of the job stopped at the same moment"
        evidence = (f"{together}; its main thread has slept all of {lasted}", line)
    elif spin.is_asleep:
        evidence = (f"its main thread has slept all of {lasted}", line)
    is_other_framework = spin.together > 1 and not s.tick.nccl
    if spin.is_collective and not is_other_framework:
        remedy += (
            f"; {FLIGHT_RECORDER} keep who entered which collective: read the dumps with "
            "torchfrtrace"
        )
    return RuleResult(
        evidence,
        remedy,
        short,
        "high" if spin.behind else "medium",
        ("it has worked otherwise before: this is no property of its kernels",),
        title=f"{title} for {lasted}",
        plain_title=title,
        cause="collective" if spin.is_collective else None,
        for_s=spin.for_s,
        about=spin.behind[0].gpu if spin.behind else None,
    )


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
    state="busy_not_working",
    matches=lambda s: s.spin is not None and s.spin.is_hang,
    tell=_tell_hang,
    remedy=f"the rank that differs is named: look at it; else `py-spy dump` on each rank; {FLIGHT_RECORDER}",
    checked="simulated loads alone; of real hangs the power is known, 10 % of the limit on every rank",
)


def holds_all(s: Signals) -> bool:
    """True if a kernel has held all multiprocessors for half a minute and computes nothing."""
    return s.spin is not None and s.spin.holds_all


def _tell_held(s: Signals) -> RuleResult:
    """A kernel that spins on all multiprocessors: the job's own power is the witness."""
    spin = s.spin
    assert spin is not None
    drawn = f"power {s.gpu.power_w or 0.0:.0f} W instead of {spin.worked_w or 0.0:.0f} W at work"
    line = f"util {pct(s.util_pct)}, SM {pct(s.mean.sm)} for {duration(spin.for_s)}; {drawn}"
    rests = "tensor, FP64, FP32, FP16, DRAM, PCIe and NVLink rest"
    pid = s.tick.pid
    tells = "" if pid is None else f"py-spy dump --pid {pid}; "
    return RuleResult(
        (line, rests),
        f"{tells}look on which rank or flag its kernel waits; cuda-gdb or Nsight Compute show the kernel",
        "py-spy dump",
        "medium",
        (
            "warps are resident and nothing is computed: integer work alone is what spinning looks like",
        ),
        title="stalled: a kernel holds all multiprocessors and computes nothing",
        short="stalled",
        state="busy_not_working",
        role="not_working",
        for_s=spin.for_s,
    )


def _tell_stalled(s: Signals) -> RuleResult:
    if holds_all(s):
        return _tell_held(s)
    others = (
        f"tensor, FP64, FP32, FP16, INT, DRAM, PCIe and NVLink all < {thresholds.STALLED_PIPE:.0f} "
        "%"
    )
    note = "warps are resident and nothing was computed: latency, locks or spinning"
    return RuleResult((f"SM {pct(s.mean.sm)}, and {others}",), confidence="low", notes=(note,))


STALLED = Rule(
    id="stalled",
    title="warps resident, nothing computed",
    short="nothing computed",
    condition=f"SM ≥ {thresholds.STALLED_SM:.0f} % (leaves at {thresholds.STALLED_SM.leave:.0f} %); tensor, FP64, "
    f"FP32, FP16, INT, "
    f"DRAM, PCIe and NVLink are all measured, and each is < {thresholds.STALLED_PIPE:.0f} % (leaves at "
    f"{thresholds.STALLED_PIPE.leave:.0f} %); or, whatever INT is, for {WAITS_S:.0f} s all others rest (pipes and DRAM "
    "≤ 2 %, links ≤ 5 %), SM stands still and power is below 80 % of what the same job drew at work",
    state="working",
    role="waiting",
    matches=lambda s: (
        holds_all(s) or (s.conditions.stalled and not s.conditions.half and not s.tick.draws)
    ),
    tell=_tell_stalled,
    remedy="look where kernels wait: a profiler's trace (`gputop trace FILE`), Nsight Compute's stall reasons; "
    "spinning collectives, locks, atomics on one address, pointer chasing",
    remedy_short="find what kernels wait for",
    checked="argued, not seen: no load was recorded with all of these counters; on each a pipe has ≥ 45 % of SM",
)
