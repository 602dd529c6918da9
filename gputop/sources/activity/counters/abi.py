"""Binary interface of NVIDIA's performance libraries.

``libnvperf_host`` turns metric names into counters and values, ``libnvperf_target`` drives the GPU's periodic sampler.
Both come with the CUPTI wheel. Each call takes one structure that begins with its own size up to the end of its last
field, without the padding behind it: the libraries refuse any other. Layouts for x86-64 and arm64 (LP64).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from ctypes import (
    POINTER,
    c_char_p,
    c_double,
    c_int32,
    c_size_t,
    c_ubyte,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
)
from ctypes import c_void_p as pointer
from typing import Any

HOST_LIBRARY, TARGET_LIBRARY = "libnvperf_host.so", "libnvperf_target.so"
REALTIME_SAMPLED = 2
"""The kind of activity whose counters can be read while others use the GPU."""
CPU_TRIGGER = 1
"""A sample ends when this program says so, not by a clock of the GPU."""
KEEP_OLDEST, KEEP_LATEST = 0, 1
"""What a full record buffer drops."""
LINEAR = 0
"""The counter data image is filled once, from its beginning."""
SUPPORTED = 2
"""The least level of support that lets a GPU be sampled: 0 is unknown, 1 unsupported."""

SUCCESS, ERROR, UNSUPPORTED_GPU, DRIVER_NOT_LOADED = 0, 1, 14, 10
INSUFFICIENT_DRIVER, DENIED, BUSY, VIRTUALIZED, NOT_ALLOWED = 15, 17, 20, 24, 25


class NvperfError(Exception):
    """A failed call; ``status`` is None where the call does not exist."""

    def __init__(self, call: str, status: int | None) -> None:
        super().__init__(call, status)
        self.call, self.status = call, status

    def __str__(self) -> str:
        if self.status is None:
            return f"{self.call}: is not in this library"
        return f"{self.call}: NVPA_Status {self.status}"


_TYPES: dict[str, Any] = {
    "size_t": c_size_t, "int32_t": c_int32, "uint8_t": c_uint8, "uint16_t": c_uint16, "uint32_t": c_uint32,
    "uint64_t": c_uint64, "double": c_double, "void*": pointer, "char*": c_char_p,
}  # fmt: skip


def members(declaration: str) -> list[tuple[str, Any]]:
    """Return a structure's members from C: ``size_t count, uint32_t* domains``."""
    pairs = (member.split(" ") for member in declaration.split(", ") if member)
    return [(name, _TYPES.get(kind) or POINTER(_TYPES[kind[:-1]])) for kind, name in pairs]


class RawCounterRequest(ctypes.Structure):
    """A counter to collect; the library chooses domain 0.

    Its size in calls is ``REQUEST_SIZE``.
    """

    _fields_ = members("void* priv, char* name, uint32_t domain, uint8_t keep_instances")


class EvalRequest(ctypes.Structure):
    """A metric to evaluate, as encoded by the library.

    Its size in calls is ``EVAL_SIZE``.
    """

    _fields_ = members("size_t index, uint8_t kind, uint8_t rollup, uint16_t submetric")


class PciBusId(ctypes.Structure):
    """PCI address of a GPU."""

    _fields_ = members("uint32_t domain, uint16_t bus, uint16_t device")


class ImageOptions(ctypes.Structure):
    """Options of a counter data image; no private field."""

    _fields_ = members(
        "size_t structSize, void* prefix, size_t prefix_size, uint32_t max_samples, uint32_t append_mode"
    )


_TYPES |= {kind.__name__: kind for kind in (RawCounterRequest, EvalRequest, PciBusId, ImageOptions)}
REQUEST_SIZE, EVAL_SIZE, OPTIONS_SIZE = 21, 12, 32

