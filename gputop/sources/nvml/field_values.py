"""Asks for the values that NVML gives as fields: memory temperature and byte counters."""

from __future__ import annotations

from typing import Any

import pynvml
from msgspec import Struct

from gputop.sources.nvml.handle import Handle, MetricAnswers
from gputop.sources.nvml.nvml_errors import reason


class _Field(Struct, frozen=True):
    """Key of a field and the size of its unit; counters become rates."""

    key: str
    times: int = 1
    counts: bool = False


ALL_LINKS = 0xFFFFFFFF
"""Scope of an NVLink field: the sum over all links."""
KIB = 1024
NO_MMA_STALL = "this driver or GPU does not tell it"
_MMA_STALL: int = getattr(pynvml, "NVML_FI_DEV_MMA_STALL_PERCENT", -1)
"""Known to nvidia-ml-py from 13.615 on, and to few drivers."""
_NVLINK = (
    pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
    pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
)
_FIELDS = {
    pynvml.NVML_FI_DEV_MEMORY_TEMP: _Field("mem_temp_c"),
    pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES: _Field("pcie_tx_bytes_per_s", counts=True),
    pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES: _Field("pcie_rx_bytes_per_s", counts=True),
    _NVLINK[0]: _Field("nvlink_tx_bytes_per_s", times=KIB, counts=True),
    _NVLINK[1]: _Field("nvlink_rx_bytes_per_s", times=KIB, counts=True),
    _MMA_STALL: _Field("mma_stall_pct"),
}
_READ_AS = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}


def value_of(field: Any) -> Any:
    """Return the value of an nvmlFieldValue by its own type, if any."""
    if field.nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    return getattr(field.value, _READ_AS.get(field.valueType, ""), None)


class Rate:
    """Turns a byte counter into bytes per second."""

    __slots__ = ("_at", "_count")

    def __init__(self) -> None:
        self._count: int | None = None
        self._at = 0.0

    def feed(self, count: int, now: float) -> float | str:
        """Return bytes per second since the last count, or a reason."""
        before, at = self._count, self._at
        self._count, self._at = count, now
        if before is None or now <= at:
            return "collecting: needs two reads"
        if count < before:
            return "the counter started again"
        return (count - before) / (now - at)

    def forget(self) -> None:
        """Start again after a pause."""
        self._count = None


class FieldValues:
    """Values that NVML gives as fields, asked in one call a tick."""

    __slots__ = ("_asked", "_measured", "_rates", "_usable")

    def __init__(self, nvlink: bool) -> None:
        self._usable = {
            name: (name, ALL_LINKS) if name in _NVLINK else name for name in _FIELDS if name >= 0
        }
        if not nvlink:
            for name in _NVLINK:
                del self._usable[name]
        self._rates = {name: Rate() for name, field in _FIELDS.items() if field.counts}
        self._measured: frozenset[str] | None = None
        self._asked: dict[int, Any] = {}
        """What is asked for while ``_measured`` is measured by better means."""

    def ask_into(
        self,
        handle: Handle,
        into: MetricAnswers,
        now: float,
        measured: frozenset[str],
        at: float | None = None,
    ) -> None:
        """Ask for all fields that are not ``measured`` by better means.

        ``now`` is the time of the tick, ``at`` the time of this question if others came between, monotonic s.
        Raises LostGpu.
        """
        if measured != self._measured:
            self._measured = measured
            self._asked = {
                name: asked
                for name, asked in self._usable.items()
                if _FIELDS[name].key not in measured
            }
            for name, rate in self._rates.items():
                if name not in self._asked:
                    rate.forget()
        if _MMA_STALL not in self._asked:
            into.missing["mma_stall_pct"] = NO_MMA_STALL
        answer = handle.ask(("nvmlDeviceGetFieldValues",), (tuple(self._asked.values()),), now)
        if answer.__class__ is str:
            for name in self._asked:
                into.missing.setdefault(_FIELDS[name].key, answer)
            return
        for field in answer:
            self._keep(field, into, now if at is None else at)

    def _keep(self, answer: Any, into: MetricAnswers, now: float) -> None:
        name, value = answer.fieldId, value_of(answer)
        field = _FIELDS[name]
        if value is None and name == _MMA_STALL:
            # Asked once: a driver that does not know it today does not tomorrow.
            into.missing[field.key] = NO_MMA_STALL
            self._usable.pop(name, None)
            self._measured = None
        elif value is None:
            into.missing[field.key] = reason(answer.nvmlReturn or pynvml.NVML_ERROR_NOT_SUPPORTED)
        elif field.counts:
            rate = self._rates[name].feed(value * field.times, now)
            if isinstance(rate, str):
                into.missing[field.key] = rate
            else:
                into.put(field.key, rate)
        else:
            into.put(field.key, value)
