"""Polls this machine: the GPUs, then the processes that they name; both together are a tick.

A tick, and a call that hangs::

    time        0 ms      20            60           1,000          2,000 ...       4,100
    NVML        [reading ]                          [reading, its call on GPU 3 hangs .........]
                          |                         |              |               | set aside after 2 s:
    NVML, new   |         |                         |              |  late         [reading of the others]
    /proc       |         [ pass over  ]            |              [ pass ]        |        [ pass ]
                |         | processes  |            |              |      |        |                 |
    snapshots   |         |            * tick       |              |      * late   |                 * GPU 3 is hung

One coroutine asks, waits with a limit, and goes on: it calls no driver and reads no file, so nothing that hangs holds
it. In the screen it runs in the loop, everywhere else by ``run_here`` on a thread. Its state is in the object: a run
that is cancelled is taken up by the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf

from gputop.model.source import FAST_FOR_S, FAST_S, SourceError, UsageError, unexpected
from gputop.sources.activity.choose_sources import SmReaders
from gputop.sources.nvml.gpm import CLOSEST_PAIR_S
from gputop.sources.nvml.gpu_device import GpusReading
from gputop.sources.nvml.nvml_session import NvmlSession
from gputop.sources.pollers.host import LEAST_HOST_S
from gputop.sources.pollers.nvml import NOTHING_READ, NvmlPoller, never
from gputop.sources.pollers.process import HostReading, KnownGpus, ProcessPoller
from gputop.sources.selection import MachineOptions
from gputop.system.awaited import News

LATE_S = 1.0
"""A read that takes longer, and longer than the interval, is late: snapshots then go on without it."""
OLD_S = 10.0
"""Process data older than this are said to be old."""
PAIR_S = 0.25
"""Distance of the first two reads of what goes on: no value should be missing for a whole tick."""
LIVE_GRACE_S, ONCE_GRACE_S = 0.15, 0.8
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


class Beat:
    """When ticks are due.

    They come once an interval, and faster for some seconds after a start and after a job's first kernels. A late one
    is skipped, never made up for. ``interval_s`` is the expected distance of the newest tick from the one before.
    """

    def __init__(self, interval_s: float, *, is_quick: bool) -> None:
        self.interval_s = interval_s
        self.due = inf
        """When the next tick is due, monotonic s."""
        self._usual_s = self._next_s = interval_s
        self._is_quick = is_quick
        self._fast_until = self._hurried_at = -inf

    def start(self, now: float, first_s: float) -> None:
        """Begin: a tick is due after ``first_s`` at the latest."""
        self.due = now + first_s
        self.hurry(now)
        self.interval_s = self._next_s

    def falls_due(self, now: float) -> None:
        """Count the tick that is due, and choose the time of the next."""
        self.interval_s = self._next_s
        is_fast = now < self._fast_until
        self._next_s = min(FAST_S, self._usual_s) if is_fast else self._usual_s
        self.due = max(self.due + self._next_s, now)

    def hurry(self, now: float) -> None:
        """Tick faster for some seconds, so that a first verdict comes soon."""
        if not self._is_quick or now - self._hurried_at < HURRIES_EVERY_S:
            return
        self._hurried_at, self._fast_until = now, now + FAST_FOR_S
        self._next_s = min(FAST_S, self._usual_s)
        self.due = min(self.due, now + self._next_s)


class MachinePoller:
    """Polls GPUs, processes and host, and says when a tick is complete.

    The second tick follows soon after the first: GPM and all rates need two. Then there is one an interval, and one
    without new values of the GPUs while NVML is late. A command that reads once ends with the second tick, which
    follows as soon as two samples of GPM may follow each other (``read_twice``).
    """

    def __init__(
        self, options: MachineOptions, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``clock`` gives monotonic seconds. Raises UsageError for an invalid address of an exporter."""
        self._options, self._clock = options, clock
        self._once = False
        self._interval_s = options.interval_s
        news = News()
        sm_readers = SmReaders(options.interval_s, options.proc, options.sm)
        self.nvml = NvmlPoller(
            NvmlSession(options, sm_readers.readers_for),
            sm_readers,
            hung_s=options.hung_s,
            unix_time=options.clock,
            news=news,
            clock=clock,
        )
        self.processes = ProcessPoller(options.proc, self._known_gpus, news=news, clock=clock)
        self.beat = Beat(options.interval_s, is_quick=options.is_quick)
        self.published_readings = 0
        """How many of NVML's readings were part of a tick."""
        self._grace_s, self._pair_s = LIVE_GRACE_S, PAIR_S
        self.is_stopped = False
        self._has_begun = self._has_ticked = self._is_paired = False
        self._lacks_processes = False
        """Whether the newest tick came before the first pass over the GPUs' processes had ended: then another one
        follows as soon as it has."""
        self._have_run: frozenset[int] = frozenset()
        """Processes whose kernels were seen to run."""
        self._error: Exception | None = None

    def read_twice(self) -> None:
        """Poll for a command that ends with the second tick; called before anything is polled."""
        self._once = True
        self._grace_s = ONCE_GRACE_S
        self._pair_s = max(CLOSEST_PAIR_S, self._options.pair_s)
        self.nvml.hung_s = min(self._options.hung_s, HUNG_ONCE_S)
        self.processes.reads_host = True

    async def run(self, publish: Callable[[], object]) -> None:
        """Poll until stopped; call ``publish`` at each tick.

        What it raises costs that tick alone.
        """
        while not self.is_stopped:
            if not await self.ticks():
                continue
            try:
                publish()
                self._error = None
            except Exception as error:  # noqa: BLE001 - whatever it is, the next snapshot may be sound
                self._error = error

    async def ticks(self, until: float = inf) -> bool:
        """Poll until a tick is complete; False at monotonic ``until``, or where there is none yet."""
        self._begin()
        if await self.nvml.reads(min(until, self.beat.due), unless=self._has_late_processes):
            if self.nvml.failure is not None and not self._has_ticked:
                # Nothing can be measured: whoever starts is told so at once.
                return False
            self._hurry_at_first_kernels()
            is_late = False
        elif self._has_late_processes():
            self._end_tick(has_pass=True)
            return True
        elif self._clock() < self.beat.due or self.is_stopped:
            return False
        else:
            self.beat.falls_due(self._clock())
            if self._begins_reading():
                return False
            is_late = True
        # A reading that comes while a late tick waits for /proc makes a tick of its own.
        ends_wait = self._has_reading if is_late else never
        has_pass = await self._reads_processes(ends_wait)
        if self.is_stopped or ends_wait():
            return False
        self._end_tick(has_pass=has_pass)
        return True

    async def _reads_processes(self, ends_wait: Callable[[], bool]) -> bool:
        """Wait for a pass over /proc, for the time of grace; False without one.

        A tick that falls due meanwhile has its reading begun: ticks as short as a pass are not missed.
        """
        number = self.processes.begin_pass()
        grace_at = self._clock() + self._grace_s
        aside = self.nvml.set_hung_call_aside
        while not self.is_stopped:
            until = min(grace_at, self.beat.due)
            if await self.processes.reads(number, until, ends_wait, meanwhile=aside):
                return True
            now = self._clock()
            if now >= grace_at or ends_wait():
                return False
            if now >= self.beat.due:
                self.beat.falls_due(now)
                # Not while one waits to be taken: the next would replace it, and its events would be lost.
                if not self.nvml.has_ended:
                    self._begins_reading()
        return False

    def ask_driver(self) -> None:
        """Start the first reading of the GPUs, and nothing else yet."""
        self.nvml.ask()

    def stop(self, timeout_s: float) -> None:
        """End all threads; leave hanging ones after ``timeout_s``."""
        deadline = self._clock() + timeout_s
        self.is_stopped = True
        self.nvml.sm_readers.stop()
        self.nvml.stop()
        self.processes.stop()
        self.nvml.stop(deadline - self._clock())
        self.processes.stop(deadline - self._clock())

    # -- what was read ----------------------------------------------------------------------------------------------

    @property
    def host(self) -> HostReading | None:
        """Return the newest pass over the host and its processes."""
        return self.processes.latest

    @property
    def newest(self) -> GpusReading:
        """Return the newest reading of the GPUs.

        Before the first is complete it is empty, or for a command that reads once the partial one.
        """
        if self.nvml.reading is not None:
            return self.nvml.reading
        return self.nvml.session.progress() if self._once else NOTHING_READ

    @property
    def is_complete(self) -> bool:
        """Whether every GPU was read twice, with its processes."""
        nvml = self.nvml
        if nvml.reading is None or self.host is None:
            return False
        if nvml.reading.hung:
            return False
        return min(nvml.readings, self.published_readings) >= 2

    def stale(self) -> dict[str, float]:
        """Return the age in seconds of each late poller's data."""
        now, ages = self._clock(), {}
        nvml_age_s = now - self.nvml.reading_at
        if nvml_age_s > self._late_s + self._interval_s or self._is_late(self.nvml.busy_since):
            ages["nvml"] = nvml_age_s
        proc_since = self.processes.busy_since
        if self._is_late(proc_since):
            ages["proc"] = now - (self.processes.latest_at or proc_since or now)
        return ages

    def troubles(self) -> list[str]:
        """Describe the failures of the pollers."""
        lines = []
        for name, error in (("NVML", self.nvml.error), ("/proc", self.processes.error)):
            if isinstance(error, SourceError | UsageError):
                lines.append(str(error))
            elif error is not None:
                lines.append(f"reading {name} failed: {type(error).__name__}: {error}")
        if self._error is not None:
            lines.append(f"the snapshot before could not be made: {unexpected(self._error)}")
        old_s = self.stale().get("proc", 0.0)
        if old_s > OLD_S:
            lines.append(
                f"/proc does not answer: process data are {old_s:.0f} s old and no evidence; "
                "is a file system hung under a job?"
            )
        if self._hears_nothing:
            silent_s = self._clock() - self.nvml.reading_at
            lines.append(f"NVML has not answered for {silent_s:.1f} s: is the driver hung?")
        return lines

    @property
    def _hears_nothing(self) -> bool:
        """Whether the driver has never answered, neither with a value nor with an error."""
        if self.nvml.reading is not None or self.nvml.error is not None:
            return False
        return not self.nvml.session.progress().gpus

    @property
    def _late_s(self) -> float:
        # A little less, or a read that began with one tick would count as late only after the tick that should say so.
        return 0.95 * max(LATE_S, self._interval_s)

    def _is_late(self, busy_since: float | None) -> bool:
        return busy_since is not None and self._clock() - busy_since > self._late_s

    # -- ticks ------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Start the beat, once.

        Where the driver has answered, the first pass knows the GPUs' processes. Otherwise a pass without them finds
        all others in the meantime, which is most of the work.
        """
        if self._has_begun:
            return
        self._has_begun = True
        if not self.nvml.has_begun and not self._once:
            self.processes.ask()
        self.beat.start(self._clock(), SILENT_S if self._once else self._interval_s)

    def _begins_reading(self) -> bool:
        """Whether a tick that is due waits for a reading of the GPUs.

        It does not where the reading is late, and while the driver rests.
        """
        if self.nvml.busy_since is not None:
            return not (self._once or self._is_late(self.nvml.busy_since))
        if self.nvml.rests:
            return False
        self.nvml.ask()
        return True

    def _end_tick(self, *, has_pass: bool) -> None:
        """Note a tick; ``has_pass`` if its pass over /proc has ended."""
        has_reading = self.nvml.reading is not None
        self._lacks_processes = False
        if has_reading and not has_pass:
            self._lacks_processes = not self._knows_processes
        self.published_readings = self.nvml.readings
        self._has_ticked = True
        self.processes.reads_host = True
        if self._is_paired:
            return
        self._is_paired = has_reading
        if not has_reading:
            return
        pair_at = max(
            self._clock(),
            self.nvml.reading_at + self._pair_s,
            self.processes.latest_at + LEAST_HOST_S,
        )
        self.beat.due = pair_at if self._once else min(self.beat.due, pair_at)

    def _has_late_processes(self) -> bool:
        """Whether the pass that the newest tick lacked has ended."""
        return self._lacks_processes and self._knows_processes

    @property
    def _knows_processes(self) -> bool:
        """Whether a pass over the GPUs' processes has ended."""
        return self.host is not None and self.host.knew_gpus

    def _has_reading(self) -> bool:
        return self.nvml.has_ended

    def _known_gpus(self) -> KnownGpus:
        return KnownGpus(self.newest, self.nvml.reading is not None)

    def _hurry_at_first_kernels(self) -> None:
        """Tick faster where the GPU of a process runs kernels for the first time."""
        reading = self.nvml.reading
        if reading is None or self.nvml.error is not None:
            return
        busy = {gpu.static.index for gpu in reading.gpus if (gpu.util_pct or 0.0) >= RUNS_UTIL}
        run = frozenset(process.pid for process in reading.processes if process.gpu in busy)
        is_first = not run <= self._have_run
        living = frozenset(process.pid for process in reading.processes)
        self._have_run = living & (self._have_run | run)
        if is_first:
            self.beat.hurry(self._clock())
