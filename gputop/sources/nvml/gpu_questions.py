"""Questions to a GPU, and their answers as catalogue values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml
from msgspec import Struct
from msgspec.structs import replace

from gputop.sources.nvml.device_health import KEYS as HEALTH_KEYS
from gputop.sources.nvml.device_health import DeviceHealth
from gputop.sources.nvml.field_values import Rate
from gputop.sources.nvml.handle import NO_VALUE, Handle, MetricAnswers
from gputop.sources.nvml.nvml_errors import reason


def _as_is(value: Any) -> tuple[Any, ...]:
    return (value,)


def _thousandth(value: int) -> tuple[Any, ...]:
    return (value / 1000 if value != NO_VALUE else value,)


class Question(Struct, frozen=True):
    """Catalogue keys filled by an answer, equivalent calls, and arguments.

    The call with the newest meaning comes first. ``core`` marks calls that every working GPU answers: where the driver
    fails at all of them, the GPU is gone.
    """

    keys: tuple[str, ...]
    names: tuple[str, ...]
    arguments: tuple[Any, ...] = ()
    convert: Callable[[Any], tuple[Any, ...]] = _as_is
    core: bool = False

    @property
    def handle_key(self) -> object:
        """Return the name under which a handle remembers a refusal."""
        return self.names[0], self.arguments

    def ask_into(self, handle: Handle, into: MetricAnswers, now: float) -> bool:
        """Ask and keep the answer; False without one. Raises LostGpu."""
        answer = handle.ask(self.names, self.arguments, now, self.core)
        if answer.__class__ is str:
            into.miss(self.keys, answer)
            return False
        for key, value in zip(self.keys, self.convert(answer), strict=True):
            into.put(key, value)
        return True


def _one(
    key: str,
    name: str,
    *arguments: Any,
    as_: Callable[[Any], tuple[Any, ...]] = _as_is,
    core: bool = False,
) -> Question:
    """A value with one call."""
    return Question((key,), (name,), arguments, as_, core)


MEMORY_V1 = Question(
    ("mem_used_bytes", "mem_total_bytes"), ("nvmlDeviceGetMemoryInfo",),
    convert=lambda memory: (float(memory.used), float(memory.total)), core=True,
)  # fmt: skip
"""Of drivers before R510: ``used`` then holds the driver's reserve as well."""
MEMORY_V2 = replace(MEMORY_V1, arguments=(pynvml.nvmlMemory_v2,))

