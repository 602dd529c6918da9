"""Reads the constant facts of a GPU or MIG device."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pynvml
from msgspec.structs import replace

from gputop.model.clean_text import clean_text
from gputop.model.snapshot import GpuStatic
from gputop.sources.nvml.field_values import value_of
from gputop.sources.nvml.handle import Handle

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
_CORES_PER_SM_EXACT = {
    (6, 0): 64,
    (6, 1): 128,
    (6, 2): 128,
    (8, 0): 64,
    (8, 6): 128,
    (8, 7): 128,
    (8, 9): 128,
}
"""FP32 cores of one SM by compute capability (CUDA C++ Programming Guide, arithmetic instruction throughput)."""

_LINK_COUNT = pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT
_LINK_SPEED = pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON
_LINK_SPEEDS = (84, 85, 86, 87, 88, 89, 132, 133, 134, 135, 136, 137)
"""Fields NVML_FI_DEV_NVLINK_SPEED_MBPS_L0 to L11, in megabytes per second."""
_EMPTY_SLOT_CODES = frozenset({pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT})
COMPUTE_MODES: Mapping[int | None, str] = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: "default",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "exclusive thread",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive process",
}
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
    persistence = handle.number("nvmlDeviceGetPersistenceMode")
    return replace(
        static,
        sm_count=_sm_count(handle),
        pci_bus_id=_pci(handle),
        serial=handle.text("nvmlDeviceGetSerial"),
        persistence=None if persistence is None else bool(persistence),
        compute_mode=COMPUTE_MODES.get(handle.number("nvmlDeviceGetComputeMode")),
        cuda=_cuda(handle),
    )


def mig_facts(handle: Handle, index: int, uuid: str, parent: GpuStatic) -> GpuStatic:
    """Return the facts of one MIG device by its own handle."""
    sm_count: int | None = None
    with suppress(pynvml.NVMLError):
        sm_count = int(handle.run("nvmlDeviceGetAttributes_v2").multiprocessorCount) or None
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


def _cuda(handle: Handle) -> str | None:
    """Return the highest CUDA version of the driver."""
    try:
        version = int(handle.run_bare("nvmlSystemGetCudaDriverVersion"))
    except pynvml.NVMLError:
        return None
    # 12080 is 12.8 (nvml.h, NVML_CUDA_DRIVER_VERSION_MAJOR).
    return f"{version // 1000}.{version % 1000 // 10}"


def _pci(handle: Handle) -> str | None:
    try:
        bus_id: Any = handle.run("nvmlDeviceGetPciInfo").busId
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None
    return (
        clean_text(
            bus_id.decode(errors="replace") if isinstance(bus_id, bytes) else str(bus_id)
        ).strip()
        or None
    )


def _mig_enabled(handle: Handle) -> bool:
    with suppress(pynvml.NVMLError):
        return bool(handle.run("nvmlDeviceGetMigMode")[0])
    return False


def _nvlink_peak(handle: Handle) -> float | None:
    """Return bytes per second over all links, one way; None without NVLink."""
    try:
        count, speed, *link_speeds = handle.run(
            "nvmlDeviceGetFieldValues", (_LINK_COUNT, _LINK_SPEED, *_LINK_SPEEDS)
        )
    except pynvml.NVMLError:
        return None
    if count.nvmlReturn == speed.nvmlReturn == pynvml.NVML_SUCCESS:
        total = (value_of(count) or 0) * (value_of(speed) or 0)
    else:
        total = sum(value_of(link) or 0 for link in link_speeds)
    return total * 1e6 or None
