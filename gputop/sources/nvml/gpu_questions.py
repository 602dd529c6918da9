"""Questions to a GPU, and their answers as catalogue values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml
from msgspec import Struct
from msgspec.structs import replace

from gputop.model.quantity import clean_text
from gputop.model.snapshot import GpuStatic
from gputop.sources.nvml.handle import NO_VALUE, Handle, MetricAnswers, reason

# The values that each have a call of their own.


def _as_is(value: Any) -> tuple[Any, ...]:
    return (value,)


def _first(answer: Any) -> tuple[Any, ...]:
    return (answer[0],)


def _thousandth(value: int) -> tuple[Any, ...]:
    return (value / 1000 if value != NO_VALUE else value,)


def _memory(memory: Any) -> tuple[Any, ...]:
    return float(memory.used), float(memory.total)


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

    def ask_into(self, handle: Handle, into: MetricAnswers, now: float) -> bool:
        """Ask and keep the answer; False without one. Raises LostGpu."""
        answer = handle.ask(self.names, self.arguments, now, self.core)
        if answer.__class__ is str:
            into.miss(self.keys, answer)
            return False
        for key, value in zip(self.keys, self.convert(answer), strict=True):
            into.put(key, value)
        return True


def _one(key: str, name: str, *arguments: Any, as_: Callable[[Any], tuple[Any, ...]] = _as_is) -> Question:
    """A value with one call."""
    return Question((key,), (name,), arguments, as_)


MEMORY_V1 = Question(("mem_used_bytes", "mem_total_bytes"), ("nvmlDeviceGetMemoryInfo",), convert=_memory, core=True)
"""Of drivers before R510: ``used`` then holds the driver's reserve as well."""
MEMORY_V2 = replace(MEMORY_V1, arguments=(pynvml.nvmlMemory_v2,))

