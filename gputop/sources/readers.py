"""The two collecting threads of this machine: what they have read, what of it is late, and what hangs.

One thread asks the driver, the other reads /proc. Nothing here calls either, so it goes on whatever happens to those
who do. When they are asked is up to ``schedule``, which goes on, and ``read_twice``, which comes to an end.
"""

from __future__ import annotations

import threading
from time import monotonic

from gputop.model.source import SourceError, UsageError
from gputop.sources.machine_reader import HostReading, MachineReader
from gputop.sources.nvml.gpu_device import GpusReading
from gputop.sources.reader_thread import ReaderThread

PAIR_S = 0.25
"""Distance of the first two reads: GPM and all rates need two, and the first picture should not wait a whole tick."""
HUNG_S = 2.0
"""A driver call that takes longer is hung, and its GPU is set aside."""
LATE_S = 1.0
"""A read that takes longer, and longer than the interval, is late: snapshots then go on without it."""
OLD_S = 10.0
"""Process data older than this are said to be old."""
LOOK_AGAIN_S = 0.2
"""How often a call in flight is checked."""
NOTHING_READ = GpusReading(0.0, (), ())


class Readers:
    """The thread that reads the GPUs and the one that reads the host.

    ``reading`` is the newest one of NVML, whichever thread it came from. A call that takes longer than ``hung_s`` is
    hung.
    """

    second_s = 0.0
    """See ``ReaderThread``."""
    with_host = True
    """Whether the host is read with its processes."""

    def __init__(self, interval_s: float, reader: MachineReader, hung_s: float) -> None:
        self.reading: GpusReading | None = None
        self._interval_s, self._reader, self._hung_s = interval_s, reader, hung_s
        self._reading_at = monotonic()
        self._wake = threading.Event()
        self._nvml = self._nvml_thread(reader.session.ticket)
        self._proc: ReaderThread[HostReading] = ReaderThread("proc", self._read_host, self._wake.set, reader.close_host)

    @property
    def host(self) -> HostReading | None:
        """The newest reading of the host and its processes."""
        return self._proc.latest

    @property
    def newest(self) -> GpusReading:
        """The newest reading of the GPUs; nothing before the first is complete."""
        return self.reading or NOTHING_READ

    def stop(self, timeout_s: float) -> None:
        """End both threads; those that hang are left behind after ``timeout_s`` in all."""
        deadline = monotonic() + timeout_s
        for reader in (self._nvml, self._proc):
            reader.stop()
        for reader in (self._nvml, self._proc):
            reader.join(deadline - monotonic())

    def stale(self) -> dict[str, float]:
        """Age in seconds of the data of each collector that is late."""
        now, limit = monotonic(), self._late_s
        ages = {}
        if self._is_late(self._nvml.busy_since, now) or now - self._reading_at > limit + self._interval_s:
            ages["nvml"] = now - self._reading_at
        if self._is_late(self._proc.busy_since, now):
            ages["proc"] = now - (self._proc.latest_at or self._proc.busy_since or now)
        return ages

    def troubles(self) -> list[str]:
        """The failures of the threads, in words."""
        lines = []
        for name, error in (("NVML", self._nvml.error), ("/proc", self._proc.error)):
            if isinstance(error, SourceError | UsageError):
                lines.append(str(error))
            elif error is not None:
                lines.append(f"reading {name} failed: {type(error).__name__}: {error}")
        old_s = self.stale().get("proc", 0.0)
        if old_s > OLD_S:
            lines.append(
                f"/proc does not answer: process data are {old_s:.0f} s old and no evidence; "
                "is a file system hung under a job?"
            )
        if self.reading is None and self._nvml.error is None and not self._reader.session.progress().read:
            lines.append(f"NVML has not answered for {monotonic() - self._reading_at:.1f} s: is the driver hung?")
        return lines

    @property
    def _late_s(self) -> float:
        # A little less, or a read that began with one tick would count as late only after the tick that should say so.
        return 0.95 * max(LATE_S, self._interval_s)

    def _is_late(self, busy_since: float | None, now: float) -> bool:
        return busy_since is not None and now - busy_since > self._late_s

    def _nvml_thread(self, ticket: int) -> ReaderThread[GpusReading]:
        return ReaderThread(
            "nvml",
            lambda: self._reader.read_gpus(ticket),
            self._gpus_read,
            self._reader.session.close,
            lambda: self._reader.ask_seldom(ticket),
            second_s=self.second_s,
        )

    def _gpus_read(self) -> None:
        """Called on the thread that has read the GPUs."""
        self._wake.set()

    def _read_host(self) -> HostReading:
        newest = self.newest
        util = {gpu.static.index: gpu.util_pct for gpu in newest.gpus}
        knew_gpus = self.reading is not None
        return self._reader.read_host(newest.processes, util, knew_gpus=knew_gpus, with_host=self.with_host)

    def _set_hung_aside(self) -> bool:
        """Go on with a new thread where a call hangs, without its GPU; whether one did."""
        ticket = self._reader.session.supersede(self._hung_s)
        if ticket is None:
            return False
        self._nvml = self._nvml_thread(ticket)
        self._nvml.start()
        return True
