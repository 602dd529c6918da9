"""What a GPU is asked and how its answers become catalogue values: the tables behind ``device.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml
from msgspec import Struct

from gputop.sources.nvml.handle import NO_VALUE, Handle, MetricAnswers, reason


class Question(Struct, frozen=True):
    """Equivalent calls, newest meaning first, their arguments, and the catalogue keys that the answer fills.

    ``core`` marks the calls that every working GPU answers: an unknown error from one means that the GPU is gone.
    """

    keys: tuple[str, ...]
    names: tuple[str, ...]
    arguments: tuple[Any, ...]
    convert: Callable[[Any], tuple[Any, ...]]
    core: bool = False

    def ask_into(self, handle: Handle, into: MetricAnswers, now: float) -> bool:
        """Ask, and keep what comes. True when the GPU answered. Raises LostGpu."""
        answer = handle.ask(self.names, self.arguments, now, self.core)
        if answer.__class__ is str:
            into.miss(self.keys, answer)
            return False
        for key, value in zip(self.keys, self.convert(answer), strict=True):
            into.put(key, value)
        return True


def _as_is(value: Any) -> tuple[Any, ...]:
    return (value,)


def _thousandth(value: int) -> tuple[Any, ...]:
    return (value / 1000 if value != NO_VALUE else value,)


def _memory(memory: Any) -> tuple[Any, ...]:
    return float(memory.used), float(memory.total)


MEMORY_V2 = Question(
    ("mem_used_bytes", "mem_total_bytes"),
    ("nvmlDeviceGetMemoryInfo",),
    (pynvml.nvmlMemory_v2,),
    _memory,
    core=True,
)
MEMORY_V1 = Question(("mem_used_bytes", "mem_total_bytes"), ("nvmlDeviceGetMemoryInfo",), (), _memory)
"""Of drivers before R510: ``used`` then holds the driver's reserve as well."""

POWER_LIMIT = Question(("power_limit_w",), ("nvmlDeviceGetEnforcedPowerLimit",), (), _thousandth)
SM_CLOCK_MAX = Question(("sm_clock_max_mhz",), ("nvmlDeviceGetMaxClockInfo",), (pynvml.NVML_CLOCK_SM,), _as_is)
ENERGY = Question(("energy_j",), ("nvmlDeviceGetTotalEnergyConsumption",), (), lambda mj: (mj / 1000,))

EVERY_TICK = (
    Question(
        ("util_pct", "mem_util_pct"),
        ("nvmlDeviceGetUtilizationRates",),
        (),
        lambda rates: (rates.gpu, rates.memory),
        core=True,
    ),
    Question(("power_w",), ("nvmlDeviceGetPowerUsage",), (), _thousandth, core=True),
    Question(
        ("temp_c",),
        ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"),
        (pynvml.NVML_TEMPERATURE_GPU,),
        _as_is,
        core=True,
    ),
    Question(("sm_clock_mhz",), ("nvmlDeviceGetClockInfo",), (pynvml.NVML_CLOCK_SM,), _as_is, core=True),
    Question(("mem_clock_mhz",), ("nvmlDeviceGetClockInfo",), (pynvml.NVML_CLOCK_MEM,), _as_is),
    Question(
        ("throttle_reasons",),
        ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
        (),
        _as_is,
    ),
)

FIXED = (
    SM_CLOCK_MAX,
    Question(
        ("temp_slowdown_c",),
        ("nvmlDeviceGetTemperatureThreshold",),
        (pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,),
        _as_is,
    ),
    Question(("pcie_gen_max",), ("nvmlDeviceGetMaxPcieLinkGeneration",), (), _as_is),
    Question(("pcie_width_max",), ("nvmlDeviceGetMaxPcieLinkWidth",), (), _as_is),
)
"""What a GPU's slot allows: constant while it stays there, and asked once a minute all the same."""

SELDOM = (
    POWER_LIMIT,
    Question(("pstate",), ("nvmlDeviceGetPerformanceState",), (), _as_is),
    Question(("fan_pct",), ("nvmlDeviceGetFanSpeed",), (), _as_is),
    Question(("encoder_pct",), ("nvmlDeviceGetEncoderUtilization",), (), lambda answer: (answer[0],)),
    Question(("decoder_pct",), ("nvmlDeviceGetDecoderUtilization",), (), lambda answer: (answer[0],)),
    Question(("pcie_gen",), ("nvmlDeviceGetCurrPcieLinkGeneration",), (), _as_is),
    Question(("pcie_width",), ("nvmlDeviceGetCurrPcieLinkWidth",), (), _as_is),
    Question(
        ("ecc_uncorrected_volatile",),
        ("nvmlDeviceGetTotalEccErrors",),
        (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC),
        _as_is,
    ),
    Question(
        ("ecc_corrected_volatile",),
        ("nvmlDeviceGetTotalEccErrors",),
        (pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_VOLATILE_ECC),
        _as_is,
    ),
    Question(
        ("ecc_uncorrected",),
        ("nvmlDeviceGetTotalEccErrors",),
        (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_AGGREGATE_ECC),
        _as_is,
    ),
    Question(
        ("ecc_corrected",),
        ("nvmlDeviceGetTotalEccErrors",),
        (pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_AGGREGATE_ECC),
        _as_is,
    ),
    Question(
        ("remap_pending", "remap_failed"),
        ("nvmlDeviceGetRemappedRows",),
        (),
        lambda rows: (bool(rows[2]), bool(rows[3])),
    ),
)

SELDOM_S, FIXED_S = 5.0, 60.0
NO_MEMORY = "the driver does not say how much memory this GPU has"


def ask_memory_into(handle: Handle, into: MetricAnswers, now: float) -> bool:
    """Ask for the memory in the newest form that the driver knows, and keep what comes or why nothing does.

    False where the driver says that this GPU has none to tell: then it may use the host's.
    """
    if MEMORY_V2.ask_into(handle, into, now):
        return True
    for key in MEMORY_V1.keys:
        refused = into.missing.pop(key)
    if not MEMORY_V1.ask_into(handle, into, now) and refused == reason(pynvml.NVML_ERROR_NOT_SUPPORTED):
        into.miss(MEMORY_V1.keys, NO_MEMORY)
        return False
    return True


class Seldom:
    """One GPU's answers to questions whose answers need not be new in each sample."""

    __slots__ = ("_fixed", "_fixed_due_at", "answers", "due_at")

    def __init__(self) -> None:
        self.answers = MetricAnswers()
        self.due_at = float("-inf")
        """When it is worth asking again, monotonic s."""
        self._fixed = MetricAnswers()
        self._fixed_due_at = float("-inf")

    def ask(self, handle: Handle, now: float, turn: int) -> None:
        """Ask all that is due. GPUs take turns, so that their slow questions do not all fall into one tick.

        Raises LostGpu.
        """
        fresh = MetricAnswers()
        if now >= self._fixed_due_at:
            self._fixed = MetricAnswers()
            for question in FIXED:
                question.ask_into(handle, self._fixed, now)
            self._fixed_due_at = now + FIXED_S
        for question in SELDOM:
            question.ask_into(handle, fresh, now)
        fresh.values.update(self._fixed.values)
        fresh.missing.update(self._fixed.missing)
        self.answers = fresh
        self.due_at = now + SELDOM_S * (0.8 + 0.05 * (turn % 8))