POWER_LIMIT = _one("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", as_=_thousandth)
SM_CLOCK_MAX = _one("sm_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_SM)

EVERY_TICK = (
    Question(
        ("util_pct", "mem_util_pct"),
        ("nvmlDeviceGetUtilizationRates",),
        convert=lambda rates: (rates.gpu, rates.memory),
        core=True,
    ),
    Question(("power_w",), ("nvmlDeviceGetPowerUsage",), convert=_thousandth, core=True),
    Question(
        ("temp_c",),
        ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"),
        (pynvml.NVML_TEMPERATURE_GPU,),
        core=True,
    ),
    Question(("sm_clock_mhz",), ("nvmlDeviceGetClockInfo",), (pynvml.NVML_CLOCK_SM,), core=True),
    _one("mem_clock_mhz", "nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM),
    Question(
        ("throttle_reasons",),
        ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
    ),
)

FIXED = (
    SM_CLOCK_MAX,
    _one("mem_temp_max_c", "nvmlDeviceGetTemperatureThreshold", pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX),
    _one("temp_slowdown_c", "nvmlDeviceGetTemperatureThreshold", pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
    _one("pcie_gen_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    _one("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
)
"""What a GPU's slot allows: constant while it stays there, and asked once a minute all the same."""

_UNCORRECTED, _CORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED
SELDOM = (
    POWER_LIMIT,
    # It takes an H200's driver 2.6 ms, a thousand times as long as its power.
    _one("energy_j", "nvmlDeviceGetTotalEnergyConsumption", as_=lambda mj: (mj / 1000,)),
    _one("pstate", "nvmlDeviceGetPerformanceState"),
    _one("fan_pct", "nvmlDeviceGetFanSpeed"),
    _one("encoder_pct", "nvmlDeviceGetEncoderUtilization", as_=_first),
    _one("decoder_pct", "nvmlDeviceGetDecoderUtilization", as_=_first),
    _one("pcie_gen", "nvmlDeviceGetCurrPcieLinkGeneration"),
    _one("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
    _one("ecc_uncorrected_volatile", "nvmlDeviceGetTotalEccErrors", _UNCORRECTED, pynvml.NVML_VOLATILE_ECC),
    _one("ecc_corrected_volatile", "nvmlDeviceGetTotalEccErrors", _CORRECTED, pynvml.NVML_VOLATILE_ECC),
    _one("ecc_uncorrected", "nvmlDeviceGetTotalEccErrors", _UNCORRECTED, pynvml.NVML_AGGREGATE_ECC),
    _one("ecc_corrected", "nvmlDeviceGetTotalEccErrors", _CORRECTED, pynvml.NVML_AGGREGATE_ECC),
    Question(
        ("remap_pending", "remap_failed"),
        ("nvmlDeviceGetRemappedRows",),
        convert=lambda rows: (bool(rows[2]), bool(rows[3])),
    ),
)

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
    if not MEMORY_V1.ask_into(handle, into, now) and refused == reason(pynvml.NVML_ERROR_NOT_SUPPORTED):
        into.miss(MEMORY_V1.keys, NO_MEMORY)
        return False
    return True


class Seldom:
    """One GPU's answers that need not be new in each sample."""

    __slots__ = ("_fixed", "_fixed_due_at", "answers", "due_at")

    def __init__(self) -> None:
        self.answers = MetricAnswers()
        self.due_at = float("-inf")
        """When it is worth asking again, monotonic s."""
        self._fixed = MetricAnswers()
        self._fixed_due_at = float("-inf")

    def ask(self, handle: Handle, now: float, turn: int) -> None:
        """Ask all that is due.

        GPUs take turns, so that their slow questions do not all fall into one tick. Raises LostGpu.
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


# The values that NVML gives as fields: memory temperature and byte counters, in one call a tick.


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
_NVLINK = (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX)
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


def _value_of(field: Any) -> Any:
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
        self._usable = {name: (name, ALL_LINKS) if name in _NVLINK else name for name in _FIELDS if name >= 0}
        if not nvlink:
            for name in _NVLINK:
                del self._usable[name]
        self._rates = {name: Rate() for name, field in _FIELDS.items() if field.counts}
        self._measured: frozenset[str] | None = None
        self._asked: dict[int, Any] = {}
        """What is asked for while ``_measured`` is measured by better means."""

    def ask_into(
        self, handle: Handle, into: MetricAnswers, now: float, measured: frozenset[str], at: float | None = None
    ) -> None:
        """Ask for all fields that are not ``measured`` by better means.

        ``now`` is the time of the tick, ``at`` the time of this question if others came between, monotonic s.
        Raises LostGpu.
        """
        if measured != self._measured:
            self._measured = measured
            self._asked = {name: asked for name, asked in self._usable.items() if _FIELDS[name].key not in measured}
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
        name, value = answer.fieldId, _value_of(answer)
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


# The facts of one GPU that do not change, asked once when it is found.

ARCHITECTURES = {
    pynvml.NVML_DEVICE_ARCH_KEPLER: "kepler",
    pynvml.NVML_DEVICE_ARCH_MAXWELL: "maxwell",
    pynvml.NVML_DEVICE_ARCH_PASCAL: "pascal",
    pynvml.NVML_DEVICE_ARCH_VOLTA: "volta",
    pynvml.NVML_DEVICE_ARCH_TURING: "turing",
    pynvml.NVML_DEVICE_ARCH_AMPERE: "ampere",
    pynvml.NVML_DEVICE_ARCH_ADA: "ada",
    pynvml.NVML_DEVICE_ARCH_HOPPER: "hopper",
    10: "blackwell",
    13: "rubin",
}

_CORES_PER_SM = {3: 192, 5: 128, 7: 64, 9: 128, 10: 128, 11: 128, 12: 128}
_CORES_PER_SM_EXACT = {(6, 0): 64, (6, 1): 128, (6, 2): 128, (8, 0): 64, (8, 6): 128, (8, 7): 128, (8, 9): 128}
"""FP32 cores of one SM by compute capability (CUDA C++ Programming Guide, arithmetic instruction throughput)."""

_LINK_COUNT = pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT
_LINK_SPEED = pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON
_LINK_SPEEDS = (84, 85, 86, 87, 88, 89, 132, 133, 134, 135, 136, 137)
"""Fields NVML_FI_DEV_NVLINK_SPEED_MBPS_L0 to L11, in megabytes per second."""
_EMPTY_SLOT_CODES = frozenset({pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT})
VGPU_GUEST = 2
"""NVML_GPU_VIRTUALIZATION_MODE_VGPU: a vGPU seen from inside its virtual machine."""


def facts(handle: Handle, index: int, uuid: str, driver: str | None) -> GpuStatic:
    """Return the facts of a whole GPU that its first picture needs.

    Facts unknown to the driver are None.
    """
    return GpuStatic(
        index=index,
        uuid=uuid,
        name=handle.text("nvmlDeviceGetName") or "unnamed GPU",
        architecture=ARCHITECTURES.get(handle.number("nvmlDeviceGetArchitecture") or 0),
        driver=driver,
        nvlink_peak_bytes_per_s=_nvlink_peak(handle),
        mig_enabled=_mig_enabled(handle),
    )


def more_facts(handle: Handle, static: GpuStatic) -> GpuStatic:
    """Add the other facts of a whole GPU."""
    return replace(static, sm_count=_sm_count(handle), pci_bus_id=_pci(handle))


def mig_facts(handle: Handle, index: int, uuid: str, parent: GpuStatic) -> GpuStatic:
    """Return the facts of one MIG device by its own handle."""
    try:
        sm_count = int(handle.run("nvmlDeviceGetAttributes_v2").multiprocessorCount) or None
    except pynvml.NVMLError:
        sm_count = None
    return GpuStatic(
        index=index,
        uuid=uuid,
        name=handle.text("nvmlDeviceGetName") or f"{parent.name} MIG",
        architecture=parent.architecture,
        sm_count=sm_count,
        pci_bus_id=parent.pci_bus_id,
        driver=parent.driver,
        mig_enabled=True,
        mig_parent=parent.uuid,
        mig_instance=f"{gpu_instance(handle)}/{handle.number('nvmlDeviceGetComputeInstanceId')}",
    )


def mig_slots(handle: Handle) -> dict[str, int]:
    """Return slots of a split GPU's MIG devices by UUID.

    Raises NVMLError, and UnicodeDecodeError for a broken UUID.
    """
    slots: dict[str, int] = {}
    for slot in range(handle.run("nvmlDeviceGetMaxMigDeviceCount")):
        try:
            raw = handle.run("nvmlDeviceGetMigDeviceHandleByIndex", slot)
        except pynvml.NVMLError as error:
            if error.value in _EMPTY_SLOT_CODES:
                continue
            raise
        slots[clean_text(str(handle.run_bare("nvmlDeviceGetUUID", raw))).strip()] = slot
    return slots


def gpu_instance(handle: Handle) -> int | None:
    """Return the id of the GPU instance of a MIG device."""
    return handle.number("nvmlDeviceGetGpuInstanceId")


def is_vgpu(handle: Handle) -> bool:
    """Whether this is a virtual GPU, whose counters need not be its own."""
    return handle.number("nvmlDeviceGetVirtualizationMode") == VGPU_GUEST


def _sm_count(handle: Handle) -> int | None:
    """Return the SMs of a whole GPU: cores / cores per SM.

    The driver gives the number itself for MIG devices only.
    """
    cores = handle.number("nvmlDeviceGetNumGpuCores")
    try:
        major, minor = handle.run("nvmlDeviceGetCudaComputeCapability")
    except pynvml.NVMLError:
        return None
    per_sm = _CORES_PER_SM_EXACT.get((major, minor)) or _CORES_PER_SM.get(major)
    if not cores or per_sm is None or cores % per_sm:
        return None
    return cores // per_sm


def _pci(handle: Handle) -> str | None:
    try:
        bus_id: Any = handle.run("nvmlDeviceGetPciInfo").busId
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None
    return clean_text(bus_id.decode(errors="replace") if isinstance(bus_id, bytes) else str(bus_id)).strip() or None


def _mig_enabled(handle: Handle) -> bool | None:
    try:
        return bool(handle.run("nvmlDeviceGetMigMode")[0])
    except pynvml.NVMLError:
        return False


def _nvlink_peak(handle: Handle) -> float | None:
    """Return bytes per second over all links, one way; None without NVLink."""
    try:
        count, speed, *link_speeds = handle.run("nvmlDeviceGetFieldValues", (_LINK_COUNT, _LINK_SPEED, *_LINK_SPEEDS))
    except pynvml.NVMLError:
        return None
    if count.nvmlReturn == speed.nvmlReturn == pynvml.NVML_SUCCESS:
        total = (_value_of(count) or 0) * (_value_of(speed) or 0)
    else:
        total = sum(_value_of(link) or 0 for link in link_speeds)
    return total * 1e6 or None
