"""The two readings of a command that reads once, as rates and SM activity need them: a small loop that ends.

It has no thread of its own: the one that waits for the answer takes its steps. Between the two readings there is
nothing to do, so the command imports there what it prints with.
"""

from __future__ import annotations

from time import monotonic

from gputop.sources.machine_reader import HostReading, MachineReader
from gputop.sources.nvml.gpu_device import GpusReading
from gputop.sources.readers import LOOK_AGAIN_S, PAIR_S, Readers

PROC_GRACE_S = 0.8
"""How long a pass over /proc is waited for after the second reading, where the one before has seen the GPUs' processes:
there is no next tick for what comes too late on a loaded machine."""
SILENT_S = 0.8
"""So long after the start /proc is read also where the driver has not answered."""


class ReadTwice(Readers):
    """Reads the GPUs, the processes on them, and both again a quarter of a second later."""

    def __init__(self, interval_s: float, reader: MachineReader, hung_s: float) -> None:
        super().__init__(interval_s, reader, hung_s)
        self.readings = 0
        """How often all GPUs were read."""
        self._seen = 0
        """How many of these readings the newest pass over /proc came after."""
        self._begun = monotonic()

    def begin(self) -> None:
        """Start to read; returns at once."""
        self._nvml.start()
        self._proc.start(reads=False)

    @property
    def newest(self) -> GpusReading:
        """The newest reading; before the first is complete, what it has so far."""
        if self.reading is not None:
            return self.reading
        here = self._reader.session.progress()
        return GpusReading(0.0, here.read, here.processes, hung=here.hung)

    @property
    def complete(self) -> bool:
        """Whether every GPU was read twice, and the processes on them were."""
        if self.readings < 2 or self.reading is None or self.reading.hung or self.host is None:
            return False
        if self._seen >= 2:
            return True
        return self._seen == 1 and monotonic() - self._reading_at >= PROC_GRACE_S

    def step(self) -> None:
        """Ask for what is due."""
        now = monotonic()
        self._set_hung_aside()
        if self._nvml.busy_since is None and now >= self._due:
            self._nvml.ask()
        is_silent = not self._proc.reads and now - self._begun >= SILENT_S
        if self._proc.busy_since is None and (is_silent or self._seen < self.readings):
            self._proc.ask()

    def wait(self, timeout_s: float) -> None:
        """Until something was read, or the next step is due; at most ``timeout_s``."""
        now = monotonic()
        until = LOOK_AGAIN_S if self._nvml.busy_since is not None else self._due - now
        if self._seen < 2 <= self.readings:
            until = min(until, LOOK_AGAIN_S)
        self._wake.wait(max(0.0, min(timeout_s, until)))
        self._wake.clear()

    @property
    def _due(self) -> float:
        """When the GPUs are to be read again: after the second reading only where an exporter is waited for."""
        is_second = self.readings == 1 and self._nvml.error is None
        return self._reading_at + (PAIR_S if is_second else self._interval_s)

    def _gpus_read(self) -> None:
        if self._nvml.error is None:
            self.reading = self._nvml.latest
            self.readings += 1
        self._reading_at = monotonic()
        # On this thread, because the one that takes the steps may still import.
        self._proc.ask()
        self._wake.set()

    def _read_host(self) -> HostReading:
        readings = self.readings
        try:
            return super()._read_host()
        finally:
            self._seen = readings
