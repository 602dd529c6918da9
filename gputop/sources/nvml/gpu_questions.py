"""What a GPU is asked and how its answers become catalogue values: the tables behind ``gpu_device.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml
from msgspec import Struct

from gputop.sources.nvml.handle import NO_VALUE, Handle, MetricAnswers, reason

# The values that each have a call of their own.


class Question(Struct, frozen=True):
    """Equivalent calls, newest meaning first, their arguments, and the catalogue keys that the answer fills.

    ``core`` marks the calls that every working GPU answers: where the driver fails at all of them, the GPU is gone.
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
MEMORY_V1 = Question(("mem_used_bytes", "mem_total_bytes"), ("nvmlDeviceGetMemoryInfo",), (), _memory, core=True)
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


# The values that NVML gives as fields: memory temperature, energy and byte counters, in one call a tick.

ALL_LINKS = 0xFFFFFFFF
"""Scope of an NVLink field: the sum over all links."""
KIB = 1024
_PCIE_TX = pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES
_PCIE_RX = pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES
_NVLINK_TX = pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX
_NVLINK_RX = pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX
_COUNTERS = {
    _PCIE_TX: ("pcie_tx_bytes_per_s", 1),
    _PCIE_RX: ("pcie_rx_bytes_per_s", 1),
    _NVLINK_TX: ("nvlink_tx_bytes_per_s", KIB),
    _NVLINK_RX: ("nvlink_rx_bytes_per_s", KIB),
}
"""Fields that count, the catalogue key of their rate, and the bytes in one count."""

_MEM_TEMP = pynvml.NVML_FI_DEV_MEMORY_TEMP
_ENERGY = pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION
_MMA_STALL: int | None = getattr(pynvml, "NVML_FI_DEV_MMA_STALL_PERCENT", None)
"""Known to nvidia-ml-py from 13.615 on, and to few drivers."""
NO_MMA_STALL = "this driver or GPU does not tell it"
_READ_AS = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}


def field_value(field: Any) -> Any:
    """The value of an nvmlFieldValue by its own type; None for a type that this binding does not know."""
    name = _READ_AS.get(field.valueType)
    return getattr(field.value, name, None) if name is not None else None


class Rate:
    """A byte counter turned into bytes per second."""

    __slots__ = ("_at", "_count")

    def __init__(self) -> None:
        self._count: int | None = None
        self._at = 0.0

    def feed(self, count: int, now: float) -> float | str:
        """Bytes per second since the last count, or the reason (a str) why there is none yet."""
        before, at = self._count, self._at
        self._count, self._at = count, now
        if before is None or now <= at:
            return "collecting: needs two reads"
        if count < before:
            return "the counter started again"
        return (count - before) / (now - at)

    def forget(self) -> None:
        """Begin afresh: the counts after a pause say nothing about the pause."""
        self._count = None


class FieldValues:
    """The values that NVML gives as fields, in one call a tick: memory temperature, energy, byte counters."""

    __slots__ = ("_asked_fields", "_measured", "_rates", "_usable_fields")

    def __init__(self, nvlink: bool) -> None:
        self._usable_fields: list[Any] = [_MEM_TEMP, _ENERGY, _PCIE_TX, _PCIE_RX]
        if nvlink:
            self._usable_fields += [(_NVLINK_TX, ALL_LINKS), (_NVLINK_RX, ALL_LINKS)]
        if _MMA_STALL is not None:
            self._usable_fields.append(_MMA_STALL)
        self._rates = {field: Rate() for field in _COUNTERS}
        self._measured: frozenset[str] | None = None
        self._asked_fields: tuple[Any, ...] = ()
        """What is asked for while ``_measured`` is measured by better means."""

    def ask_into(
        self, handle: Handle, into: MetricAnswers, now: float, measured: frozenset[str], at: float | None = None
    ) -> None:
        """Ask for all fields whose keys are not ``measured`` by better means. Raises LostGpu.

        ``now`` is the time of the tick, ``at`` that of this question where other questions came between, monotonic s.
        """
        if measured != self._measured:
            self._measured = measured
            self._asked_fields = tuple([f for f in self._usable_fields if _key(f) not in measured])
            for field, (key, _) in _COUNTERS.items():
                if key in measured:
                    self._rates[field].forget()
        fields = self._asked_fields
        if _MMA_STALL not in fields:
            into.missing["mma_stall_pct"] = NO_MMA_STALL
        answer = handle.ask(("nvmlDeviceGetFieldValues",), (fields,), now)
        if answer.__class__ is str:
            for field in fields:
                into.missing.setdefault(_key(field), answer)
            ENERGY.ask_into(handle, into, now)
            return
        for field in answer:
            self._keep(field, into, now if at is None else at)
        if "energy_j" in into.missing:
            del into.missing["energy_j"]
            ENERGY.ask_into(handle, into, now)

    def _keep(self, field: Any, into: MetricAnswers, now: float) -> None:
        name, code = field.fieldId, field.nvmlReturn
        key = _key(name)
        value = field_value(field) if code == pynvml.NVML_SUCCESS else None
        if value is None and name == _MMA_STALL:
            # Asked once: a driver that does not know it today does not tomorrow.
            into.missing[key] = NO_MMA_STALL
            self._usable_fields = [field for field in self._usable_fields if field != name]
            self._measured = None
        elif value is None:
            into.missing[key] = reason(code or pynvml.NVML_ERROR_NOT_SUPPORTED)
        elif name in (_MEM_TEMP, _MMA_STALL):
            into.put(key, value)
        elif name == _ENERGY:
            into.put(key, value / 1000)
        else:
            rate = self._rates[name].feed(value * _COUNTERS[name][1], now)
            if isinstance(rate, str):
                into.missing[key] = rate
            else:
                into.put(key, rate)


def _key(field: Any) -> str:
    name = field[0] if isinstance(field, tuple) else field
    if name == _MEM_TEMP:
        return "mem_temp_c"
    if name == _MMA_STALL:
        return "mma_stall_pct"
    return "energy_j" if name == _ENERGY else _COUNTERS[name][0]
