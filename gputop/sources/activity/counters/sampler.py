"""One GPU's hardware counters: a session of the periodic sampler, and one mean for each time that it is asked.

A sample lies between two triggers that this program gives, so that a value is the mean over exactly that time. Makes no
CUDA context and changes no clock. While a session lasts, the GPU's one profiling unit belongs to it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from math import isfinite
from typing import Any

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
from gputop.sources.activity.counters.metrics import Evaluator, plan_for

_SAMPLER = "NVPW_GPU_PeriodicSampler_"
MOST_UNDECODED = 64
"""Samples that the record buffer must hold: each trigger makes one, and it is decoded at once."""


class Sample(Struct, frozen=True):
    """The means between two triggers; times in nanoseconds of the GPU's clock, values by their short name."""

    t0: int
    t1: int
    values: Mapping[str, float]


class Place(Struct, frozen=True):
    """One GPU as the target library numbers it."""

    device: int
    pci: str
    chip: str


def target_library(directory: str) -> Library:
    """The target library of a folder, with the driver loaded. Raises OSError, NvperfError."""
    library = Library(f"{directory}/{TARGET_LIBRARY}", TARGET_CALLS)
    library.call("NVPW_InitializeTarget")
    library.call("NVPW_CUDA_LoadDriver")
    return library


def places(library: Library) -> list[Place]:
    """All GPUs, to be joined by PCI address: the library's numbers are not NVML's."""
    count = library.call("NVPW_GetDeviceCount").count
    ids = (PciBusId * max(1, count))()
    library.call("NVPW_Device_GetPciBusIds", ids=ids, count=count)
    found = []
    for device in range(count):
        at = ids[device]
        chip = library.call("NVPW_Device_GetNames", device=device).chip.decode(errors="replace")
        found.append(Place(device, pci_text(at.domain, at.bus, at.device), chip))
    return found


def pci_text(domain: int, bus: int, device: int) -> str:
    """A PCI address as the kernel writes it; a GPU is function 0."""
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"


class Sampler:
    """A session on one GPU: ``begin``, then ``sample`` at each interval, and ``end``."""

    def __init__(self, host: Library, target: Library, place: Place) -> None:
        self._host, self._target, self._device = host, target, place.device
        self._chip = place.chip
        self._in_session = self._sampling = False
        self._evaluator: Evaluator | None = None
        self.keep_latest = False
        self.metrics: tuple[str, ...] = ()

    def begin(self) -> None:
        """Take the GPU's counters. Raises NvperfError; its ``status`` says whether they are denied or in use."""
        self._must_be_supported()
        availability = self._availability()
        plan = plan_for(self._host, self._chip, availability)
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
        self._in_session = True
        self._start()

    def trigger(self) -> None:
        """End the sample that runs, and begin the next."""
        self._call("CpuTrigger")

    def sample(self) -> Sample | None:
        """Trigger, and the mean since the trigger before; None where there is none yet. Raises NvperfError."""
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
        """Give the counters back. When a step fails the remaining ones are still tried."""
        failure: NvperfError | None = None
        steps = [self._stop] if self._sampling else []
        if self._in_session:
            steps.append(self._end_session)
        if self._evaluator is not None:
            steps.append(self._evaluator.close)
        self._evaluator = None
        for step in steps:
            try:
                step()
            except NvperfError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _newest(self) -> Sample | None:
        """The last sample that has both its times: the first one began before sampling did, the last has no end."""
        assert self._evaluator is not None
        info = self._target.call(
            "NVPW_PeriodicSampler_CounterData_GetInfo", image=as_pointer(self._image), image_size=self._size
        )
        for index in range(info.completed - 1, -1, -1):
            time = self._target.call(
                "NVPW_PeriodicSampler_CounterData_GetSampleTime", image=as_pointer(self._image), range=index
            )
            if not 0 < time.start < time.end:
                continue
            self._evaluator.set_device(self._image, self._size)
            values = self._evaluator.values(self._requests, self._image, self._size, index)
            kept = {name: value for name, value in zip(self.metrics, values, strict=True) if isfinite(value)}
            return Sample(time.start, time.end, kept)
        return None

    def _must_be_supported(self) -> None:
        asked = self._call("IsGpuSupported")
        if not asked.supported:
            raise NvperfError("IsGpuSupported", VIRTUALIZED if 0 < asked.vgpu < SUPPORTED else UNSUPPORTED_GPU)
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
        self._sampling = False
        self._call("StopSampling")

    def _end_session(self) -> None:
        self._in_session = False
        self._call("EndSession")

    def _restore(self) -> None:
        ctypes.memmove(self._image, self._pristine, self._size)

    def _call(self, name: str, **fields: object) -> Any:
        return self._target.call(_SAMPLER + name, device=self._device, **fields)
