"""The two collecting threads of this machine, and the two loops that ask them: one that ends, one that goes on.

One thread asks the driver, the other reads /proc. Nothing here calls either, so it goes on whatever happens to those
who do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import inf
from time import monotonic

from gputop.model.source import SourceError, UsageError
from gputop.sources.machine_reader import LEAST_HOST_S, HostReading, MachineReader
from gputop.sources.nvml.gpm import CLOSEST_PAIR_S
from gputop.sources.nvml.gpu_device import GpusReading
from gputop.system.worker import Worker

# The threads: what they have read, what of it is late, and what hangs.

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

    with_host = True
    """Whether the host is read with its processes."""

    def __init__(self, interval_s: float, reader: MachineReader, hung_s: float) -> None:
        self.reading: GpusReading | None = None
        self._interval_s, self._reader, self._hung_s = interval_s, reader, hung_s
        self._reading_at = monotonic()
        self._nvml = self._nvml_thread(reader.session.ticket)
        self._proc: Worker[HostReading] = Worker("proc", self._read_host, self._tell, close=reader.close_host)

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
            reader.stop(deadline - monotonic())

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

    def _nvml_thread(self, ticket: int) -> Worker[GpusReading]:
        return Worker(
            "nvml",
            lambda: self._reader.read_gpus(ticket),
            lambda: self._after_gpus(ticket),
            close=self._reader.session.close,
        )

    def _after_gpus(self, ticket: int) -> None:
        """On the thread that has read the GPUs: hand them over, then ask what is asked seldom."""
        self._gpus_read()
        if not self._nvml.stopping.is_set():
            self._reader.ask_seldom(ticket)

    def _gpus_read(self) -> None:
        """The GPUs were read. Called on the thread that has read them."""
        self._tell()

    def _tell(self) -> None:
        """One of the two threads has read. Called on that thread."""

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
        self._nvml.ask()
        return True


# The two looks of a command that reads once, as rates and SM activity need them: a small loop that ends.
#
# A look is a reading of the GPUs, then a pass over the host and its processes. The second look follows as soon as two
# samples of GPM may follow each other; nothing else of the GPUs needs as long. The loop has no thread of its own: the
# one that waits for the answer takes its steps. Between the two looks there is nothing to do, so the command imports
# there what it prints with.

ONCE_PROC_GRACE_S = 0.8
"""How long a pass over /proc is waited for after a reading of the GPUs; after the second one only where a pass before
has seen the GPUs' processes: there is no next tick for what comes too late on a loaded machine."""
SILENT_S = 0.8
"""So long after the start /proc is read also where the driver has not answered."""


class ReadTwice(Readers):
    """Reads the GPUs and the processes on them, and both again as soon as that tells rates."""

    def __init__(self, interval_s: float, reader: MachineReader, hung_s: float) -> None:
        super().__init__(interval_s, reader, hung_s)
        self.begun = monotonic()
        self.readings = 0
        """How often all GPUs were read."""
        self._published_readings = 0
        """How many of these readings the newest pass over /proc came after."""
        self._seen_at = float("-inf")
        """When that pass ended."""
        self._read = threading.Event()

    def begin(self) -> None:
        """Start to read; returns at once."""
        self._nvml.ask()

    @property
    def newest(self) -> GpusReading:
        """The newest reading; before the first is complete, what it has so far."""
        if self.reading is not None:
            return self.reading
        progress = self._reader.session.progress()
        return GpusReading(0.0, progress.read, progress.processes, hung=progress.hung)

    @property
    def looked(self) -> bool:
        """Whether the first look is over: a pass over /proc that takes long is not waited for."""
        return self.readings > 0 and (
            self._published_readings > 0 or monotonic() - self._reading_at >= ONCE_PROC_GRACE_S
        )

    @property
    def complete(self) -> bool:
        """Whether every GPU was read twice, and the processes on them were."""
        if self.readings < 2 or self.reading is None or self.reading.hung or self.host is None:
            return False
        if self._published_readings >= 2:
            return True
        return self._published_readings == 1 and monotonic() - self._reading_at >= ONCE_PROC_GRACE_S

    def step(self) -> None:
        """Ask for what is due."""
        now = monotonic()
        self._set_hung_aside()
        if self._nvml.busy_since is None and now >= self._due:
            self._nvml.ask()
        if self._proc.busy_since is None and now >= self._proc_due:
            self._proc.ask()

    def wait(self, timeout_s: float) -> None:
        """Until something was read, or the next step is due; at most ``timeout_s``."""
        now = monotonic()
        until = LOOK_AGAIN_S if self._nvml.busy_since is not None else self._due - now
        if self._published_readings < self.readings:
            until = min(until, LOOK_AGAIN_S if self._proc.busy_since is not None else self._proc_due - now)
        self._read.wait(max(0.0, min(timeout_s, until)))
        self._read.clear()

    @property
    def _due(self) -> float:
        """When the GPUs are to be read again: after the second reading only where an exporter is waited for."""
        if self.readings == 1 and self._nvml.error is None:
            return self._reading_at + (CLOSEST_PAIR_S if self._published_readings else ONCE_PROC_GRACE_S)
        return self._reading_at + self._interval_s

    @property
    def _proc_due(self) -> float:
        """When /proc is to be read again: after each reading of the GPUs."""
        if self._published_readings < self.readings:
            return self._seen_at + LEAST_HOST_S
        return inf if self._proc.turns else self.begun + SILENT_S

    def _gpus_read(self) -> None:
        if self._nvml.error is None:
            self.reading = self._nvml.latest
            self.readings += 1
        self._reading_at = monotonic()
        self._tell()

    def _tell(self) -> None:
        self._read.set()

    def _read_host(self) -> HostReading:
        readings = self.readings
        try:
            return super()._read_host()
        finally:
            self._published_readings, self._seen_at = readings, monotonic()


