"""Checks of a GPU's readings against each other and the past.

They run before anything judges, draws, counts or exports a reading. Drivers answer "success" and are wrong, and each
value alone looks right. An impossible value becomes "not measured", with its reason; a doubtful one carries a doubt.
Pure: recordings keep the driver's answers, and a replay is checked as a live run is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from operator import attrgetter
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from gputop.diagnosis.thresholds import MOST_POWER
from gputop.diagnosis.window.standstill import NOT_BELIEVED, STANDING, Standstill
from gputop.model.metrics import GPU_METRICS, IMPOSSIBLE
from gputop.model.quantity import known
from gputop.model.sm import INTEGRATED, MEASURED, SM_SOURCES, SmLack
from gputop.model.snapshot import GpuSample, ProcessSample, Snapshot

OF_UTIL = ("util_pct", "mem_util_pct")
"""Both come from one question to the driver."""
LASTS_S, LASTS_SLOW_S = 10.0, 90.0
"""How long another witness must show work beside a util of 0, and one whose values are means over half a minute: util
is that of the last sixth of a second, and of an H100 at work it was 0 in 30 of 117 s."""
SOME_WORK = 5.0
"""Percent of SM, pipe or engine activity, from which on a kernel runs."""
RISEN = 3.0
"""Power of an integrated GPU at work over its lowest; on a Thor 4.7."""
STUCK_UTIL, STUCK_S = 95.0, 30.0
STUCK_BYTES, STUCK_POWER = float(1 << 30), 0.25
"""A GPU on which nothing is: memory in use, and share of the power limit. A Blackwell board whose util was latched drew
17 % of it at its full clock."""
MOVED = 0.2
"""Part of the higher clock by which the clock moves, from which on a share of cycles is not one of time."""
ENGINE_RUNS, KERNELS_RUN = 20.0, 50.0
"""Percent of the engine's activity and of util, beside which no multiprocessor can have had nothing to do at all."""
SM_ABOVE = 5.0
"""Points by which SM exceeds util, from which on util is the one that is too low."""
MOST_OF_A_SECOND = 50.0
PERCENTS = tuple(key for key, metric in GPU_METRICS.items() if metric.unit == "pct")
COUNTED = (
    "sm_active_pct", "sm_occupancy_pct", "tensor_active_pct", "dram_active_pct", "fp64_active_pct", "fp32_active_pct",
    "fp16_active_pct", "int_active_pct",
)  # fmt: skip
"""What DCGM counts in turns, where a GPU cannot count all of it at once."""
ALWAYS_ZERO, STUCK = "the driver answers 0", "stuck"
"""How the reasons begin for which a util is not believed."""
BROKEN = "the SM counter reads 0 while the GPU works"
IMPOSSIBLE_POWER = "is not possible with a limit of"
BROKEN_SAMPLES, BROKEN_UTIL, BROKEN_POWER = 3, 50.0, 0.25
"""An SM counter that reads 0 so often while util and power (share of the limit [judged]) are above these is broken."""
MISSED = "a sample that DCGM missed: it counts in turns"
_PERCENTS_OF = attrgetter(*PERCENTS)


class GpuHistory(Struct):
    """History of one GPU in this run."""

    t: float
    util: float | None = None
    unmoved_since: float = 0.0
    """Time from which on util has had its present value."""
    has_counted: bool = False
    """Whether util was ever above 0."""
    works_since: float | None = None
    """Start of the unbroken time in which other counters show work."""
    always_zero: str | None = None
    """Reason for not believing a util of 0."""
    least_w: float | None = None
    sm_source: str = ""
    zeros: int = 0
    """Samples at work with an SM of 0 since the last other value."""
    clock_mhz: float | None = None
    clock_before_mhz: float | None = None
    standstill: Standstill = field(default_factory=Standstill)

    def add(self, gpu: GpuSample, t: float, interval_s: float) -> None:
        """Take one sample in."""
        util, power = gpu.util_pct, gpu.power_w
        if util != self.util or t - self.t > max(LASTS_S, 3.0 * interval_s):
            self.util, self.unmoved_since = util, t
        self.t = t
        self.has_counted = self.has_counted or bool(util)
        if power is not None and (self.least_w is None or power < self.least_w):
            self.least_w = power
        if gpu.sm_active_pct or gpu.sm_source != self.sm_source:
            self.zeros = 0
        self.sm_source = gpu.sm_source
        self.zeros += reads_zero_at_work(gpu)
        self.clock_before_mhz, self.clock_mhz = self.clock_mhz, gpu.sm_clock_mhz
        self.standstill.add_sample(t, gpu, max(LASTS_S, 3.0 * interval_s))


