"""Which counters are asked for, and the set of them that one chip can collect in one pass.

The host library alone decides that, without a GPU: a metric's name becomes raw counters, and a configuration of these
says how many passes it takes. More than one pass would need the same work twice, and no job repeats its work.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from gputop.sources.activity.counters.abi import (
    EVAL_SIZE,
    HOST_CALLS,
    HOST_LIBRARY,
    REALTIME_SAMPLED,
    REQUEST_SIZE,
    UNSUPPORTED_GPU,
    EvalRequest,
    Library,
    NvperfError,
    RawCounterRequest,
    aligned,
    as_pointer,
    bytes_of,
    filled,
)

_OF_PEAK = "pct_of_peak_sustained_elapsed"
METRICS: Mapping[str, str] = MappingProxyType({
    "sm": f"sm__cycles_active.avg.{_OF_PEAK}",
    "gr": f"gr__cycles_active.sum.{_OF_PEAK}",
    "tensor": f"sm__pipe_tensor_cycles_active_realtime.avg.{_OF_PEAK}",
    "dram_r": f"dramc__read_throughput.avg.{_OF_PEAK}",
    "dram_w": f"dramc__write_throughput.avg.{_OF_PEAK}",
    "dram": f"dram__throughput.avg.{_OF_PEAK}",
    "issue": f"sm__inst_executed_realtime.avg.{_OF_PEAK}",
})  # fmt: skip
"""Short name in the protocol → name of the metric, in the order of their worth; a chip may know only some.

``sm__cycles_active`` is SM activity as DCGM's field 1002 defines it. Turing counts tensor and FP16 work on one pipe
together: that is left out, for it would have to be shown under a wrong name.
"""


class Plan(Struct, frozen=True):
    """What one chip collects in one pass: metrics by their short name, and the images that the target library needs."""

    chip: str
    metrics: Mapping[str, str]
    config: bytes
    prefix: bytes


class Evaluator:
    """The host library's knowledge of one chip; keeps its scratch memory alive."""

    def __init__(self, library: Library, chip: str, image: ctypes.Array[ctypes.c_uint64] | None = None) -> None:
        """``image`` is a counter data image of the device, needed only to evaluate. Raises NvperfError."""
        self._library = library
        name = chip.encode()
        size = library.call("NVPW_Device_MetricsEvaluator_CalculateScratchBufferSize", chip=name).size
        self._scratch = aligned(size)
        self._image = image
        made = library.call(
            "NVPW_Device_MetricsEvaluator_Initialize",
            scratch=as_pointer(self._scratch),
            scratch_size=size,
            chip=name,
            image=None if image is None else as_pointer(image),
            image_size=0 if image is None else ctypes.sizeof(image),
        )
        self._handle = made.evaluator

    def request(self, metric: str) -> EvalRequest:
        """The library's encoding of a metric's name. Raises NvperfError where the chip has none."""
        request = EvalRequest()
        self._library.call(
            "NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest",
            evaluator=self._handle,
            name=metric.encode(),
            request=ctypes.pointer(request),
            request_size=EVAL_SIZE,
        )
        return request

    def raw_counters(self, request: EvalRequest) -> list[bytes]:
        """The raw counters that a metric is made of."""
        common = {
            "evaluator": self._handle,
            "requests": ctypes.pointer(request),
            "count": 1,
            "request_size": EVAL_SIZE,
            "request_stride": ctypes.sizeof(EvalRequest),
        }
        call = "NVPW_MetricsEvaluator_GetMetricRawDependencies"
        counted = self._library.call(call, **common)
        names = (ctypes.c_char_p * max(1, counted.count_names))()
        optional = (ctypes.c_char_p * max(1, counted.count_optional))()
        got = self._library.call(
            call, **common,
            names=names, count_names=counted.count_names, optional=optional, count_optional=counted.count_optional,
        )  # fmt: skip
        return [name for name in (*names[: got.count_names], *optional[: got.count_optional]) if name]

    def set_device(self, image: ctypes.Array[ctypes.c_uint64], size: int) -> None:
        """Take the device's attributes, such as how many units it has, from a decoded image."""
        self._library.call(
            "NVPW_MetricsEvaluator_SetDeviceAttributes",
            evaluator=self._handle, image=as_pointer(image), image_size=size,
        )  # fmt: skip

    def values(
        self, requests: ctypes.Array[EvalRequest], image: ctypes.Array[ctypes.c_uint64], size: int, sample: int
    ) -> list[float]:
        """The metrics of one sample of a decoded image, in the order of the requests."""
        values = (ctypes.c_double * len(requests))()
        self._library.call(
            "NVPW_MetricsEvaluator_EvaluateToGpuValues",
            evaluator=self._handle, requests=requests, count=len(requests), request_size=EVAL_SIZE,
            request_stride=ctypes.sizeof(EvalRequest), image=as_pointer(image), image_size=size,
            range=sample, isolated=1, values=values,
        )  # fmt: skip
        return list(values)

    def close(self) -> None:
        self._library.call("NVPW_MetricsEvaluator_Destroy", evaluator=self._handle)


