"""Samples wait states at random moments between readings, while GPUs wait.

With samples at fixed intervals, a job whose step time divides the interval would always be sampled at the same point of
its step, and seem to wait only there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct

from gputop.sources.processes.process_threads import LEAST_THREADS, MOST_THREADS
from gputop.sources.processes.wait_graph import NO_JOB, Job, SeenWait, WaitGraph
from gputop.sources.processes.wait_look import ThreadWait, WaitLook
from gputop.sources.procfs import Descriptors, ProcessFiles
from gputop.system.worker import Worker

if TYPE_CHECKING:
    from random import Random

LEAST_LOOKS, MOST_LOOKS = 2, 6
"""Limits of samples between two readings, each at a random moment of its part of the interval: 180 samples in half a
minute give a share to within three points."""
READ_OF_MAINS = 40
"""Budget of main threads that all samples between two readings may read, unless the minimum takes more."""
LEAST_OTHERS = 4
LONGEST_S = 5.0
OF_A_START = 2
"""The first readings follow each other at once, so their interval does not predict the next one."""
MOST_AT_ONCE = 16
"""Limit of processes of each kind per sample; more take turns. Each sample covers fewer processes that hold no GPU."""
MOST_OPEN = 64
"""Limit of wait channels that stay open: reading one again costs a third of opening it."""


class LookedAt(Struct, frozen=True):
    """Sampling plan: processes, and the jobs of their wait targets.

    ``mains`` are read in each sample, ``others`` as often as fits. ``inside`` are processes whose other threads may
    delay them. ``apart`` do not count as children of a waiting process: they are judged by themselves. ``jobs`` maps
    each process to its possible wait targets.
    """

    mains: Sequence[int] = ()
    others: Sequence[int] = ()
    inside: Collection[int] = ()
    apart: Collection[int] = ()
    jobs: Mapping[int, Job] = MappingProxyType({})


class _Turns:
    """Selects some of many items, all in turn."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, pids: Sequence[int], limit: int = MOST_AT_ONCE) -> Sequence[int]:
        if len(pids) <= limit:
            return pids
        begin = self._next % len(pids)
        self._next = begin + limit
        return [*pids[begin:], *pids[:begin]][:limit]


class WaitSampler:
    """Samples the wait states of processes, on its own thread.

    Sampling starts after each reading; a reading may also request samples directly. ``look`` and ``graph`` are used
    under ``lock`` alone. So is ``also``, which is called once between two readings for other reads that must not be in
    step with them.
    """

    def __init__(self, proc: str, look: WaitLook, graph: WaitGraph, also: Callable[[float], None]) -> None:
        self._proc = proc
        self._graph = graph
        self._also = also
        self._at = look
        self._random: Random | None = None
        """Created, and imported, with the thread: most starts need neither."""
        self._worker = Worker("looks", self._look_now_and_then, close=lambda: self._forget(list(self._files)))
        self._watched = LookedAt()
        self._main_turns, self._other_turns = _Turns(), _Turns()
        self._descriptors = Descriptors(MOST_OPEN)
        self._files: dict[int, ProcessFiles] = {}
        """Open files by pid. They belong to the process, not to its pid: reading fails once the process has ended."""
        self._due: list[float] = []
        self._last: float | None = None
        self._readings = 0
        self._looks: dict[int, list[SeenWait]] = {}
        self.lock = threading.Lock()

    def take(self) -> dict[int, list[SeenWait]]:
        """Return samples of each process since the last call.

        Call it under the lock.
        """
        looks, self._looks = self._looks, {}
        return looks

    def now(self, now: float, waits: Mapping[int, ThreadWait], watched: LookedAt) -> dict[int, list[SeenWait]]:
        """Return one sample for each waiting process of a reading.

        Call it under the lock.
        """
        most = self._most_threads(watched, watched.inside)
        return {pid: [self._seen(now, pid, wait, watched, most)] for pid, wait in waits.items()}

    def ask(self, watched: LookedAt) -> None:
        """Set the sampling plan and the moments of the next samples.

        The interval of the last two readings predicts the next reading.
        """
        now = time.monotonic()
        last, self._last = self._last, now
        self._watched = watched
        # The last two readings predict the next one; until then there are no samples and no thread.
        self._readings += 1
        if last is None or self._readings <= OF_A_START or not (watched.mains or watched.others):
            return
        span = min(LONGEST_S, now - last)
        if self._random is None:
            from random import Random

            self._random = Random()
        looks = max(LEAST_LOOKS, min(MOST_LOOKS, READ_OF_MAINS // max(1, len(watched.mains))))
        self._due = [now + span * (part + self._random.random()) / looks for part in range(looks)]
        self._worker.ask()

    def close(self) -> None:
        """End the sampling thread."""
        self._worker.stop()

    def _look_now_and_then(self) -> None:
        """Take a sample at each due moment, until new moments are set."""
        assert self._random is not None
        due = self._due
        first, other_limit = self._random.randrange(len(due)), max(LEAST_OTHERS, MOST_AT_ONCE // len(due))
        for number, moment in enumerate(due):
            if self._worker.stopping.wait(max(0.0, moment - time.monotonic())) or due is not self._due:
                break
            with self.lock:
                now, watched = time.monotonic(), self._watched
                mains, others = (
                    self._main_turns.take(watched.mains),
                    self._other_turns.take(watched.others, other_limit),
                )
                self._look(now, watched, [*mains, *others])
                if number == first:
                    self._also(now)
        self._forget(self._files.keys() - {*self._watched.mains, *self._watched.others})

    def _look(self, now: float, watched: LookedAt, pids: Sequence[int]) -> None:
        most = self._most_threads(watched, pids)
        for pid in pids:
            files = self._files.get(pid)
            if files is None:
                files = self._files[pid] = ProcessFiles(f"{self._proc}/{pid}", self._descriptors)
            try:
                channel = files.read("wchan").decode("ascii", "replace")
            except OSError:
                self._forget((pid,))
                continue
            wait = self._at.at(now, pid, f"{self._proc}/{pid}", channel, files)
            self._looks.setdefault(pid, []).append(self._seen(now, pid, wait, watched, most))

    def _seen(self, now: float, pid: int, wait: ThreadWait, watched: LookedAt, most_threads: int) -> SeenWait:
        threads = most_threads if pid in watched.inside else 0
        return self._graph.look(now, pid, wait, watched.jobs.get(pid, NO_JOB), watched.apart, threads)

    @staticmethod
    def _most_threads(watched: LookedAt, pids: Collection[int]) -> int:
        """Return the limit of threads per process for one sample."""
        return max(LEAST_THREADS, MOST_THREADS // max(1, sum(pid in watched.inside for pid in pids)))

    def _forget(self, pids: Iterable[int]) -> None:
        for pid in pids:
            self._files.pop(pid).close()


# GPUs that wait, by mean utilisation over some seconds: one quiet sample does not start close sampling.

WAITS_BELOW_UTIL = 85.0
"""Workers of a GPU below this mean utilisation are sampled closely: starvation begins at 80."""
MEAN_S = 10.0


class WaitingGpus:
    """Mean utilisation of GPUs, by index."""

    def __init__(self) -> None:
        self._means: dict[int, float] = {}
        self.at: float | None = None
        """Monotonic time of the latest values."""

    def observe(self, now: float, util: Mapping[int, float | None]) -> None:
        """Add the utilisation of each GPU, percent."""
        weight = 1.0 if self.at is None else min(1.0, max(0.0, (now - self.at) / MEAN_S))
        self.at = now
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