def _other_work(gpu: GpuSample, past: GpuHistory, processes: Iterable[ProcessSample]) -> str | None:
    """Evidence that a GPU works, beside its util.

    Of a discrete GPU neither power nor clocks are evidence: a context alone raises an H100 from 72 to 122 W at its
    highest clock. Nor is its memory, which copies and video use.
    """
    for words, value in (
        ("its SMs are", gpu.sm_active_pct),
        ("a pipe is", max(known(gpu.pipes), default=None)),
        ("its engine is", gpu.graphics_active_pct),
    ):
        # Of the hardware counters util is the witness, not they of it: `fallback_chain.CrossCheck` ends them.
        if value is not None and value >= SOME_WORK and gpu.sm_source != "counters":
            return f"{words} active {value:.0f} % of the time"
    name = gpu.static.name.lower()
    is_integrated = gpu.static.unified_memory or any(word in name for word in INTEGRATED)
    if (
        is_integrated
        and gpu.power_w is not None
        and past.least_w
        and gpu.power_w >= RISEN * past.least_w
    ):
        return f"the GPU draws {gpu.power_w:.0f} W"
    for p in processes:
        if p.gpu == gpu.static.index and p.gpu_time_pct:
            return f"its process {p.pid} is said to use it"
    return None


def always_zero(
    gpu: GpuSample, past: GpuHistory, processes: Iterable[ProcessSample], t: float
) -> str | None:
    """The driver of a Thor always answers 0 (rezolus#1105).

    A util above 0 that was seen once excludes it.
    """
    if past.has_counted or gpu.util_pct != 0.0:
        return None
    work = _other_work(gpu, past, processes)
    if work is None:
        past.works_since = None
        return past.always_zero
    if past.works_since is None:
        past.works_since = t
    if t - past.works_since >= (LASTS_SLOW_S if SM_SOURCES[gpu.sm_source].slow else LASTS_S):
        past.always_zero = f"{ALWAYS_ZERO} while {work}"
    return past.always_zero


def stuck(
    gpu: GpuSample, past: GpuHistory, processes: Iterable[ProcessSample], t: float
) -> str | None:
    """After a kill or a suspend util may stay at 100 without a process.

    Of Blackwell boards it stays until a CUDA context is opened; after a suspend (open-gpu-kernel-modules#1138) until
    the driver is loaded anew.
    """
    util, power, limit = gpu.util_pct, gpu.power_w, gpu.power_limit_w
    if util is None or util < STUCK_UTIL or t - past.unmoved_since < STUCK_S or gpu.sm_active_pct:
        return None
    if "processes" in gpu.unavailable or any(p.gpu == gpu.static.index for p in processes):
        return None
    if gpu.mem_used_bytes is None or gpu.mem_used_bytes >= STUCK_BYTES:
        return None
    has_power = power is not None and bool(limit)
    if has_power and (power or 0.0) >= STUCK_POWER * (limit or 0.0):
        return None
    if not has_power and gpu.sm_active_pct is None:
        return None
    since = datetime.fromtimestamp(past.unmoved_since, timezone.utc)
    drawn = "" if power is None else f" and {power:.0f} W"
    return (
        f"{STUCK} at {util:.0f} since {since:%H:%M} UTC, with no process{drawn}; open and close a "
        "CUDA context (any small CUDA program does); else reset the GPU or reload the driver"
    )


def standing(
    gpu: GpuSample, past: GpuHistory, _processes: Iterable[ProcessSample], t: float
) -> str | None:
    """Values that are equal to the last digit for a minute.

    Power that cannot be is frozen by itself, as of some laptops: it tells nothing of the others.
    """
    if impossible_power(gpu, past, (), t) is not None:
        return None
    return past.standstill.reason(t, gpu)


def missed(
    gpu: GpuSample, _past: GpuHistory, _processes: Iterable[ProcessSample], _t: float
) -> str | None:
    """A sample that DCGM did not count.

    DCGM counts some fields in turns (at 100 ms on an A100 two rows of three are none): SM and every pipe are then 0
    while the memory is busy or kernels run. One pipe at 0 is a measurement, as every 0 of other sources is.
    """
    if gpu.sm_active_pct != 0.0 or not SM_SOURCES[gpu.sm_source].dcgm:
        return None
    if any(gpu.pipes):
        return None
    is_busy = (gpu.graphics_active_pct or 0.0) >= ENGINE_RUNS or (
        gpu.util_pct or 0.0
    ) >= KERNELS_RUN
    return MISSED if gpu.dram_active_pct or is_busy else None


