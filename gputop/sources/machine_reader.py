"""Reads GPUs, host and processes; every call may block."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from threading import Event
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.metrics import HOST_METRICS
from gputop.model.snapshot import FabricPort, HostSample, ProcessSample
from gputop.model.source import SourceError, UsageError
from gputop.sources.activity.choose_sources import SmReaders
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.nvml.gpu_device import GpusReading
from gputop.sources.nvml.nvml_session import NvmlSession
from gputop.sources.selection import MachineOptions

if TYPE_CHECKING:
    from gputop.sources.host import HostCollector
    from gputop.sources.processes.collector import ProcessCollector

LEAST_HOST_S = 0.1
"""The least time between two readings of the host and its processes: CPU time is counted in steps of 10 ms, and over
less its rates are noise (psutil advises as much for its ``cpu_percent``)."""
_NOT_YET = HostSample(
    unavailable=dict.fromkeys(HOST_METRICS, "the host is read from the second picture on")
)


class HostReading(Struct, frozen=True):
    """One pass over the host and its processes.

    ``knew_gpus`` says whether the GPUs' processes were known by then.
    """

    host: HostSample
    processes: tuple[ProcessSample, ...]
    notices: tuple[str, ...]
    knew_gpus: bool
    ports: tuple[FabricPort, ...] = ()


class MachineReader:
    """All reading that may block, by thread.

    ``session`` may be superseded while a call on a GPU hangs. ``failure`` says why the GPUs cannot be read at all,
    None while they can; ``looked`` is set by the first attempt.
    """

    def __init__(self, options: MachineOptions) -> None:
        """Raises UsageError for an invalid address of an exporter."""
        self._proc, self._clock = options.proc, options.clock
        self.sm_readers = SmReaders(options.interval_s, options.proc, options.sm)
        self.session = NvmlSession(options, self.sm_readers.readers_for)
        self.failure: SourceError | UsageError | None = None
        self.looked = Event()
        self._host_collector: HostCollector | None = None
        self._processes: ProcessCollector | None = None
        self._host, self._host_at = _NOT_YET, float("-inf")

    def read_gpus(self, ticket: int) -> GpusReading:
        """Read all chosen GPUs.

        Raises SourceError, UsageError, and Retired when another thread has taken over.
        """
        session = self.session
        if not session.ready:
            try:
                session.look(ticket, self._clock())
            except (SourceError, UsageError) as failure:
                self.failure = failure
                raise
            finally:
                self.looked.set()
            self.failure = None
        reading = session.read(ticket, self._clock())
        awaits_activity = self.sm_readers.awaits_activity(reading.gpus)
        return replace(reading, awaits_activity=True) if awaits_activity else reading

    def ask_seldom(self, ticket: int) -> None:
        """Ask for values that no picture waits for."""
        self.session.ask_seldom(ticket, self._clock())

    def read_host(
        self,
        gpu_processes: Sequence[GpuProcess],
        util: Mapping[int, float | None],
        *,
        knew_gpus: bool,
        with_host: bool = True,
    ) -> HostReading:
        """Read the processes, and the host if wanted.

        The host opens files that a first picture must not wait for.
        """
        if self._host_collector is None and with_host:
            from gputop.sources.host import HostCollector

            self._host_collector = HostCollector(self._proc)
        if self._processes is None:
            # Imported on this thread while another one asks the driver, which does not need it.
            from gputop.sources.processes.collector import ProcessCollector

            self._processes = ProcessCollector(self._proc, clock=time.monotonic)
        # Not the snapshots' clock: rates must not change when that is set, or after a suspend.
        # And taken after the import, which takes longer than a reading: the counters are read now.
        now = time.monotonic()
        if self._host_collector is not None and now - self._host_at >= LEAST_HOST_S:
            self._host, self._host_at = self._host_collector.read(now), now
        samples = self._processes.read(now, gpu_processes, util)
        outsiders, total = self._processes.outsiders, self._processes.cpu_outsiders_pct
        if (self._host.outsiders, self._host.cpu_outsiders_pct) != (outsiders, total):
            self._host = replace(self._host, outsiders=outsiders, cpu_outsiders_pct=total)
        ports = () if self._host_collector is None else self._host_collector.ports
        return HostReading(self._host, samples, tuple(self._processes.notices), knew_gpus, ports)

    def close_host(self) -> None:
        """Close the open files on their reading thread."""
        for collector in (self._processes, self._host_collector):
            if collector is not None:
                collector.close()
