"""Schedules the reading of this machine on three threads.

One thread asks the driver, another reads the host and its processes, and a third schedules the two: it calls no driver
and reads no file, so it goes on whatever hangs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gputop.model.source import FAST_FOR_S, FAST_S, SourceError, UsageError
from gputop.sources.machine_reader import LEAST_HOST_S, HostReading, MachineReader
from gputop.sources.nvml.gpm import CLOSEST_PAIR_S
from gputop.sources.nvml.gpu_device import GpusReading
from gputop.sources.selection import MachineOptions
from gputop.system.worker import Worker

LATE_S = 1.0
"""A read that takes longer, and longer than the interval, is late: snapshots then go on without it."""
OLD_S = 10.0
"""Process data older than this are said to be old."""
LOOK_AGAIN_S = 0.2
"""How often a call in flight is checked."""
PAIR_S = 0.25
"""Distance of the first two reads of what goes on: no value should be missing for a whole tick."""
LIVE_PROC_GRACE_S, ONCE_PROC_GRACE_S = 0.15, 0.8
"""How long a finished NVML read waits for /proc, so that both belong to one tick. What reads once has no next tick for
what comes too late on a loaded machine."""
SILENT_S = 0.8
"""So long after its start what reads once reads /proc also where the driver has not answered."""
HUNG_ONCE_S = 0.8
"""When a driver call counts as hung for it: the other GPUs are read in the meantime."""
RUNS_UTIL = 5.0
"""A GPU this busy runs kernels of its processes, percent."""
HURRIES_EVERY_S = 60.0
"""How often new jobs may have the GPUs read faster: what starts jobs all the time must not cost that all the time."""
FIRST_RETRY_S, LAST_RETRY_S = 2.0, 60.0
"""Back-off while the driver does not start."""
NOTHING_READ = GpusReading(0.0, (), ())


class Readers:
    """The reading threads of GPUs and host, and their schedule.

    A reading of the GPUs is followed by a pass over the host and its processes; both together are a tick. The second
    tick follows soon after the first: GPM and all rates need two. Then the live source ticks once an interval. A
    command that reads once ends with the second tick, which follows as soon as two samples of GPM may follow each
    other.

    ``reading`` is the newest one of NVML, from whichever thread. ``publish`` is called on the third thread when a tick
    is complete, and once an interval while NVML is late. ``interval_s`` is the expected distance of the newest tick
    from the one before: ticks follow each other faster after a start (``_hurry``).
    """

    def __init__(
        self,
        options: MachineOptions,
        reader: MachineReader,
        publish: Callable[[], object],
        *,
        once: bool = False,
    ) -> None:
        """``once`` is for a command that ends after two ticks."""
        self._interval_s, self._reader, self._publish, self._once = (
            options.interval_s,
            reader,
            publish,
            once,
        )
        self._is_quick, self._fast_until, self._hurried_at = (
            options.is_quick,
            float("-inf"),
            float("-inf"),
        )
        self._have_run: frozenset[int] = frozenset()
        """Processes whose kernels were seen to run."""
        self.interval_s = self._next_s = options.interval_s
        self._hung_s = min(options.hung_s, HUNG_ONCE_S) if once else options.hung_s
        self._pair_s = max(CLOSEST_PAIR_S, options.pair_s) if once else PAIR_S
        self._proc_grace_s = ONCE_PROC_GRACE_S if once else LIVE_PROC_GRACE_S
        self.reading: GpusReading | None = None
        self.readings = self.published_readings = 0
        """How often all GPUs were read, and how many of these readings were published."""
        self._reading_at = time.monotonic()
        self._nvml = self._nvml_thread(reader.session.ticket)
        self._nvml_reads = 0
        self._proc: Worker[HostReading] = Worker(
            "proc", self._read_host, self._tell, close=reader.close_host
        )
        self._proc_asked_at: float | None = None
        self._proc_due = False
        self._lacks_processes = False
        """Whether the newest snapshot went out before the first pass over the GPUs' processes had ended: then another
        one follows as soon as it has."""
        self._with_host = once
        """What goes on reads it once the first snapshot is out."""
        self._due, self._is_paired = 0.0, False
        self._retry_at, self._retry_s = 0.0, FIRST_RETRY_S
        self._worker = Worker("schedule", self._turn, again=self._until_due_s)

    def ask_driver(self) -> None:
        """Start the first reading of the GPUs, and nothing else yet."""
        self._nvml.ask()

    def start(self) -> None:
        """Start the schedule and the reading of /proc.

        Where the driver has answered, the first pass knows the GPUs' processes. Otherwise a pass without them finds
        all others in the meantime, which is most of the work.
        """
        if not self._nvml.turns and not self._once:
            self._proc.ask()
        now = time.monotonic()
        self._hurry(now)
        self.interval_s = self._next_s
        self._due = now + (SILENT_S if self._once else self._interval_s)
        self._worker.ask()

    def stop(self, timeout_s: float) -> None:
        """End all threads; leave hanging ones after ``timeout_s``."""
        deadline, threads = time.monotonic() + timeout_s, (self._worker, self._nvml, self._proc)
        for thread in threads:
            thread.stop()
        for thread in threads:
            thread.stop(deadline - time.monotonic())

    @property
    def host(self) -> HostReading | None:
        """Return the newest reading of the host and its processes."""
        return self._proc.latest

    @property
    def newest(self) -> GpusReading:
        """Return the newest reading of the GPUs.

        Before the first is complete it is empty, or for a command that reads once the partial one.
        """
        if self.reading is not None:
            return self.reading
        return self._reader.session.progress() if self._once else NOTHING_READ

    @property
    def complete(self) -> bool:
        """Whether every GPU was read twice, with its processes."""
        return (
            min(self.readings, self.published_readings) >= 2
            and self.reading is not None
            and not self.reading.hung
            and self.host is not None
        )

    def stale(self) -> dict[str, float]:
        """Return the age in seconds of each late collector's data."""
        now, limit = time.monotonic(), self._late_s
        ages = {}
        if (
            self._is_late(self._nvml.busy_since, now)
            or now - self._reading_at > limit + self._interval_s
        ):
            ages["nvml"] = now - self._reading_at
        if self._is_late(self._proc.busy_since, now):
            ages["proc"] = now - (self._proc.latest_at or self._proc.busy_since or now)
        return ages

    def troubles(self) -> list[str]:
        """Describe the failures of the threads."""
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
        if (
            self.reading is None
            and self._nvml.error is None
            and not self._reader.session.progress().gpus
        ):
            lines.append(
                f"NVML has not answered for {time.monotonic() - self._reading_at:.1f} s: is the driver hung?"
            )
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
        """Hand the GPUs over, then ask rare questions; on their thread."""
        self._tell()
        if not self._nvml.stopping.is_set():
            self._reader.ask_seldom(ticket)

    def _tell(self) -> None:
        """Wake the schedule after a reading; on the reading thread."""
        self._worker.wake()

    def _read_host(self) -> HostReading:
        newest = self.newest
        util = {gpu.static.index: gpu.util_pct for gpu in newest.gpus}
        knew_gpus = self.reading is not None
        return self._reader.read_host(
            newest.processes, util, knew_gpus=knew_gpus, with_host=self._with_host
        )

    def _turn(self) -> None:
        """Take readings, publish complete ticks, and start due readings."""
        now = time.monotonic()
        if self._nvml.turns != self._nvml_reads:
            self._take_reading(now)
        asked_at = self._proc_asked_at
        done = not self._proc_due and self._proc.busy_since is None
        is_complete = done and (asked_at is not None or self._lacks_processes)
        if is_complete or (asked_at is not None and now - asked_at >= self._proc_grace_s):
            self._tick_over(now, done=done)
        if now >= self._due:
            # A late thread skips ticks: it never tries to catch up.
            self.interval_s = self._next_s
            self._next_s = (
                min(FAST_S, self._interval_s) if now < self._fast_until else self._interval_s
            )
            self._due = max(self._due + self._next_s, now)
            self._tick(now)
        if self._proc_due and self._proc.busy_since is None:
            self._proc_due = False
            self._proc.ask()
        ticket = self._reader.session.supersede(self._hung_s)
        if ticket is not None:
            # A new thread goes on, without the GPU whose call hangs.
            self._nvml, self._nvml_reads = self._nvml_thread(ticket), 0
            self._nvml.ask()

    def _until_due_s(self) -> float:
        now, soonest = time.monotonic(), self._due
        if self._proc_asked_at is not None:
            soonest = min(soonest, self._proc_asked_at + self._proc_grace_s)
        if self._nvml.busy_since is not None:
            soonest = min(soonest, now + LOOK_AGAIN_S)
        return max(0.0, soonest - now)

    def _take_reading(self, now: float) -> None:
        """Take NVML's reading; /proc comes next and knows its processes."""
        self._nvml_reads = self._nvml.turns
        if self._nvml.error is None:
            self.reading, self._reading_at = self._nvml.latest, self._nvml.latest_at
            self.readings += 1
            self._retry_s = FIRST_RETRY_S
            if self.reading is not None and self._sees_first_kernels(self.reading):
                self._hurry(now)
        elif isinstance(self._nvml.error, SourceError):
            self._retry_at = now + self._retry_s
            self._retry_s = min(LAST_RETRY_S, 2 * self._retry_s)
        self._ask_proc(now)

    def _hurry(self, now: float) -> None:
        """Tick faster for some seconds, so that a first verdict comes soon."""
        if self._is_quick and now - self._hurried_at >= HURRIES_EVERY_S:
            self._hurried_at, self._fast_until = now, now + FAST_FOR_S
            self._next_s = min(FAST_S, self._interval_s)
            self._due = min(self._due, now + self._next_s)

    def _sees_first_kernels(self, reading: GpusReading) -> bool:
        """Whether the GPU of a process runs kernels for the first time."""
        busy = {gpu.static.index for gpu in reading.gpus if (gpu.util_pct or 0.0) >= RUNS_UTIL}
        run = frozenset(process.pid for process in reading.processes if process.gpu in busy)
        is_first = not run <= self._have_run
        self._have_run = frozenset(process.pid for process in reading.processes) & (
            self._have_run | run
        )
        return is_first

    def _ask_proc(self, now: float) -> None:
        self._proc_asked_at = now
        self._proc_due = True

    def _tick_over(self, now: float, *, done: bool) -> None:
        """Publish a tick; ``done`` if its pass over /proc has ended."""
        self._proc_asked_at = None
        knows_processes = self.host is not None and self.host.knew_gpus
        self._lacks_processes = not done and self.reading is not None and not knows_processes
        self.published_readings = self.readings
        self._publish()
        self._with_host = True
        if not self._is_paired and self.reading is not None:
            self._is_paired = True
            pair_at = max(now, self._reading_at + self._pair_s, self._proc.latest_at + LEAST_HOST_S)
            self._due = pair_at if self._once else min(self._due, pair_at)

    def _tick(self, now: float) -> None:
        if self._nvml.busy_since is not None:
            if self._once or self._is_late(self._nvml.busy_since, now):
                self._ask_proc(now)
        elif now < self._retry_at:
            self._ask_proc(now)
        else:
            self._nvml.ask()