# Keeps time for the two collecting threads of what goes on, such as a screen: when to ask, when a tick is complete.
#
# Calls no driver and reads no file, so it goes on whatever happens to those who do.

PAIR_S = 0.25
"""Distance of the first two reads: GPM and all rates need two, and no value should be missing for a whole tick."""
LIVE_PROC_GRACE_S = 0.15
"""How long a finished NVML read waits for /proc, so that both belong to one tick."""
FIRST_RETRY_S, LAST_RETRY_S = 5.0, 60.0
"""Back-off while the driver does not start."""


class Schedule(Readers):
    """Asks both threads once an interval, on a thread of its own.

    ``publish`` is called on that thread when a tick is complete, and once an interval while NVML is late.
    """

    with_host = False
    """Not before the first snapshot is out."""

    def __init__(
        self, interval_s: float, reader: MachineReader, publish: Callable[[], None], hung_s: float = HUNG_S
    ) -> None:
        super().__init__(interval_s, reader, hung_s)
        self._publish = publish
        self._due, self._is_paired = 0.0, False
        self._nvml_reads = 0
        self._proc_asked_at: float | None = None
        self._proc_due = False
        self._lacks_processes = False
        """Whether the newest snapshot went out before the first pass over the GPUs' processes had ended: then another
        one follows as soon as it has."""
        self._retry_at, self._retry_s = 0.0, FIRST_RETRY_S
        self._worker = Worker("schedule", self._turn, again=self._until_due_s)

    def ask_driver(self) -> None:
        """Start the first reading of the GPUs, and nothing else yet."""
        self._nvml.ask()

    def start(self) -> None:
        """Start the reading of /proc, and keep time from here on.

        Where the driver has answered, the first pass knows the GPUs' processes. Where it has not, a pass that does not
        know them finds all others in the meantime, which is most of the work.
        """
        if not self._nvml.turns:
            self._proc.ask()
        self._due = monotonic() + self._interval_s
        self._worker.ask()

    def stop(self, timeout_s: float) -> None:
        """End all threads; those that hang are left behind after ``timeout_s`` in all."""
        begun = monotonic()
        self._worker.stop(timeout_s)
        super().stop(timeout_s - (monotonic() - begun))

    def _tell(self) -> None:
        self._worker.wake()

    def _turn(self) -> None:
        """Take what was read, publish what is complete, and ask for what is due."""
        now = monotonic()
        if self._nvml.turns != self._nvml_reads:
            self._take_reading(now)
        if self._proc_due and self._proc.busy_since is None:
            self._proc_due = False
            self._proc.ask()
        asked_at = self._proc_asked_at
        done = not self._proc_due and self._proc.busy_since is None
        is_complete = done and (asked_at is not None or self._lacks_processes)
        if is_complete or (asked_at is not None and now - asked_at >= LIVE_PROC_GRACE_S):
            self._proc_asked_at = None
            self._lacks_processes = not done and self.reading is not None and not self._knows_processes
            self._publish()
            self.with_host = True
            if not self._is_paired and self.reading is not None:
                self._is_paired = True
                self._due = min(self._due, max(now, self._reading_at + PAIR_S))
        if now >= self._due:
            # A late thread skips ticks: it never tries to catch up.
            self._due = max(self._due + self._interval_s, now)
            self._tick(now)
        if self._set_hung_aside():
            self._nvml_reads = 0

    def _until_due_s(self) -> float:
        now, soonest = monotonic(), self._due
        if self._proc_asked_at is not None:
            soonest = min(soonest, self._proc_asked_at + LIVE_PROC_GRACE_S)
        if self._nvml.busy_since is not None:
            soonest = min(soonest, now + LOOK_AGAIN_S)
        return max(0.0, soonest - now)

    def _tick(self, now: float) -> None:
        if self._nvml.busy_since is not None:
            if self._is_late(self._nvml.busy_since, now):
                self._ask_proc(now)
        elif now < self._retry_at:
            self._ask_proc(now)
        else:
            self._nvml.ask()

    def _take_reading(self, now: float) -> None:
        """NVML has finished: read /proc next, so that it knows this tick's GPU processes."""
        self._nvml_reads = self._nvml.turns
        if self._nvml.error is None:
            self.reading, self._reading_at = self._nvml.latest, self._nvml.latest_at
            self._retry_s = FIRST_RETRY_S
        elif isinstance(self._nvml.error, SourceError):
            self._retry_at = now + self._retry_s
            self._retry_s = min(LAST_RETRY_S, 2 * self._retry_s)
        self._ask_proc(now)

    @property
    def _knows_processes(self) -> bool:
        """Whether a pass over /proc has ended that knew the GPUs' processes."""
        return self.host is not None and self.host.knew_gpus

    def _ask_proc(self, now: float) -> None:
        self._proc_asked_at = now
        self._proc_due = True
        self._worker.wake()