def reads_zero_at_work(gpu: GpuSample) -> bool:
    """True if SM reads 0 while the GPU seems to work."""
    util, power, limit = gpu.util_pct, gpu.power_w, gpu.power_limit_w
    if (
        gpu.sm_active_pct != 0.0
        or util is None
        or util < BROKEN_UTIL
        or gpu.sm_source not in MEASURED
    ):
        return False
    return power is not None and bool(limit) and power >= BROKEN_POWER * (limit or 0.0)


def broken(
    gpu: GpuSample, past: GpuHistory, _processes: Iterable[ProcessSample], _t: float
) -> str | None:
    """A profiler that holds the counters, or a driver that lost them, leaves zeros."""
    return BROKEN if gpu.sm_active_pct == 0.0 and past.zeros >= BROKEN_SAMPLES else None


def is_broken(gpu: GpuSample) -> bool:
    """Whether the SM counter of a sample that went through here is broken."""
    return gpu.unavailable.get("sm_active_pct") == BROKEN


def is_missed(gpu: GpuSample) -> bool:
    """Whether the counters of a sample that went through here are none."""
    return gpu.unavailable.get("sm_active_pct") == MISSED


def is_refuted(gpu: GpuSample) -> bool:
    """True if the util of a checked sample, and of those before it, is not believed."""
    return gpu.unavailable.get("util_pct", "").startswith((ALWAYS_ZERO, STUCK, STANDING))


def busy_pct(gpu: GpuSample, util: float | None, sm: float | None) -> float | None:
    """Percent of the time in which kernels ran: util, or SM if that is more.

    An H100's util was 0 in 30 of 117 s beside an SM of 8 to 58. Not by a source whose values are old, nor by a share of
    cycles while the clock swings.

    ``util`` and ``sm`` are of one sample or means of many. Where util is a moment of each second, the larger of the two
    second by second is more than either mean: a job that works in bursts would seem to work all the time.
    """
    if (
        util is None
        or sm is None
        or sm <= util + SM_ABOVE
        or gpu.static.mig_enabled
        or gpu.sm_source not in MEASURED
    ):
        return util
    return util if SM_SOURCES[gpu.sm_source].slow or "sm_active_pct" in gpu.doubts else sm


def busy_second_pct(gpu: GpuSample) -> float | None:
    """Busy percent of one sample, as evidence of pauses.

    Its util, or SM if that shows work for most of the second. A pause's own first and last second are busy in part.
    """
    busy = busy_pct(gpu, gpu.util_pct, gpu.sm_active_pct)
    return busy if busy is None or busy >= MOST_OF_A_SECOND else gpu.util_pct


def kernels_pct(gpu: GpuSample, busy: float | None) -> float | None:
    """Percent of one sample's time in which kernels ran.

    By GPM's or DCGM's count of all cycles if there is one.

    The driver's util is what it was in the last sixth of a second: of a loader job on an H200 it went from 2 to 100
    while the engine worked 52 to 68 % of each second.
    """
    counted = gpu.graphics_active_pct
    if (
        counted is None
        or busy is None
        or gpu.sm_source not in MEASURED
        or SM_SOURCES[gpu.sm_source].slow
    ):
        return busy
    return (
        busy if "sm_active_pct" in gpu.doubts or counted < (gpu.sm_active_pct or 0.0) else counted
    )


def impossible_power(
    gpu: GpuSample, _past: GpuHistory, _processes: Iterable[ProcessSample], _t: float
) -> str | None:
    """A frozen power reading may be many times the limit.

    The energy counter sums up the same reading.
    """
    power, limit = gpu.power_w, gpu.power_limit_w
    if power is None or not limit or power <= MOST_POWER * limit:
        return None
    return f"{power:.0f} W {IMPOSSIBLE_POWER} {limit:.0f} W"


def has_impossible_power(gpu: GpuSample) -> bool:
    """True if the power of a checked sample was impossible."""
    return IMPOSSIBLE_POWER in gpu.unavailable.get("power_w", "")


class SanityCheck(Struct, frozen=True):
    """One check.

    ``reason`` gives the reason of an impossible reading, whose ``keys`` then count as not measured; of ``zeros_alone``
    only values of 0.
    """

    keys: tuple[str, ...]
    reason: Callable[[GpuSample, GpuHistory, Iterable[ProcessSample], float], str | None]
    zeros_alone: bool = False


CHECKS = (
    SanityCheck(OF_UTIL, always_zero),
    SanityCheck(OF_UTIL, stuck),
    SanityCheck(NOT_BELIEVED, standing),
    SanityCheck(COUNTED, missed, zeros_alone=True),
    SanityCheck(("sm_active_pct",), broken),
    SanityCheck(("power_w", "energy_j"), impossible_power),
)