def host_library(directory: str) -> Library:
    """The host library of a folder, ready. Raises OSError, NvperfError."""
    library = Library(f"{directory}/{HOST_LIBRARY}", HOST_CALLS)
    library.call("NVPW_InitializeHost")
    return library


def plan_for(library: Library, chip: str, availability: bytes | None = None) -> Plan:
    """The most that ``chip`` collects in one pass, SM activity first: each metric stays if the pass still holds it.

    ``availability`` is the device's own statement of which counters are free. Raises NvperfError where even SM activity
    cannot be had.
    """
    evaluator = Evaluator(library, chip)
    try:
        chosen: dict[str, str] = {}
        counters: dict[bytes, None] = {}
        best = b""
        for short, name in METRICS.items():
            if short == "dram" and {"dram_r", "dram_w"} <= chosen.keys():
                continue
            try:
                more = {**counters, **dict.fromkeys(evaluator.raw_counters(evaluator.request(name)))}
                image, passes = configure(library, chip, list(more), availability)
            except NvperfError:
                if short == "sm":
                    raise
                continue
            if passes == 1:
                chosen[short], counters, best = name, more, image
            elif short == "sm":
                raise NvperfError("SM activity in one pass", UNSUPPORTED_GPU)
        return Plan(chip, chosen, best, _prefix(library, chip, list(counters)))
    finally:
        evaluator.close()


def configure(library: Library, chip: str, counters: Sequence[bytes], availability: bytes | None) -> tuple[bytes, int]:
    """The configuration image for these raw counters, and how many passes it takes. Raises NvperfError."""
    config = library.call("NVPW_Device_RawCounterConfig_Create", chip=chip.encode(), kind=REALTIME_SAMPLED).config
    try:
        if availability is not None:
            kept = filled(availability)
            library.call("NVPW_RawCounterConfig_SetCounterAvailability", config=config, image=as_pointer(kept))
        every = "NVPW_RawCounterConfig_GetAllAvailableRawCounterDomains"
        count = library.call(every, config=config).count
        domains = (ctypes.c_uint32 * max(1, count))()
        count = library.call(every, config=config, count=count, domains=domains).count
        group = {"config": config, "count": count, "domains": domains}
        library.call("NVPW_RawCounterConfig_BeginPassGroup", **group)
        requests = _requests(counters)
        library.call(
            "NVPW_RawCounterConfig_AddRawCounters",
            config=config, request_size=REQUEST_SIZE, count=len(counters), requests=requests,
        )  # fmt: skip
        library.call("NVPW_RawCounterConfig_EndPassGroup", **group)
        passes: int = library.call("NVPW_RawCounterConfig_GetNumPasses", config=config).passes
        library.call("NVPW_RawCounterConfig_GenerateConfigImage", config=config)
        return _copied(library, "NVPW_RawCounterConfig_GetConfigImage", config=config), passes
    finally:
        library.call("NVPW_RawCounterConfig_Destroy", config=config)


def _prefix(library: Library, chip: str, counters: Sequence[bytes]) -> bytes:
    builder = library.call("NVPW_CounterDataBuilder_Create", chip=chip.encode()).builder
    try:
        requests = _requests(counters)
        library.call(
            "NVPW_CounterDataBuilder_AddRawCounters",
            builder=builder, request_size=REQUEST_SIZE, count=len(counters), requests=requests,
        )  # fmt: skip
        return _copied(library, "NVPW_CounterDataBuilder_GetCounterDataPrefix", builder=builder)
    finally:
        library.call("NVPW_CounterDataBuilder_Destroy", builder=builder)


def _requests(counters: Sequence[bytes]) -> ctypes.Array[RawCounterRequest]:
    requests = (RawCounterRequest * max(1, len(counters)))()
    for request, counter in zip(requests, counters, strict=False):
        request.name = counter
    return requests


def _copied(library: Library, call: str, **handle: int) -> bytes:
    """The bytes that a copying call gives, after asking for their size."""
    size = library.call(call, **handle).copied
    buffer = aligned(size)
    got = library.call(call, **handle, allocated=size, buffer=as_pointer(buffer)).copied
    return bytes_of(buffer, got)