Calls = Mapping[str, str]
HOST_CALLS: Calls = {
    "NVPW_InitializeHost": "",
    "NVPW_RawCounterConfig_GetSupportedChipNames": "char** names, size_t count",
    "NVPW_Device_MetricsEvaluator_CalculateScratchBufferSize": "char* chip, size_t size",
    "NVPW_Device_MetricsEvaluator_Initialize": (
        "void* scratch, size_t scratch_size, char* chip, void* image, size_t image_size, void* evaluator"
    ),
    "NVPW_MetricsEvaluator_Destroy": "void* evaluator",
    "NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest": (
        "void* evaluator, char* name, EvalRequest* request, size_t request_size"
    ),
    "NVPW_MetricsEvaluator_GetMetricRawDependencies": (
        "void* evaluator, EvalRequest* requests, size_t count, size_t request_size, size_t request_stride, "
        "char** names, size_t count_names, char** optional, size_t count_optional"
    ),
    "NVPW_MetricsEvaluator_SetDeviceAttributes": "void* evaluator, void* image, size_t image_size",
    "NVPW_MetricsEvaluator_EvaluateToGpuValues": (
        "void* evaluator, EvalRequest* requests, size_t count, size_t request_size, size_t request_stride, "
        "void* image, size_t image_size, size_t range, uint8_t isolated, double* values"
    ),
    "NVPW_Device_RawCounterConfig_Create": "char* chip, uint32_t kind, void* config",
    "NVPW_RawCounterConfig_Destroy": "void* config",
    "NVPW_RawCounterConfig_SetCounterAvailability": "void* config, void* image",
    "NVPW_RawCounterConfig_GetAllAvailableRawCounterDomains": "void* config, size_t count, uint32_t* domains",
    "NVPW_RawCounterConfig_BeginPassGroup": "void* config, size_t count, uint32_t* domains",
    "NVPW_RawCounterConfig_EndPassGroup": "void* config, size_t count, uint32_t* domains",
    "NVPW_RawCounterConfig_AddRawCounters": (
        "void* config, size_t request_size, size_t count, RawCounterRequest* requests"
    ),
    "NVPW_RawCounterConfig_GenerateConfigImage": "void* config",
    "NVPW_RawCounterConfig_GetConfigImage": "void* config, size_t allocated, void* buffer, size_t copied",
    "NVPW_RawCounterConfig_GetNumPasses": "void* config, size_t passes",
    "NVPW_CounterDataBuilder_Create": "void* builder, char* chip",
    "NVPW_CounterDataBuilder_Destroy": "void* builder",
    "NVPW_CounterDataBuilder_AddRawCounters": (
        "void* builder, size_t request_size, size_t count, RawCounterRequest* requests"
    ),
    "NVPW_CounterDataBuilder_GetCounterDataPrefix": "void* builder, size_t allocated, void* buffer, size_t copied",
}
"""The host library's calls: the members of each one's structure behind size and private pointer."""

