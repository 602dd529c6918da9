"""When processes are looked at for what they wait for: at random moments between two readings, while their GPU waits.

A job whose step time divides the interval would otherwise always be seen at the same point of its step, and seem to
wait only for what it waits for there.
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
"""Looks between two readings, each at a random moment of its share of the time: over half a minute 180 looks tell a
share to within three points."""
READ_OF_MAINS = 40
"""Main threads that all looks between two readings may read, where that is more than the least takes."""
LEAST_OTHERS = 4
LONGEST_S = 5.0
OF_A_START = 2
"""The first readings follow each other at once, so their distance does not predict the next one."""
MOST_AT_ONCE = 16
"""Processes of each kind that one look covers; more take turns. Of others than GPU processes, one look in two does."""
MOST_OPEN = 64
"""Wait channels that stay open between looks: reading one again costs a third of opening it."""


class LookedAt(Struct, frozen=True):
    """Whom to look at. ``jobs`` has for each process who may be at the other end of its waits.

    ``mains`` are looked at each time, ``others`` as often as fits. Of those ``inside`` the other threads may be what
    holds them up. ``apart`` do not count as children of whoever waits for them: they are judged by themselves.
    """

    mains: Sequence[int] = ()
    others: Sequence[int] = ()
    inside: Collection[int] = ()
    apart: Collection[int] = ()
    jobs: Mapping[int, Job] = MappingProxyType({})


class _Turns:
    """Picks some of many items, all in turn."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, pids: Sequence[int], limit: int = MOST_AT_ONCE) -> Sequence[int]:
        if len(pids) <= limit:
            return pids
        begin = self._next % len(pids)
        self._next = begin + limit
        return [*pids[begin:], *pids[:begin]][:limit]


class WaitSampler:
    """Looks at what some processes wait for, after each reading on a thread of its own, or when a reading says so.

    ``look`` and ``graph`` are used under ``lock`` alone; so is ``also``, which is called once between two readings for
    other reads that must not be in step with them.
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
        """By pid. An open file belongs to the process, not to its pid: reading it fails once the process has ended."""
        self._due: list[float] = []
        self._last: float | None = None
        self._readings = 0
        self._looks: dict[int, list[SeenWait]] = {}
        self.lock = threading.Lock()

    def take(self) -> dict[int, list[SeenWait]]:
        """The looks at each process since the last call. To be called under the lock."""
        looks, self._looks = self._looks, {}
        return looks

    def now(self, now: float, waits: Mapping[int, ThreadWait], watched: LookedAt) -> dict[int, list[SeenWait]]:
        """One look at each process that a reading found waiting like this. To be called under the lock."""
        most = self._most_threads(watched, watched.inside)
        return {pid: [self._seen(now, pid, wait, watched, most)] for pid, wait in waits.items()}

    def ask(self, watched: LookedAt) -> None:
        """Look at these from now on, if the next reading comes about on time."""
        now = time.monotonic()
        last, self._last = self._last, now
        self._watched = watched
        # The time of the next reading is predicted by the last two; until then there are no looks and no thread.
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
        """End the thread."""
        self._worker.stop()

    def _look_now_and_then(self) -> None:
        """Look at each moment that is due, until new ones are."""
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
        """How many threads of each process one look reads."""
        return max(LEAST_THREADS, MOST_THREADS // max(1, sum(pid in watched.inside for pid in pids)))

    def _forget(self, pids: Iterable[int]) -> None:
        for pid in pids:
            self._files.pop(pid).close()


# Which GPUs wait: their mean utilisation over some seconds, so that one quiet sample does not cost a close look.

WAITS_BELOW_UTIL = 85.0
"""Below this mean utilisation a GPU's feeders are watched closely: starvation begins at 80."""
MEAN_S = 10.0


class WaitingGpus:
    """The means by the GPUs' indices."""

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
        """Whether a GPU waits; ``unknown`` where its utilisation has never been known."""
        mean = self._means.get(gpu)
        return unknown if mean is None else mean < WAITS_BELOW_UTIL

    def busy(self, gpu: int) -> float:
        """Mean utilisation as a share; 0 where it is unknown."""
        return self._means.get(gpu, 0.0) / 100.0
