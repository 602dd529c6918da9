"""Samples one GPU's hardware counters with the periodic sampler.

A sample lies between two triggers of this program, so that a value is the mean over exactly that time. Creates no CUDA
context and changes no clock. A session holds the GPU's one profiling unit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from math import isfinite
from typing import Any

from msgspec import Struct

from gputop.sources.activity.counters.abi import (
    CPU_TRIGGER,
    EVAL_SIZE,
    HOST_CALLS,
    HOST_LIBRARY,
    KEEP_LATEST,
    KEEP_OLDEST,
    LINEAR,
    OPTIONS_SIZE,
    REALTIME_SAMPLED,
    REQUEST_SIZE,
    SUPPORTED,
    TARGET_CALLS,
    TARGET_LIBRARY,
    UNSUPPORTED_GPU,
    VIRTUALIZED,
    EvalRequest,
    ImageOptions,
    Library,
    NvperfError,
    PciBusId,
    RawCounterRequest,
    aligned,
    as_pointer,
    bytes_of,
    filled,
)

# Which counters are asked for, and the set of them that one chip can collect in one pass.
#
# The host library alone decides that, without a GPU: a metric's name becomes raw counters, and a configuration of these
# says how many passes it takes. More than one pass would need the same work twice, and no job repeats its work.

_OF_PEAK = "pct_of_peak_sustained_elapsed"
METRICS: Mapping[str, str] = {
    "sm": f"sm__cycles_active.avg.{_OF_PEAK}",
    "gr": f"gr__cycles_active.sum.{_OF_PEAK}",
    "tensor": f"sm__pipe_tensor_cycles_active_realtime.avg.{_OF_PEAK}",
    "dram": f"dram__throughput.avg.{_OF_PEAK}",
    "dram_r": f"dramc__read_throughput.avg.{_OF_PEAK}",
    "dram_w": f"dramc__write_throughput.avg.{_OF_PEAK}",
    "issue": f"sm__inst_executed_realtime.avg.{_OF_PEAK}",
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

    def __init__(self, library: Library, chip: str, image: ctypes.Array[ctypes.c_uint64] | None = None) -> None:
        """``image`` is a counter data image, needed to evaluate. Raises NvperfError."""
        name = chip.encode()
        size = library.call("NVPW_Device_MetricsEvaluator_CalculateScratchBufferSize", chip=name).size
        self._scratch = aligned(size)
        self._image = image
        made = library.call(
            "NVPW_Device_MetricsEvaluator_Initialize",
            scratch=as_pointer(self._scratch), scratch_size=size, chip=name,
            image=None if image is None else as_pointer(image),
            image_size=0 if image is None else ctypes.sizeof(image),
        )  # fmt: skip
        self._call = library.prefixed("NVPW_MetricsEvaluator_", evaluator=made.evaluator)

    def request(self, metric: str) -> EvalRequest:
        """Encode a metric's name. Raises NvperfError for an unknown one."""
        request = EvalRequest()
        self._call(
            "ConvertMetricNameToMetricEvalRequest",
            name=metric.encode(), request=ctypes.pointer(request), request_size=EVAL_SIZE,
        )  # fmt: skip
        return request

    def raw_counters(self, request: EvalRequest) -> list[bytes]:
        """Return the raw counters of a metric."""
        call = partial(
            self._call, "GetMetricRawDependencies",
            requests=ctypes.pointer(request), count=1, request_size=EVAL_SIZE,
            request_stride=ctypes.sizeof(EvalRequest),
        )  # fmt: skip
        counted = call()
        names = (ctypes.c_char_p * max(1, counted.count_names))()
        optional = (ctypes.c_char_p * max(1, counted.count_optional))()
        got = call(
            names=names, count_names=counted.count_names, optional=optional, count_optional=counted.count_optional
        )
        return [name for name in (*names[: got.count_names], *optional[: got.count_optional]) if name]

    def values(
        self, requests: ctypes.Array[EvalRequest], image: ctypes.Array[ctypes.c_uint64], size: int, sample: int
    ) -> list[float]:
        """Return the metrics of one sample of a decoded image.

        In the order of the requests. The device's attributes, such as its number of units, come from the image as
        well.
        """
        values, of_image = (ctypes.c_double * len(requests))(), {"image": as_pointer(image), "image_size": size}
        self._call("SetDeviceAttributes", **of_image)
        self._call(
            "EvaluateToGpuValues", **of_image, requests=requests, count=len(requests), request_size=EVAL_SIZE,
            request_stride=ctypes.sizeof(EvalRequest), range=sample, isolated=1, values=values,
        )  # fmt: skip
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
                candidates = {**counters, **dict.fromkeys(evaluator.raw_counters(evaluator.request(name)))}
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


