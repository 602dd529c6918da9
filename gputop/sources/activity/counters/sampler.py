"""Samples one GPU's hardware counters with the periodic sampler.

A sample lies between two triggers of this program, so that a value is the mean over exactly that time. Creates no CUDA
context and changes no clock. A session holds the GPU's one profiling unit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import ExitStack
from math import isfinite

from msgspec import Struct

from gputop.sources.activity.counters.abi import (
    CPU_TRIGGER,
    KEEP_LATEST,
    KEEP_OLDEST,
    LINEAR,
    OPTIONS_SIZE,
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
    aligned,
    as_pointer,
    bytes_of,
    filled,
)
from gputop.sources.activity.counters.counter_plan import Evaluator, plan_for

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
        gpus.append(CounterGpu(device, f"{at.domain:04x}:{at.bus:02x}:{at.device:02x}.0", chip))
    return gpus


class Sampler:
    """A session on one GPU: ``begin``, ``sample`` at intervals, ``end``."""

    def __init__(self, host: Library, target: Library, place: CounterGpu) -> None:
        self._host, self._target, self._chip = host, target, place.chip
        self._call = target.prefixed("NVPW_GPU_PeriodicSampler_", device=place.device)
        self._held = ExitStack()
        """What is to be given back, last first."""
        self._sampling = False

    def begin(self) -> None:
        """Take the GPU's counters.

        Raises NvperfError; its ``status`` says whether they are denied or in use.
        """
        self._must_be_supported()
        plan = plan_for(self._host, self._chip, self._availability())
        self._metrics = tuple(plan.metrics)
        self._config, self._config_size = filled(plan.config), len(plan.config)
        self._prefix = filled(plan.prefix)
        self._options = ImageOptions(
            structSize=OPTIONS_SIZE,
            prefix=as_pointer(self._prefix),
            prefix_size=len(plan.prefix),
            max_samples=MOST_UNDECODED,
            append_mode=LINEAR,
        )
        options = ctypes.pointer(self._options)
        self._size = self._call("CounterDataImage_CalculateSize", options=options).size
        self._image, self._pristine = aligned(self._size), aligned(self._size)
        self._call(
            "CounterDataImage_Initialize",
            options=options,
            image=as_pointer(self._pristine),
            image_size=self._size,
        )
        self._restore()
        self._evaluator = Evaluator(self._host, self._chip, self._image)
        self._held.callback(self._evaluator.close)
        self._requests = (EvalRequest * len(plan.metrics))(
            *map(self._evaluator.request, plan.metrics.values())
        )
        self._keep_latest = bool(self._call("IsRecordBufferKeepLatestModeSupported").supported)
        buffer_size = self._call(
            "CalculateRecordBufferSize",
            config=as_pointer(self._config),
            config_size=self._config_size,
            max_undecoded=MOST_UNDECODED,
        ).size
        triggers = (ctypes.c_uint32 * 1)(CPU_TRIGGER)
        self._call(
            "BeginSession_V2",
            max_ranges=1,
            triggers=triggers,
            trigger_count=1,
            buffer_size=buffer_size,
            append_mode=KEEP_LATEST if self._keep_latest else KEEP_OLDEST,
        )
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
        status = self._call(
            "GetRecordBufferStatus_V2", ask_unread=1, ask_overflow=int(not self._keep_latest)
        )
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
            "NVPW_PeriodicSampler_CounterData_GetInfo",
            image=as_pointer(self._image),
            image_size=self._size,
        )
        for index in range(info.completed - 1, -1, -1):
            time = self._target.call(
                "NVPW_PeriodicSampler_CounterData_GetSampleTime",
                image=as_pointer(self._image),
                range=index,
            )
            if not 0 < time.start < time.end:
                continue
            values = self._evaluator.values(self._requests, self._image, self._size, index)
            means = {
                name: value
                for name, value in zip(self._metrics, values, strict=True)
                if isfinite(value)
            }
            return SampledMeans(time.start, time.end, means)
        return None

    def _must_be_supported(self) -> None:
        support = self._call("IsGpuSupported")
        if not support.supported:
            raise NvperfError(
                "IsGpuSupported", VIRTUALIZED if 0 < support.vgpu < SUPPORTED else UNSUPPORTED_GPU
            )
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
        self._call(
            "SetConfig",
            config=as_pointer(self._config),
            config_size=self._config_size,
            pass_index=0,
        )
        self._call("StartSampling")
        self._sampling = True

    def _stop(self) -> None:
        if self._sampling:
            self._sampling = False
            self._call("StopSampling")

    def _restore(self) -> None:
        ctypes.memmove(self._image, self._pristine, self._size)
