"""The values that NVML gives as fields: memory temperature, energy and byte counters, in one call a tick."""

from __future__ import annotations

from typing import Any

import pynvml

from gputop.sources.nvml.gpu_questions import ENERGY
from gputop.sources.nvml.handle import Handle, MetricAnswers, reason

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

    __slots__ = ("_asked", "_measured", "_rates", "_wanted")

    def __init__(self, nvlink: bool) -> None:
        self._wanted: list[Any] = [_MEM_TEMP, _ENERGY, _PCIE_TX, _PCIE_RX]
        if nvlink:
            self._wanted += [(_NVLINK_TX, ALL_LINKS), (_NVLINK_RX, ALL_LINKS)]
        if _MMA_STALL is not None:
            self._wanted.append(_MMA_STALL)
        self._rates = {field: Rate() for field in _COUNTERS}
        self._measured: frozenset[str] | None = None
        self._asked: tuple[Any, ...] = ()
        """What is asked for while ``_measured`` is measured by better means."""

    def ask_into(
        self, handle: Handle, into: MetricAnswers, now: float, measured: frozenset[str], at: float | None = None
    ) -> None:
        """Ask for all fields whose keys are not ``measured`` by better means. Raises LostGpu.

        ``now`` is the time of the tick, ``at`` that of this question where other questions came between, monotonic s.
        """
        if measured != self._measured:
            self._measured = measured
            self._asked = tuple([f for f in self._wanted if _key(f) not in measured])
            for field, (key, _) in _COUNTERS.items():
                if key in measured:
                    self._rates[field].forget()
        wanted = self._asked
        if _MMA_STALL not in wanted:
            into.missing["mma_stall_pct"] = NO_MMA_STALL
        answer = handle.ask(("nvmlDeviceGetFieldValues",), (wanted,), now)
        if answer.__class__ is str:
            for field in wanted:
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
            # Asked once: whoever does not know it today does not tomorrow.
            into.missing[key] = NO_MMA_STALL
            self._wanted = [field for field in self._wanted if field != name]
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