def configure(library: Library, chip: str, counters: Sequence[bytes], availability: bytes | None) -> tuple[bytes, int]:
    """Return a configuration image for raw counters, and its passes.

    Raises NvperfError.
    """
    made = library.call("NVPW_Device_RawCounterConfig_Create", chip=chip.encode(), kind=REALTIME_SAMPLED)
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


MOST_UNDECODED = 64
"""Samples that the record buffer must hold: each trigger makes one, and it is decoded at once."""


class SampledMeans(Struct, frozen=True):
    """Means between two triggers, by short name.

    Times are nanoseconds of the GPU's clock.
    """

    t0: int
    t1: int
    values: Mapping[str, float]


class CounterGpu(Struct, frozen=True):
    """One GPU as the target library numbers it."""

    device: int
    pci: str
    chip: str


def target_library(directory: str) -> Library:
    """Load the target library and the driver. Raises OSError, NvperfError."""
    library = Library(f"{directory}/{TARGET_LIBRARY}", TARGET_CALLS)
    library.call("NVPW_InitializeTarget")
    library.call("NVPW_CUDA_LoadDriver")
    return library


def places(library: Library) -> list[CounterGpu]:
    """Return all GPUs, to be joined by PCI address.

    The library's numbers are not NVML's.
    """
    count = library.call("NVPW_GetDeviceCount").count
    ids = (PciBusId * max(1, count))()
    library.call("NVPW_Device_GetPciBusIds", ids=ids, count=count)
    gpus = []
    for device in range(count):
        at = ids[device]
        chip = library.call("NVPW_Device_GetNames", device=device).chip.decode(errors="replace")
        gpus.append(CounterGpu(device, pci_text(at.domain, at.bus, at.device), chip))
    return gpus


def pci_text(domain: int, bus: int, device: int) -> str:
    """Format a PCI address as the kernel does; a GPU is function 0."""
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"


