"""Samples wait states at random moments between readings.

With samples at fixed intervals, a job whose step time divides the interval would always be sampled at the same point of
its step, and seem to wait only there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from gputop.sources.processes.look.process_threads import LEAST_THREADS, MOST_THREADS
from gputop.sources.processes.look.wait_state import (
    UNREAD,
    Job,
    WaitClassifier,
    WaitObservation,
    WaitState,
)
from gputop.sources.processes.resolve.tracked_process import TrackedProcess, TrackedProcesses
from gputop.sources.processes.resolve.wait_target import WaitResolver
from gputop.sources.procfs import Descriptors
from gputop.system.worker import Worker

if TYPE_CHECKING:
    from random import Random

LEAST_SAMPLES, MOST_SAMPLES = 2, 6
"""Limits of samples in an interval of a second or more, each at a random moment of its part; a shorter interval has its
part of them, at least one. 180 samples in half a minute give a share to within three points."""
READS_OF_MAINS = 40
"""Budget of main threads that all samples between two readings may read, unless the minimum takes more."""
LEAST_WORKERS = 4
LONGEST_S = 5.0
READINGS_OF_A_START = 2
"""The first readings follow each other at once, so their interval does not predict the next one."""
MOST_AT_ONCE = 16
"""Limit of processes of each kind per sample; more take turns. Each sample covers fewer processes that hold no GPU."""
MOST_OPEN = 64
"""Limit of wait channels that stay open: reading one again costs a third of opening it."""


class SamplingPlan(Struct, frozen=True):
    """Processes to sample, and the jobs of their wait targets.

    ``mains`` are read in each sample, ``workers`` of waiting GPUs and the ``background`` in turns. ``threaded`` are
    processes whose other threads may delay them. ``independent`` do not count as children of a waiting process: they
    are judged by themselves. ``jobs`` maps each process whose waits are followed to its possible targets.
    """

    mains: Sequence[int] = ()
    workers: Sequence[int] = ()
    background: Sequence[int] = ()
    threaded: Collection[int] = ()
    independent: Collection[int] = ()
    jobs: Mapping[int, Job] = {}


class RoundRobin:
    """Selects some of many items, all in turn."""

    def __init__(self) -> None:
        self._next = 0

    def next_of(self, pids: Sequence[int], limit: int) -> Sequence[int]:
        """Return the next items, at most ``limit``."""
        if len(pids) <= limit:
            return pids
        begin = self._next % len(pids)
        self._next = begin + limit
        return [*pids[begin:], *pids[:begin]][:limit]


class WaitSampler:
    """Samples the wait states of processes, on its own thread.

    ``tracked``, ``classifier`` and ``resolver`` are used under ``lock`` alone. So is ``also``, which is called once
    between two readings for other reads that must not be in step with them.
    """

    def __init__(
        self,
        tracked: TrackedProcesses,
        classifier: WaitClassifier,
        resolver: WaitResolver,
        also: Callable[[float], None],
    ) -> None:
        self._tracked = tracked
        self._classifier = classifier
        self._resolver = resolver
        self._also = also
        self._random: Random | None = None
        """Created, and imported, with the thread: most starts need neither."""
        self._worker = Worker("looks", self._sample_when_due, close=self._close_channels)
        self._plan = SamplingPlan()
        self._mains, self._workers, self._background = RoundRobin(), RoundRobin(), RoundRobin()
        self._descriptors = Descriptors(MOST_OPEN)
        self._due: list[float] = []
        self._planned_at: float | None = None
        self._readings = 0
        self.lock = threading.Lock()

    def set_plan(self, plan: SamplingPlan) -> None:
        """Set the sampling plan and the moments of the next samples.

        The interval of the last two readings predicts the next reading; until then there are no samples and no thread.
        """
        now = time.monotonic()
        last, self._planned_at = self._planned_at, now
        self._plan = plan
        self._readings += 1
        if last is None or self._readings <= READINGS_OF_A_START:
            return
        if not (plan.mains or plan.workers or plan.background):
            self._due = []
            if self._has_channels():
                self._worker.ask()
            return
        span = min(LONGEST_S, now - last)
        if self._random is None:
            from random import Random

            self._random = Random()
        # Where no GPU waits, no verdict needs exact shares.
        most = MOST_SAMPLES if plan.jobs else LEAST_SAMPLES
        samples = max(LEAST_SAMPLES, min(most, READS_OF_MAINS // max(1, len(plan.mains))))
        samples = max(1, int(samples * min(1.0, span)))
        self._due = [
            now + span * (part + self._random.random()) / samples for part in range(samples)
        ]
        self._worker.ask()

    @property
    def error(self) -> Exception | None:
        """Exception of the newest samples, or None."""
        return self._worker.error

    def close(self) -> None:
        """End the sampling thread."""
        self._worker.stop()

    def sample(
        self, now: float, worker_limit: int = MOST_AT_ONCE, *, is_first: bool = True
    ) -> None:
        """Take one sample, under the lock; the first of a reading does the other reads."""
        if is_first:
            self._also(now)
        plan = self._plan
        pids = [
            *self._mains.next_of(plan.mains, MOST_AT_ONCE),
            *self._workers.next_of(plan.workers, worker_limit),
            *self._background.next_of(plan.background, worker_limit),
        ]
        threaded = sum(pid in plan.threaded for pid in pids)
        threads = max(LEAST_THREADS, MOST_THREADS // max(1, threaded))
        for pid in pids:
            process = self._tracked.member(pid)
            state = None if process is None else self._main_state(now, process)
            if process is None or state is None:
                continue
            job = plan.jobs.get(pid)
            if job is None:
                process.observations.append(WaitObservation(now, pid, pid, state))
                continue
            most_threads = threads if pid in plan.threaded else 0
            process.observations += self._resolver.follow_wait(
                now, pid, state, job, plan.independent, most_threads
            )

    def _main_state(self, now: float, process: TrackedProcess) -> WaitState | None:
        """Return the state of a process's main thread; None once it has ended."""
        pid, folder = process.pid, process.folder
        try:
            channel = process.read_channel(self._descriptors)
        except OSError:
            process.close_channel()
            return None
        state = self._classifier.classify(now, pid, folder, channel)
        if state.kind != UNREAD:
            return state
        # It runs, or the kernel does not name the channel.
        found = self._classifier.classify_thread(now, pid, folder)
        if found is None:
            return None
        _, state = found
        return state

    def _sample_when_due(self) -> None:
        """Take a sample at each due moment, until new moments are set."""
        assert self._random is not None
        due = self._due
        # Without a due moment only the open files are closed.
        number_due = max(1, len(due))
        first = self._random.randrange(number_due)
        worker_limit = max(LEAST_WORKERS, MOST_AT_ONCE // number_due)
        for number, moment in enumerate(due):
            wait_s = max(0.0, moment - time.monotonic())
            if self._worker.stopping.wait(wait_s) or due is not self._due:
                break
            with self.lock:
                self.sample(time.monotonic(), worker_limit, is_first=number == first)
        plan = self._plan
        sampled = {*plan.mains, *plan.workers, *plan.background}
        with self.lock:
            for process in self._tracked.members():
                if process.pid not in sampled:
                    process.close_channel()

    def _has_channels(self) -> bool:
        return any(process.has_channel for process in self._tracked.members())

    def _close_channels(self) -> None:
        for process in self._tracked.members():
            process.close_channel()


WAITS_BELOW_UTIL = 85.0
"""Workers of a GPU below this mean utilisation are sampled closely: starvation begins at 80."""
MEAN_S = 10.0


class WaitingGpus:
    """Mean utilisation of GPUs over some seconds, by index.

    One quiet sample does not start close sampling.
    """

    def __init__(self) -> None:
        self._means: dict[int, float] = {}
        self._observed_at = float("-inf")

    def add_util(self, now: float, util: Mapping[int, float | None]) -> None:
        """Add the utilisation of each GPU, percent."""
        weight = min(1.0, max(0.0, (now - self._observed_at) / MEAN_S))
        self._observed_at = now
        for gpu, value in util.items():
            if value is not None:
                before = self._means.get(gpu, value)
                self._means[gpu] = before + weight * (value - before)

    def waits(self, gpu: int, *, unknown: bool) -> bool:
        """Return whether a GPU waits.

        ``unknown`` is returned if its utilisation was never known.
        """
        mean = self._means.get(gpu)
        return unknown if mean is None else mean < WAITS_BELOW_UTIL

    def busy(self, gpu: int) -> float:
        """Mean utilisation as a share; 0 if unknown."""
        return self._means.get(gpu, 0.0) / 100.0
