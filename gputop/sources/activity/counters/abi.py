"""The binary interface of NVIDIA's performance libraries: the calls that the counters need, and nothing else.

``libnvperf_host`` turns metric names into counters and values, ``libnvperf_target`` drives the GPU's periodic sampler.
Both come with the CUPTI wheel. Each call takes one structure that begins with its own size up to the end of its last
field, without the padding behind it: the libraries refuse any other. Layouts for x86-64 and arm64 (LP64).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from ctypes import POINTER, c_char_p, c_double, c_int32, c_size_t, c_ubyte, c_uint8, c_uint16, c_uint32, c_uint64
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

SUCCESS, ERROR, UNSUPPORTED_GPU, OUT_OF_MEMORY, DRIVER_NOT_LOADED = 0, 1, 14, 11, 10
INSUFFICIENT_DRIVER, DENIED, BUSY, VIRTUALIZED, NOT_ALLOWED = 15, 17, 20, 24, 25
STATUS: Mapping[int, str] = {
    1: "error", 2: "internal error", 3: "not initialized", 4: "not loaded", 5: "function not found",
    6: "not supported", 7: "not implemented", 8: "invalid argument", 9: "invalid metric", 10: "driver not loaded",
    11: "out of memory", 12: "invalid thread state", 13: "context allocation failed", 14: "unsupported GPU",
    15: "driver too old", 16: "object not registered", 17: "insufficient privilege", 18: "invalid context state",
    19: "invalid object state", 20: "resource unavailable", 21: "driver loaded too late", 22: "insufficient space",
    23: "object mismatch", 24: "virtualized device not supported", 25: "profiling not allowed",
}  # fmt: skip
"""The libraries' answers in words (NVPA_Status)."""


class NvperfError(Exception):
    """A call that did not succeed. ``status`` is the library's answer, None where the call does not exist."""

    def __init__(self, call: str, status: int | None) -> None:
        status_text = (
            "is not in this library" if status is None else f"{STATUS.get(status, 'unknown status')} ({status})"
        )
        super().__init__(f"{call}: {status_text}")
        self.call, self.status = call, status

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle and copy would call the constructor with the finished words alone.
        return type(self), (self.call, self.status)


class RawCounterRequest(ctypes.Structure):
    """A counter to be collected; domain 0 lets the library choose. Its size in calls is ``REQUEST_SIZE``."""

    _fields_ = (("priv", pointer), ("name", c_char_p), ("domain", c_uint32), ("keep_instances", c_uint8))


class EvalRequest(ctypes.Structure):
    """A metric to be evaluated, as the library has encoded its name. Its size in calls is ``EVAL_SIZE``."""

    _fields_ = (("index", c_size_t), ("kind", c_uint8), ("rollup", c_uint8), ("submetric", c_uint16))


class PciBusId(ctypes.Structure):
    """Where a GPU is plugged in."""

    _fields_ = (("domain", c_uint32), ("bus", c_uint16), ("device", c_uint16))


class ImageOptions(ctypes.Structure):
    """What a counter data image is to hold; begins with its own size, but has no private field."""

    _fields_ = (
        ("structSize", c_size_t),
        ("prefix", pointer),
        ("prefix_size", c_size_t),
        ("max_samples", c_uint32),
        ("append_mode", c_uint32),
    )


REQUEST_SIZE, EVAL_SIZE, OPTIONS_SIZE = 21, 12, 32

_DEVICE = (("device", c_size_t),)
_EVALUATOR = (("evaluator", pointer),)
_CONFIG = (("config", pointer),)
_IMAGE_BYTES = (("image", pointer), ("image_size", c_size_t))
_COPIED = (("allocated", c_size_t), ("buffer", pointer), ("copied", c_size_t))
_REQUESTS = (
    ("request_size", c_size_t),
    ("count", c_size_t),
    ("requests", POINTER(RawCounterRequest)),
)
_EVALUATE = (
    ("requests", POINTER(EvalRequest)),
    ("count", c_size_t),
    ("request_size", c_size_t),
    ("request_stride", c_size_t),
)
_DOMAINS = (("count", c_size_t), ("domains", POINTER(c_uint32)))