class Sampler:
    """A session on one GPU: ``begin``, ``sample`` at intervals, ``end``."""

    def __init__(self, host: Library, target: Library, place: CounterGpu) -> None:
        self._host, self._target, self._chip = host, target, place.chip
        self._call = target.prefixed("NVPW_GPU_PeriodicSampler_", device=place.device)
        self._held = ExitStack()
        """What is to be given back, last first."""
        self._sampling = False
        self.keep_latest = False
        self.metrics: tuple[str, ...] = ()

    def begin(self) -> None:
        """Take the GPU's counters.

        Raises NvperfError; its ``status`` says whether they are denied or in use.
        """
        self._must_be_supported()
        plan = plan_for(self._host, self._chip, self._availability())
        self.metrics = tuple(plan.metrics)
        self._config, self._config_size = filled(plan.config), len(plan.config)
        self._prefix = filled(plan.prefix)
        self._options = ImageOptions(
            structSize=OPTIONS_SIZE, prefix=as_pointer(self._prefix), prefix_size=len(plan.prefix),
            max_samples=MOST_UNDECODED, append_mode=LINEAR,
        )  # fmt: skip
        options = ctypes.pointer(self._options)
        self._size = self._call("CounterDataImage_CalculateSize", options=options).size
        self._image, self._pristine = aligned(self._size), aligned(self._size)
        self._call(
            "CounterDataImage_Initialize", options=options, image=as_pointer(self._pristine), image_size=self._size
        )
        self._restore()
        self._evaluator = Evaluator(self._host, self._chip, self._image)
        self._held.callback(self._evaluator.close)
        self._requests = (EvalRequest * len(plan.metrics))(*map(self._evaluator.request, plan.metrics.values()))
        self.keep_latest = bool(self._call("IsRecordBufferKeepLatestModeSupported").supported)
        buffer_size = self._call(
            "CalculateRecordBufferSize",
            config=as_pointer(self._config), config_size=self._config_size, max_undecoded=MOST_UNDECODED,
        ).size  # fmt: skip
        triggers = (ctypes.c_uint32 * 1)(CPU_TRIGGER)
        self._call(
            "BeginSession_V2",
            max_ranges=1, triggers=triggers, trigger_count=1, buffer_size=buffer_size,
            append_mode=KEEP_LATEST if self.keep_latest else KEEP_OLDEST,
        )  # fmt: skip
        self._held.callback(self._call, "EndSession")
        self._held.callback(self._stop)
        self._start()

    def trigger(self) -> None:
        """End the current sample and begin the next."""
        self._call("CpuTrigger")

    def sample(self) -> SampledMeans | None:
        """Trigger and return the mean since the last trigger, if any.

        Raises NvperfError.
        """
        self.trigger()
        status = self._call("GetRecordBufferStatus_V2", ask_unread=1, ask_overflow=int(not self.keep_latest))
        if status.overflow:
            # The GPU writes nothing more until it is set up again.
            self._stop()
            self._start()
            return None
        if not status.unread:
            return None
        # Always into a fresh image: a used one would give means since it was made.
        self._restore()
        image = {"image": as_pointer(self._image), "image_size": self._size}
        decoded = self._call("DecodeCounters_V3", **image, bytes_to_read=status.unread)
        self._call("AcknowledgeRecordBuffer", bytes=decoded.consumed)
        return self._newest()

    def end(self) -> None:
        """Give the counters back, even if a step fails. Raises NvperfError."""
        self._held.close()

    def _newest(self) -> SampledMeans | None:
        """Return the last sample that has both times.

        The first one began before sampling did, the last has no end.
        """
        info = self._target.call(
            "NVPW_PeriodicSampler_CounterData_GetInfo", image=as_pointer(self._image), image_size=self._size
        )
        for index in range(info.completed - 1, -1, -1):
            time = self._target.call(
                "NVPW_PeriodicSampler_CounterData_GetSampleTime", image=as_pointer(self._image), range=index
            )
            if not 0 < time.start < time.end:
                continue
            values = self._evaluator.values(self._requests, self._image, self._size, index)
            means = {name: value for name, value in zip(self.metrics, values, strict=True) if isfinite(value)}
            return SampledMeans(time.start, time.end, means)
        return None

    def _must_be_supported(self) -> None:
        support = self._call("IsGpuSupported")
        if not support.supported:
            raise NvperfError("IsGpuSupported", VIRTUALIZED if 0 < support.vgpu < SUPPORTED else UNSUPPORTED_GPU)
        count = self._call("GetSupportedTriggerSources").count
        sources = (ctypes.c_uint32 * max(1, count))()
        count = self._call("GetSupportedTriggerSources", sources=sources, count=count).count
        if CPU_TRIGGER not in sources[:count]:
            raise NvperfError("GetSupportedTriggerSources", UNSUPPORTED_GPU)

    def _availability(self) -> bytes:
        size = self._call("GetCounterAvailability").size
        buffer = aligned(size)
        got = self._call("GetCounterAvailability", size=size, image=as_pointer(buffer)).size
        return bytes_of(buffer, min(got, size))

    def _start(self) -> None:
        self._call("SetConfig", config=as_pointer(self._config), config_size=self._config_size, pass_index=0)
        self._call("StartSampling")
        self._sampling = True

    def _stop(self) -> None:
        if self._sampling:
            self._sampling = False
            self._call("StopSampling")

    def _restore(self) -> None:
        ctypes.memmove(self._image, self._pristine, self._size)
