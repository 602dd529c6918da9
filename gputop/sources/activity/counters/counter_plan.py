"""Chooses the counters that one chip collects in one pass.

The host library decides that without a GPU: a metric's name becomes raw counters, and a configuration of these has a
number of passes. More than one pass would need the same work twice, and no job repeats its work.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

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
METRICS: Mapping[str, str] = {
    "sm": f"sm__cycles_active.avg.{_OF_PEAK}",
    "gr": f"gr__cycles_active.sum.{_OF_PEAK}",
    "tensor": f"sm__pipe_tensor_cycles_active_realtime.avg.{_OF_PEAK}",
    "dram": f"dram__throughput.avg.{_OF_PEAK}",
    "dram_r": f"dramc__read_throughput.avg.{_OF_PEAK}",
    "dram_w": f"dramc__write_throughput.avg.{_OF_PEAK}",
}
"""Short name in the protocol → name of the metric, in the order of their worth; a chip may know only some.

``sm__cycles_active`` is SM activity as DCGM's field 1002 defines it. Turing counts tensor and FP16 work on one pipe
together: that is left out, for it would have to be shown under a wrong name. The halves of ``dram`` are for Turing,
which cannot count the whole in one pass: an H200 gives half of the truth by these (41 % where GPM and ncu say 82).
"""


class Plan(Struct, frozen=True):
    """The metrics that one chip collects in one pass.

    Metrics by short name, and the images for the target library.
    """

    chip: str
    metrics: Mapping[str, str]
    config: bytes
    prefix: bytes


class Evaluator:
    """The host library's knowledge of one chip."""

    def __init__(
        self, library: Library, chip: str, image: ctypes.Array[ctypes.c_uint64] | None = None
    ) -> None:
        """``image`` is a counter data image, needed to evaluate. Raises NvperfError."""
        name = chip.encode()
        size = library.call(
            "NVPW_Device_MetricsEvaluator_CalculateScratchBufferSize", chip=name
        ).size
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
        self._call = library.prefixed("NVPW_MetricsEvaluator_", evaluator=made.evaluator)

    def request(self, metric: str) -> EvalRequest:
        """Encode a metric's name. Raises NvperfError for an unknown one."""
        request = EvalRequest()
        self._call(
            "ConvertMetricNameToMetricEvalRequest",
            name=metric.encode(),
            request=ctypes.pointer(request),
            request_size=EVAL_SIZE,
        )
        return request

    def raw_counters(self, request: EvalRequest) -> list[bytes]:
        """Return the raw counters of a metric."""
        call = partial(
            self._call,
            "GetMetricRawDependencies",
            requests=ctypes.pointer(request),
            count=1,
            request_size=EVAL_SIZE,
            request_stride=ctypes.sizeof(EvalRequest),
        )
        counted = call()
        names = (ctypes.c_char_p * max(1, counted.count_names))()
        optional = (ctypes.c_char_p * max(1, counted.count_optional))()
        got = call(
            names=names,
            count_names=counted.count_names,
            optional=optional,
            count_optional=counted.count_optional,
        )
        return [
            name for name in (*names[: got.count_names], *optional[: got.count_optional]) if name
        ]

    def values(
        self,
        requests: ctypes.Array[EvalRequest],
        image: ctypes.Array[ctypes.c_uint64],
        size: int,
        sample: int,
    ) -> list[float]:
        """Return the metrics of one sample of a decoded image.

        In the order of the requests. The device's attributes, such as its number of units, come from the image as
        well.
        """
        values, of_image = (
            (ctypes.c_double * len(requests))(),
            {"image": as_pointer(image), "image_size": size},
        )
        self._call("SetDeviceAttributes", **of_image)
        self._call(
            "EvaluateToGpuValues",
            **of_image,
            requests=requests,
            count=len(requests),
            request_size=EVAL_SIZE,
            request_stride=ctypes.sizeof(EvalRequest),
            range=sample,
            isolated=1,
            values=values,
        )
        return list(values)

    def close(self) -> None:
        self._call("Destroy")


def host_library(directory: str) -> Library:
    """Load the host library of a folder. Raises OSError, NvperfError."""
    library = Library(f"{directory}/{HOST_LIBRARY}", HOST_CALLS)
    library.call("NVPW_InitializeHost")
    return library


def plan_for(library: Library, chip: str, availability: bytes | None = None) -> Plan:
    """Choose the most metrics that ``chip`` collects in one pass.

    SM activity comes first; each further metric stays if the pass still holds it. ``availability`` is the device's own
    statement of its free counters. Raises NvperfError where even SM activity is impossible.
    """
    evaluator = Evaluator(library, chip)
    try:
        chosen: dict[str, str] = {}
        counters: dict[bytes, None] = {}
        best = b""
        for short, name in METRICS.items():
            if short in ("dram_r", "dram_w") and "dram" in chosen:
                continue
            try:
                candidates = {
                    **counters,
                    **dict.fromkeys(evaluator.raw_counters(evaluator.request(name))),
                }
                image, passes = configure(library, chip, list(candidates), availability)
            except NvperfError:
                if short == "sm":
                    raise
                continue
            if passes == 1:
                chosen[short], counters, best = name, candidates, image
            elif short == "sm":
                raise NvperfError("SM activity in one pass", UNSUPPORTED_GPU)
        return Plan(chip, chosen, best, _prefix(library, chip, list(counters)))
    finally:
        evaluator.close()


def configure(
    library: Library, chip: str, counters: Sequence[bytes], availability: bytes | None
) -> tuple[bytes, int]:
    """Return a configuration image for raw counters, and its passes.

    Raises NvperfError.
    """
    made = library.call(
        "NVPW_Device_RawCounterConfig_Create", chip=chip.encode(), kind=REALTIME_SAMPLED
    )
    call = library.prefixed("NVPW_RawCounterConfig_", config=made.config)
    try:
        if availability is not None:
            availability_image = filled(availability)
            call("SetCounterAvailability", image=as_pointer(availability_image))
        count = call("GetAllAvailableRawCounterDomains").count
        domains = (ctypes.c_uint32 * max(1, count))()
        count = call("GetAllAvailableRawCounterDomains", count=count, domains=domains).count
        call("BeginPassGroup", count=count, domains=domains)
        call("AddRawCounters", **_requests(counters))
        call("EndPassGroup", count=count, domains=domains)
        passes: int = call("GetNumPasses").passes
        call("GenerateConfigImage")
        return _copied(partial(call, "GetConfigImage")), passes
    finally:
        call("Destroy")


def _prefix(library: Library, chip: str, counters: Sequence[bytes]) -> bytes:
    made = library.call("NVPW_CounterDataBuilder_Create", chip=chip.encode())
    call = library.prefixed("NVPW_CounterDataBuilder_", builder=made.builder)
    try:
        call("AddRawCounters", **_requests(counters))
        return _copied(partial(call, "GetCounterDataPrefix"))
    finally:
        call("Destroy")


def _requests(counters: Sequence[bytes]) -> dict[str, Any]:
    requests = (RawCounterRequest * max(1, len(counters)))()
    for request, counter in zip(requests, counters, strict=False):
        request.name = counter
    return {"request_size": REQUEST_SIZE, "count": len(counters), "requests": requests}


def _copied(call: Callable[..., Any]) -> bytes:
    """Return the bytes of a copying call, after asking for their size."""
    size = call().copied
    buffer = aligned(size)
    return bytes_of(buffer, call(allocated=size, buffer=as_pointer(buffer)).copied)