HOST_CALLS: Mapping[str, tuple[int, tuple[tuple[str, Any], ...]]] = {
    "NVPW_InitializeHost": (16, ()),
    "NVPW_RawCounterConfig_GetSupportedChipNames": (32, (("names", POINTER(c_char_p)), ("count", c_size_t))),
    "NVPW_Device_MetricsEvaluator_CalculateScratchBufferSize": (32, (("chip", c_char_p), ("size", c_size_t))),
    "NVPW_Device_MetricsEvaluator_Initialize": (
        64,
        (("scratch", pointer), ("scratch_size", c_size_t), ("chip", c_char_p), *_IMAGE_BYTES, *_EVALUATOR),
    ),
    "NVPW_MetricsEvaluator_Destroy": (24, _EVALUATOR),
    "NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest": (
        48,
        (*_EVALUATOR, ("name", c_char_p), ("request", POINTER(EvalRequest)), ("request_size", c_size_t)),
    ),
    "NVPW_MetricsEvaluator_GetMetricRawDependencies": (
        88,
        (
            *_EVALUATOR, *_EVALUATE,
            ("names", POINTER(c_char_p)), ("count_names", c_size_t),
            ("optional", POINTER(c_char_p)), ("count_optional", c_size_t),
        ),
    ),
    "NVPW_MetricsEvaluator_SetDeviceAttributes": (40, (*_EVALUATOR, *_IMAGE_BYTES)),
    "NVPW_MetricsEvaluator_EvaluateToGpuValues": (
        96,
        (
            *_EVALUATOR, *_EVALUATE, *_IMAGE_BYTES,
            ("range", c_size_t), ("isolated", c_uint8), ("values", POINTER(c_double)),
        ),
    ),
    "NVPW_Device_RawCounterConfig_Create": (40, (("chip", c_char_p), ("kind", c_uint32), *_CONFIG)),
    "NVPW_RawCounterConfig_Destroy": (24, _CONFIG),
    "NVPW_RawCounterConfig_SetCounterAvailability": (32, (*_CONFIG, ("image", pointer))),
    "NVPW_RawCounterConfig_GetAllAvailableRawCounterDomains": (40, (*_CONFIG, *_DOMAINS)),
    "NVPW_RawCounterConfig_BeginPassGroup": (40, (*_CONFIG, *_DOMAINS)),
    "NVPW_RawCounterConfig_EndPassGroup": (40, (*_CONFIG, *_DOMAINS)),
    "NVPW_RawCounterConfig_AddRawCounters": (48, (*_CONFIG, *_REQUESTS)),
    "NVPW_RawCounterConfig_GenerateConfigImage": (24, _CONFIG),
    "NVPW_RawCounterConfig_GetConfigImage": (48, (*_CONFIG, *_COPIED)),
    "NVPW_RawCounterConfig_GetNumPasses": (32, (*_CONFIG, ("passes", c_size_t))),
    "NVPW_CounterDataBuilder_Create": (32, (("builder", pointer), ("chip", c_char_p))),
    "NVPW_CounterDataBuilder_Destroy": (24, (("builder", pointer),)),
    "NVPW_CounterDataBuilder_AddRawCounters": (48, (("builder", pointer), *_REQUESTS)),
    "NVPW_CounterDataBuilder_GetCounterDataPrefix": (48, (("builder", pointer), *_COPIED)),
}  # fmt: skip
"""The host library's calls: the size that each structure names, and its fields behind size and private pointer."""