def believed_alone(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot that has no others beside it, without what cannot be.

    The age of an exporter's values is not known from one reading: those that contradict utilisation are not shown.
    """
    checked = SanityFilter().believed(snapshot)
    gpus = tuple([_without_contradiction(gpu) for gpu in checked.gpus])
    notices = [
        f"GPU {gpu.static.index}: {gpu.sm_reason}"
        for gpu, before in zip(gpus, checked.gpus, strict=True)
        if gpu is not before
    ]
    if not notices:
        return checked
    return replace(checked, gpus=gpus, notices=(*checked.notices, *notices))


def _without_contradiction(gpu: GpuSample) -> GpuSample:
    """Return a sample without counters that contradict a util of 0."""
    sm, source = gpu.sm_active_pct, SM_SOURCES[gpu.sm_source]
    if sm is None or sm <= SOME_WORK or gpu.util_pct != 0.0 or not source.dcgm:
        return gpu
    why = (
        f"SM activity {sm:.0f} % of {source.label} contradicts utilisation 0 %: its values are old, "
        "or the job has just ended; gputop needs some seconds to learn their age"
    )
    keys = [key for key in (*COUNTED, "graphics_active_pct") if getattr(gpu, key) is not None]
    nothing: dict[str, Any] = dict.fromkeys(keys)
    return replace(
        gpu,
        **nothing,
        sm_lack=SmLack((why,)),
        unavailable={**gpu.unavailable, **dict.fromkeys(keys, why)},
    )


class SanityFilter:
    """Feed it snapshots in order of time."""

    def __init__(self) -> None:
        self._past: dict[str, GpuHistory] = {}

    def believed(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot without what cannot be.

        Itself where all of it can.
        """
        if len(self._past) > len(snapshot.gpus):
            # Of a GPU that is gone nothing is known any more; one that is lost is still there.
            there = {gpu.static.uuid for gpu in snapshot.gpus}
            self._past = {uuid: past for uuid, past in self._past.items() if uuid in there}
        gpus = tuple([self._gpu(gpu, snapshot) for gpu in snapshot.gpus])
        same = all(new is old for new, old in zip(gpus, snapshot.gpus, strict=True))
        return snapshot if same else replace(snapshot, gpus=gpus)

    def _gpu(self, gpu: GpuSample, snapshot: Snapshot) -> GpuSample:
        t, processes = snapshot.t, snapshot.processes
        past = self._past.get(gpu.static.uuid)
        if past is None:
            past = self._past[gpu.static.uuid] = GpuHistory(t)
        if "nvml" not in snapshot.repeats:
            past.add(gpu, t, snapshot.interval_s)
        if any(value is not None and not 0.0 <= value <= 100.0 for value in _PERCENTS_OF(gpu)):
            gpu = _within(gpu)
        missing = {
            key: why
            for rule in CHECKS
            if (why := rule.reason(gpu, past, processes, t))
            for key in rule.keys
            if not rule.zeros_alone or getattr(gpu, key) == 0.0
        }
        doubts = {} if (doubt := _clock_doubt(gpu, past)) is None else {"sm_active_pct": doubt}
        if (
            not doubts
            and "util_pct" not in missing
            and busy_pct(gpu, gpu.util_pct, gpu.sm_active_pct) != gpu.util_pct
        ):
            doubts = {"util_pct": "SM says more"}
        if not missing and not doubts:
            return gpu
        changes: dict[str, Any] = dict.fromkeys(missing)
        if "util_pct" in missing and gpu.sm_source == "bound":
            changes.update(sm_source="none", sm_low_pct=None, sm_high_pct=None)
        if missing:
            changes["unavailable"] = {**gpu.unavailable, **missing}
        return replace(gpu, **changes, doubts=doubts)


def _within(gpu: GpuSample) -> GpuSample:
    """Clear percentages outside 0 to 100, as old recordings may have."""
    values: dict[str, float | None] = {}
    missing = dict(gpu.unavailable)
    for key, value in zip(PERCENTS, _PERCENTS_OF(gpu), strict=True):
        if value is not None and not 0.0 <= value <= 100.0:
            values[key] = GPU_METRICS[key].believed(value)
            if values[key] is None:
                missing[key] = f"{IMPOSSIBLE} ({value:g})"
    return replace(gpu, **values, unavailable=missing)


def _clock_doubt(gpu: GpuSample, past: GpuHistory) -> str | None:
    """Return a doubt about SM activity while the clock changes.

    Activity is counted in cycles, so a share of cycles is not a share of time (open-gpu-kernel-modules#1122).
    """
    before, now = past.clock_before_mhz, past.clock_mhz
    if (
        before is None
        or now is None
        or gpu.sm_active_pct is None
        or abs(now - before) <= MOVED * max(now, before)
    ):
        return None
    return f"per cycle, clock {min(before, now):.0f}–{max(before, now):.0f} MHz"
