"""Keeps time for the two collecting threads: when to ask, when a tick is complete, what is late, what hangs.

Calls no driver and reads no file, so it goes on whatever happens to those who do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

from gputop.model.source import SourceError, UsageError
from gputop.sources.machine_reader import HostReading, MachineReader
from gputop.sources.nvml.gpu_device import GpusReading
from gputop.sources.reader_thread import ReaderThread

PAIR_S = 0.25
"""Distance of the first two reads: GPM and all rates need two, and the first picture should not wait a whole tick."""
HUNG_S = 2.0
"""A driver call that takes longer is hung, and its GPU is set aside."""
PROC_GRACE_S = 0.15
"""How long a finished NVML read waits for /proc, so that both belong to one tick."""
PROC_GRACE_ONCE_S = 0.8
"""The same for a command that reads once: it has no next tick for what came too late on a loaded machine."""
AWAITED = 128
"""The most processes on the GPUs for which the first picture waits: reading one takes about 0.1 ms."""
DRAWN_S = 0.05
"""How long a picture that did not wait for them is left to be drawn before they are read: Python runs one thread at a
time."""
LATE_S = 1.0
"""A read that takes longer, and longer than the interval, is late: snapshots then go on without it."""
OLD_S = 10.0
"""Process data older than this are said to be old."""
LOOK_AGAIN_S = 0.2
"""How often a call in flight is checked."""
FIRST_RETRY_S, LAST_RETRY_S = 5.0, 60.0
"""Back-off while the driver does not start."""
NOTHING_READ = GpusReading(0.0, (), ())


class Schedule:
    """The thread that reads the GPUs, the one that reads the host, and the thread that keeps their time.

    ``publish`` is called on that last thread when a tick is complete, and once an interval while NVML is late.
    ``reading`` is the newest one of NVML, whichever thread it came from.
    """

    def __init__(self, interval_s: float, reader: MachineReader, publish: Callable[[], None]) -> None:
        self.hung_s = HUNG_S
        self.looks_once = False
        """Whether a first pass may be used before it is complete: a screen waits for all of it."""
        self.reading: GpusReading | None = None
        self._reading_at = monotonic()
        self._interval_s = interval_s
        self._reader = reader
        self._publish = publish
        self._wake = threading.Event()
        self._has_read = threading.Event()
        self._stopping = False
        self._nvml = self._nvml_thread(reader.session.ticket)
        self._nvml_reads = 0
        self._proc: ReaderThread[HostReading] = ReaderThread("proc", self._read_host, self._wake.set, reader.close_host)
        self._proc_asked_at: float | None = None
        self._proc_due = False
        self._proc_from, self._patience_s = 0.0, PROC_GRACE_S
        self._is_owed = False
        """Whether a snapshot went out before the first pass over the GPUs' processes: one follows as soon as it ends.
        """
        self._retry_at, self._retry_s = 0.0, FIRST_RETRY_S
        self._thread = threading.Thread(target=self._run, name="gputop-schedule", daemon=True)

    @property
    def host(self) -> HostReading | None:
        """The newest reading of the host and its processes."""
        return self._proc.latest

    def ask_driver(self) -> None:
        """Start the first reading of the GPUs, and nothing else yet.

        What the GPUs are asked seldom waits then, unless the driver is slow: the first picture does not show it, the
        second one does, and meanwhile what draws is imported. A command that looks once has nothing else to do.
        """
        if not self.looks_once:
            self._nvml.second_s = PAIR_S
        self._nvml.start()

    def read_by(self, timeout_s: float) -> bool:
        """Whether the first reading of the GPUs ends within this time."""
        return self._has_read.wait(timeout_s)

    def start(self) -> None:
        """Start the reading of /proc, and keep time from here on.

        Where the driver has answered, the first pass knows the GPUs' processes. Where it has not, a pass that does not
        know them finds all others meanwhile, which is most of the work.
        """
        self._proc.start(reads=not self._has_read.is_set())
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End all threads; those that hang are left behind after ``timeout_s`` in all."""
        deadline = monotonic() + timeout_s
        self._stopping = True
        self._wake.set()
        self._nvml.stop()
        self._proc.stop()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        self._nvml.stop()
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
        )

    def _gpus_read(self) -> None:
        self._has_read.set()
        self._wake.set()

    def _read_host(self) -> HostReading:
        newest = self.newest
        util = {gpu.static.index: gpu.util_pct for gpu in newest.gpus}
        return self._reader.read_host(newest.processes, util, knew_gpus=self.reading is not None)

    @property
    def newest(self) -> GpusReading:
        """The newest reading; before the first is complete, what it has so far if that may be used, else nothing."""
        if self.reading is not None:
            return self.reading
        if not self.looks_once:
            return NOTHING_READ
        here = self._reader.session.progress()
        return GpusReading(0.0, here.read, here.processes, hung=here.hung)

    def _run(self) -> None:
        due = monotonic() + self._interval_s
        paired = False
        while not self._stopping:
            now = monotonic()
            if self._nvml.reads != self._nvml_reads:
                self._take_reading(now)
            if self._proc_due and self._proc.busy_since is None and now >= self._proc_from:
                self._proc_due = False
                self._proc.ask()
            asked = self._proc_asked_at
            done = not self._proc_due and self._proc.busy_since is None
            if (done and self._is_owed) or (asked is not None and (done or now - asked >= self._patience_s)):
                self._proc_asked_at = None
                self._is_owed = not done and self.reading is not None and not self._knows_processes
                self._publish()
                if not paired and self.reading is not None:
                    paired = True
                    due = min(due, max(now, self._reading_at + PAIR_S))
            if now >= due:
                # A late thread skips ticks: it never tries to catch up.
                due = max(due + self._interval_s, now)
                self._tick(now)
            self._set_hung_aside()
            soonest = due
            if self._proc_asked_at is not None:
                soonest = min(soonest, self._proc_asked_at + self._patience_s)
            if self._proc_due and self._proc.busy_since is None:
                soonest = min(soonest, self._proc_from)
            if self._nvml.busy_since is not None:
                soonest = min(soonest, now + LOOK_AGAIN_S)
            self._wake.wait(max(0.0, soonest - monotonic()))
            self._wake.clear()

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
        self._nvml_reads = self._nvml.reads
        is_first = self.reading is None
        if self._nvml.error is None:
            self.reading, self._reading_at = self._nvml.latest, self._nvml.latest_at
            self._retry_s = FIRST_RETRY_S
        elif isinstance(self._nvml.error, SourceError):
            self._retry_at = now + self._retry_s
            self._retry_s = min(LAST_RETRY_S, 2 * self._retry_s)
        self._ask_proc(now)
        if is_first and not self.looks_once and self.reading is not None and len(self.reading.processes) > AWAITED:
            self._patience_s, self._proc_from = 0.0, now + DRAWN_S

    @property
    def _knows_processes(self) -> bool:
        """Whether a pass over /proc has ended that knew the GPUs' processes."""
        return self.host is not None and self.host.knew_gpus

    def _ask_proc(self, now: float) -> None:
        self._patience_s = PROC_GRACE_ONCE_S if self.looks_once else PROC_GRACE_S
        self._proc_asked_at = now
        self._proc_due = True
        self._wake.set()

    def _set_hung_aside(self) -> None:
        ticket = self._reader.session.supersede(self.hung_s)
        if ticket is not None:
            self._nvml = self._nvml_thread(ticket)
            self._nvml_reads = 0
            self._nvml.start()