TARGET_CALLS: Mapping[str, tuple[int, tuple[tuple[str, Any], ...]]] = {
    "NVPW_InitializeTarget": (16, ()),
    "NVPW_CUDA_LoadDriver": (16, ()),
    "NVPW_GetDeviceCount": (24, (("count", c_size_t),)),
    "NVPW_Device_GetNames": (40, (*_DEVICE, ("name", c_char_p), ("chip", c_char_p))),
    "NVPW_Device_GetPciBusIds": (32, (("ids", POINTER(PciBusId)), ("count", c_size_t))),
    "NVPW_GPU_PeriodicSampler_IsGpuSupported": (
        56,
        (
            *_DEVICE, ("supported", c_uint8), ("architecture", c_int32), ("sli", c_int32), ("vgpu", c_int32),
            ("confidential", c_int32), ("cmp", c_int32), ("wsl", c_int32), ("mig", c_int32),
        ),
    ),
    "NVPW_GPU_PeriodicSampler_GetSupportedTriggerSources": (
        40,
        (*_DEVICE, ("sources", POINTER(c_uint32)), ("count", c_size_t)),
    ),
    "NVPW_GPU_PeriodicSampler_GetCounterAvailability": (40, (*_DEVICE, ("size", c_size_t), ("image", pointer))),
    "NVPW_GPU_PeriodicSampler_IsRecordBufferKeepLatestModeSupported": (25, (*_DEVICE, ("supported", c_uint8))),
    "NVPW_GPU_PeriodicSampler_CalculateRecordBufferSize": (
        56,
        (
            *_DEVICE, ("config", pointer), ("config_size", c_size_t), ("max_undecoded", c_size_t),
            ("size", c_size_t),
        ),
    ),
    "NVPW_GPU_PeriodicSampler_CounterDataImage_CalculateSize": (
        40,
        (*_DEVICE, ("options", POINTER(ImageOptions)), ("size", c_size_t)),
    ),
    "NVPW_GPU_PeriodicSampler_CounterDataImage_Initialize": (
        48,
        (*_DEVICE, ("options", POINTER(ImageOptions)), *_IMAGE_BYTES),
    ),
    "NVPW_GPU_PeriodicSampler_BeginSession_V2": (
        68,
        (
            *_DEVICE, ("max_ranges", c_size_t), ("triggers", POINTER(c_uint32)), ("trigger_count", c_size_t),
            ("interval", c_uint64), ("buffer_size", c_size_t), ("append_mode", c_uint32),
        ),
    ),
    "NVPW_GPU_PeriodicSampler_EndSession": (24, _DEVICE),
    "NVPW_GPU_PeriodicSampler_SetConfig": (
        48,
        (*_DEVICE, ("config", pointer), ("config_size", c_size_t), ("pass_index", c_size_t)),
    ),
    "NVPW_GPU_PeriodicSampler_StartSampling": (24, _DEVICE),
    "NVPW_GPU_PeriodicSampler_StopSampling": (24, _DEVICE),
    "NVPW_GPU_PeriodicSampler_CpuTrigger": (24, _DEVICE),
    "NVPW_GPU_PeriodicSampler_GetRecordBufferStatus_V2": (
        72,
        (
            *_DEVICE, ("ask_unread", c_uint8), ("ask_overflow", c_uint8), ("ask_write", c_uint8),
            ("ask_read", c_uint8), ("total", c_size_t), ("unread", c_size_t), ("overflow", c_uint8),
            ("write", c_size_t), ("read", c_size_t),
        ),
    ),
    "NVPW_GPU_PeriodicSampler_DecodeCounters_V3": (
        88,
        (
            *_DEVICE, *_IMAGE_BYTES, ("bytes_to_read", c_size_t), ("start", c_uint64), ("end", c_uint64),
            ("stop_reason", c_uint32), ("merged", c_size_t), ("consumed", c_size_t),
        ),
    ),
    "NVPW_GPU_PeriodicSampler_AcknowledgeRecordBuffer": (32, (*_DEVICE, ("bytes", c_size_t))),
    "NVPW_PeriodicSampler_CounterData_GetInfo": (
        56,
        (*_IMAGE_BYTES, ("total", c_size_t), ("populated", c_size_t), ("completed", c_size_t)),
    ),
    "NVPW_PeriodicSampler_CounterData_GetSampleTime": (
        48,
        (("image", pointer), ("range", c_size_t), ("start", c_uint64), ("end", c_uint64)),
    ),
}  # fmt: skip
"""The target library's calls, as ``HOST_CALLS``."""


def structure(name: str, size: int, fields: tuple[tuple[str, Any], ...]) -> type[ctypes.Structure]:
    """The structure of one call. Raises TypeError where this machine lays it out otherwise than the library expects."""
    members = (("structSize", c_size_t), ("priv", pointer), *fields)
    made = type(f"{name}_Params", (ctypes.Structure,), {"_fields_": members})
    last: str = members[-1][0]
    end = getattr(made, last).offset + getattr(made, last).size
    if end != size:
        raise TypeError(f"{name}: {end} bytes on this machine, where the library takes {size}")
    return made


class Library:
    """One loaded library: ``call(name, **fields)`` fills a structure, calls, and gives it back with the answers."""

    def __init__(self, path: str, calls: Mapping[str, tuple[int, tuple[tuple[str, Any], ...]]]) -> None:
        """Raises OSError where there is none, NvperfError where it lacks a call (DCGM ships such a stub)."""
        # Local and bound at once: nothing of it may be found under the same name by other libraries.
        self._library = ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL | os.RTLD_NOW)
        self._calls: dict[str, tuple[Any, type[ctypes.Structure], int]] = {}
        for name, (size, fields) in calls.items():
            function = getattr(self._library, name, None)
            if function is None:
                raise NvperfError(name, None)
            function.restype = c_int32
            self._calls[name] = function, structure(name, size, fields), size

    def call(self, name: str, /, **fields: Any) -> Any:
        """Raises NvperfError for every status but success."""
        function, made, size = self._calls[name]
        parameters = made(structSize=size, **fields)
        status = function(ctypes.byref(parameters))
        if status != SUCCESS:
            raise NvperfError(name, status)
        return parameters

    def of(self, prefix: str, **fixed: Any) -> Callable[..., Any]:
        """``call`` for the calls of these names that share these fields: of one device, of one object."""

        def call(name: str, /, **fields: Any) -> Any:
            return self.call(prefix + name, **fixed, **fields)

        return call


def aligned(size: int) -> Any:
    """A zeroed buffer of at least ``size`` bytes, aligned to 8, as images and prefixes must be."""
    return (c_uint64 * max(1, (size + 7) // 8))()


def filled(data: bytes) -> Any:
    """An aligned buffer that begins with ``data``."""
    buffer = aligned(len(data))
    ctypes.memmove(buffer, data, len(data))
    return buffer


def as_pointer(buffer: Any) -> pointer:
    return ctypes.cast(buffer, pointer)


def bytes_of(buffer: Any, size: int) -> bytes:
    """A copy of the buffer's first ``size`` bytes."""
    return bytes((c_ubyte * size).from_buffer(buffer))