TARGET_CALLS: Calls = {
    "NVPW_InitializeTarget": "",
    "NVPW_CUDA_LoadDriver": "",
    "NVPW_GetDeviceCount": "size_t count",
    "NVPW_Device_GetNames": "size_t device, char* name, char* chip",
    "NVPW_Device_GetPciBusIds": "PciBusId* ids, size_t count",
    "NVPW_GPU_PeriodicSampler_IsGpuSupported": (
        "size_t device, uint8_t supported, int32_t architecture, int32_t sli, int32_t vgpu, int32_t confidential, "
        "int32_t cmp, int32_t wsl, int32_t mig"
    ),
    "NVPW_GPU_PeriodicSampler_GetSupportedTriggerSources": "size_t device, uint32_t* sources, size_t count",
    "NVPW_GPU_PeriodicSampler_GetCounterAvailability": "size_t device, size_t size, void* image",
    "NVPW_GPU_PeriodicSampler_IsRecordBufferKeepLatestModeSupported": "size_t device, uint8_t supported",
    "NVPW_GPU_PeriodicSampler_CalculateRecordBufferSize": (
        "size_t device, void* config, size_t config_size, size_t max_undecoded, size_t size"
    ),
    "NVPW_GPU_PeriodicSampler_CounterDataImage_CalculateSize": "size_t device, ImageOptions* options, size_t size",
    "NVPW_GPU_PeriodicSampler_CounterDataImage_Initialize": (
        "size_t device, ImageOptions* options, void* image, size_t image_size"
    ),
    "NVPW_GPU_PeriodicSampler_BeginSession_V2": (
        "size_t device, size_t max_ranges, uint32_t* triggers, size_t trigger_count, uint64_t interval, "
        "size_t buffer_size, uint32_t append_mode"
    ),
    "NVPW_GPU_PeriodicSampler_EndSession": "size_t device",
    "NVPW_GPU_PeriodicSampler_SetConfig": "size_t device, void* config, size_t config_size, size_t pass_index",
    "NVPW_GPU_PeriodicSampler_StartSampling": "size_t device",
    "NVPW_GPU_PeriodicSampler_StopSampling": "size_t device",
    "NVPW_GPU_PeriodicSampler_CpuTrigger": "size_t device",
    "NVPW_GPU_PeriodicSampler_GetRecordBufferStatus_V2": (
        "size_t device, uint8_t ask_unread, uint8_t ask_overflow, uint8_t ask_write, uint8_t ask_read, size_t total, "
        "size_t unread, uint8_t overflow, size_t write, size_t read"
    ),
    "NVPW_GPU_PeriodicSampler_DecodeCounters_V3": (
        "size_t device, void* image, size_t image_size, size_t bytes_to_read, uint64_t start, uint64_t end, "
        "uint32_t stop_reason, size_t merged, size_t consumed"
    ),
    "NVPW_GPU_PeriodicSampler_AcknowledgeRecordBuffer": "size_t device, size_t bytes",
    "NVPW_PeriodicSampler_CounterData_GetInfo": (
        "void* image, size_t image_size, size_t total, size_t populated, size_t completed"
    ),
    "NVPW_PeriodicSampler_CounterData_GetSampleTime": "void* image, size_t range, uint64_t start, uint64_t end",
}
"""The target library's calls, as ``HOST_CALLS``."""


def structure(name: str, declaration: str) -> tuple[type[ctypes.Structure], int]:
    """Return the structure of one call, and its size up to the end of its last field."""
    fields = [("structSize", c_size_t), ("priv", pointer), *members(declaration)]
    made = type(f"{name}_Params", (ctypes.Structure,), {"_fields_": fields})
    last = getattr(made, fields[-1][0])
    return made, last.offset + last.size


class Library:
    """A loaded library; ``call(name, **fields)`` returns the filled structure."""

    def __init__(self, path: str, calls: Calls) -> None:
        """Raises OSError without a library, NvperfError for a missing call.

        DCGM ships a stub without calls.
        """
        # Local and bound at once: nothing of it may be found under the same name by other libraries.
        self._library = ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL | os.RTLD_NOW)
        self._calls: dict[str, tuple[Any, type[ctypes.Structure], int]] = {}
        for name, declaration in calls.items():
            function = getattr(self._library, name, None)
            if function is None:
                raise NvperfError(name, None)
            function.restype = c_int32
            self._calls[name] = function, *structure(name, declaration)

    def call(self, name: str, /, **fields: Any) -> Any:
        """Call a function. Raises NvperfError for any status but success."""
        function, made, size = self._calls[name]
        parameters = made(structSize=size, **fields)
        status = function(ctypes.byref(parameters))
        if status != SUCCESS:
            raise NvperfError(name, status)
        return parameters

    def prefixed(self, prefix: str, **fixed: Any) -> Callable[..., Any]:
        """Return ``call`` with a name prefix and fixed fields."""

        def call(name: str, /, **fields: Any) -> Any:
            return self.call(prefix + name, **fixed, **fields)

        return call


def aligned(size: int) -> Any:
    """Return a zeroed buffer of at least ``size`` bytes, aligned to 8."""
    return (c_uint64 * max(1, (size + 7) // 8))()


def filled(data: bytes) -> Any:
    """Return an aligned buffer that begins with ``data``."""
    buffer = aligned(len(data))
    ctypes.memmove(buffer, data, len(data))
    return buffer


def as_pointer(buffer: Any) -> pointer:
    return ctypes.cast(buffer, pointer)


def bytes_of(buffer: Any, size: int) -> bytes:
    """Copy the buffer's first ``size`` bytes."""
    return bytes((c_ubyte * size).from_buffer(buffer))