POWER_LIMIT = _one("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", as_=_thousandth)
SM_CLOCK_MAX = _one("sm_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_SM)

EVERY_TICK = (
    Question(
        ("util_pct", "mem_util_pct"), ("nvmlDeviceGetUtilizationRates",),
        convert=lambda rates: (rates.gpu, rates.memory), core=True,
    ),
    _one("power_w", "nvmlDeviceGetPowerUsage", as_=_thousandth, core=True),
    Question(
        ("temp_c",), ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"),
        (pynvml.NVML_TEMPERATURE_GPU,), core=True,
    ),
    _one("sm_clock_mhz", "nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM, core=True),
    _one("mem_clock_mhz", "nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM),
    Question(
        ("throttle_reasons",), ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    ),
)  # fmt: skip

FIXED = (
    SM_CLOCK_MAX,
    _one(
        "mem_temp_max_c",
        "nvmlDeviceGetTemperatureThreshold",
        pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX,
    ),
    _one(
        "temp_slowdown_c",
        "nvmlDeviceGetTemperatureThreshold",
        pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
    ),
    _one("pcie_gen_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    _one("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
)
"""What a GPU's slot allows: constant while it stays there, and asked once a minute all the same."""


def _remapped_rows(rows: Any) -> tuple[Any, ...]:
    corrected, uncorrected, is_pending, has_failed = rows
    return corrected, uncorrected, bool(is_pending), bool(has_failed)


_UNCORRECTED, _CORRECTED = (
    pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
    pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
)
SELDOM = (
    POWER_LIMIT,
    # It takes an H200's driver 2.6 ms, a thousand times as long as its power.
    _one("energy_j", "nvmlDeviceGetTotalEnergyConsumption", as_=lambda mj: (mj / 1000,)),
    _one("pstate", "nvmlDeviceGetPerformanceState"),
    _one("fan_pct", "nvmlDeviceGetFanSpeed"),
    _one("encoder_pct", "nvmlDeviceGetEncoderUtilization", as_=lambda answer: (answer[0],)),
    _one("decoder_pct", "nvmlDeviceGetDecoderUtilization", as_=lambda answer: (answer[0],)),
    _one("pcie_gen", "nvmlDeviceGetCurrPcieLinkGeneration"),
    _one("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
    _one("ecc_uncorrected_volatile", "nvmlDeviceGetTotalEccErrors", _UNCORRECTED, pynvml.NVML_VOLATILE_ECC),
    _one("ecc_corrected_volatile", "nvmlDeviceGetTotalEccErrors", _CORRECTED, pynvml.NVML_VOLATILE_ECC),
    _one("ecc_uncorrected", "nvmlDeviceGetTotalEccErrors", _UNCORRECTED, pynvml.NVML_AGGREGATE_ECC),
    _one("ecc_corrected", "nvmlDeviceGetTotalEccErrors", _CORRECTED, pynvml.NVML_AGGREGATE_ECC),
    Question(
        ("remapped_rows_corrected", "remapped_rows_uncorrected", "remap_pending", "remap_failed"),
        ("nvmlDeviceGetRemappedRows",), convert=_remapped_rows,
    ),
)  # fmt: skip

SELDOM_S, FIXED_S = 5.0, 60.0
NO_MEMORY = "the driver does not say how much memory this GPU has"


def ask_memory_into(handle: Handle, into: MetricAnswers, now: float) -> bool:
    """Ask for the memory in the newest form that the driver knows.

    A driver that has answered the newer form is asked in the older one, whose ``used`` has another meaning, only if it
    no longer has the newer function. False if the driver says that this GPU has no memory of its own.
    """
    if MEMORY_V2.ask_into(handle, into, now):
        handle.knows_memory_v2 = True
        return True
    refused = into.missing[MEMORY_V2.keys[0]]
    if handle.knows_memory_v2 and refused != reason(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND):
        return True
    for key in MEMORY_V1.keys:
        del into.missing[key]
    if not MEMORY_V1.ask_into(handle, into, now) and refused == reason(
        pynvml.NVML_ERROR_NOT_SUPPORTED
    ):
        into.miss(MEMORY_V1.keys, NO_MEMORY)
        return False
    return True


class Seldom:
    """One GPU's answers that need not be new in each sample."""

    __slots__ = ("_all_due_at", "_corrected", "_fixed_due_at", "_health", "answers", "due_at")

    def __init__(self, *, has_health: bool = False) -> None:
        """``has_health`` is for whole GPUs: an instance's health is its GPU's."""
        self.answers = MetricAnswers()
        self.due_at = float("-inf")
        """When it is worth asking again, monotonic s."""
        self._all_due_at = float("-inf")
        self._fixed_due_at = float("-inf")
        self._health: DeviceHealth | None = DeviceHealth() if has_health else None
        self._corrected = Rate()

    def ask(self, handle: Handle, now: float, turn: int) -> None:
        """Ask all that is due.

        GPUs take turns, so that their slow questions do not all fall into one tick. Questions that failed, and that
        may be answered now, are asked in between. Raises LostGpu.
        """
        asks_all = now >= self._all_due_at
        if asks_all:
            due: tuple[Question, ...] = SELDOM
            self._all_due_at = now + SELDOM_S * (0.8 + 0.05 * (turn % 8))
            if now >= self._fixed_due_at:
                due = FIXED + SELDOM
                self._fixed_due_at = now + FIXED_S
        else:
            due = tuple(
                question
                for question in FIXED + SELDOM
                if handle.retry_at(question.handle_key) <= now
            )
        due_keys = [key for question in due for key in question.keys]
        if asks_all:
            due_keys += [*HEALTH_KEYS, "nvlink_down", "ecc_corrected_per_s"]
        self.answers = self.answers.without(due_keys)
        for question in due:
            question.ask_into(handle, self.answers, now)
        if asks_all:
            self._note_corrected(now)
            if self._health is not None:
                self._health.ask_into(handle, self.answers, now)
        retry_at = min(handle.retry_at(question.handle_key) for question in FIXED + SELDOM)
        self.due_at = min(self._all_due_at, retry_at)

    def _note_corrected(self, now: float) -> None:
        """Turn the count of corrected errors into a rate."""
        count = self.answers.values.get("ecc_corrected_volatile")
        if count is None:
            why = self.answers.missing.get("ecc_corrected_volatile", NO_MEMORY)
            self.answers.miss(("ecc_corrected_per_s",), why)
            return
        rate = self._corrected.feed(count, now)
        if isinstance(rate, str):
            self.answers.miss(("ecc_corrected_per_s",), rate)
        else:
            self.answers.put("ecc_corrected_per_s", rate)
