"""Looks between two readings, at random moments: a job whose step time divides the interval would otherwise always be
seen at the same point of its step, and seem to wait only for what it waits for there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gputop.sources.procfs import Descriptors, ProcessFiles

if TYPE_CHECKING:
    from random import Random


LOOKS = 2
"""Looks between two readings, each at a random moment of its share of the time."""
LONGEST_S = 5.0
OF_A_START = 2
"""The first readings follow each other at once, so their distance does not predict the next one."""
MOST_AT_ONCE = 16
"""Processes of each kind that one look covers; more take turns."""
MOST_OPEN = 64
"""Wait channels that stay open between looks: reading one again costs a third of opening it."""


class _Turns:
    """Picks some of many items, all in turn."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, pids: Sequence[int]) -> Sequence[int]:
        if len(pids) <= MOST_AT_ONCE:
            return pids
        begin = self._next % len(pids)
        self._next = begin + MOST_AT_ONCE
        return [*pids[begin:], *pids[:begin]][:MOST_AT_ONCE]


class LooksBetween:
    """Looks at the wait channels of some processes after each reading, on a thread of its own.

    ``also`` is called once with each look, under ``lock``, for other reads that must not be in step with the readings.
    """

    def __init__(self, proc: str, also: Callable[[float], None]) -> None:
        self._proc = proc
        self._also = also
        self._random: Random | None = None
        """Created, and imported, with the thread: most starts need neither."""
        self._asked = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._mains: Sequence[int] = ()
        self._others: Sequence[int] = ()
        self._main_turns, self._other_turns = _Turns(), _Turns()
        self._descriptors = Descriptors(MOST_OPEN)
        self._files: dict[int, ProcessFiles] = {}
        """By pid. An open file belongs to the process, not to its pid: reading it fails once the process has ended."""
        self._due: list[float] = []
        self._last: float | None = None
        self._readings = 0
        self._seen: dict[int, list[str]] = {}
        self.lock = threading.Lock()

    def take(self) -> dict[int, list[str]]:
        """The kernel functions in which each process slept at the looks since the last call; "0" where it ran."""
        with self.lock:
            seen, self._seen = self._seen, {}
        return seen

    def ask(self, mains: Sequence[int], others: Sequence[int] = ()) -> None:
        """Look at ``mains`` each time, and at ``others`` once, if the next reading comes about on time."""
        now = time.monotonic()
        last, self._last = self._last, now
        self._mains, self._others = mains, others
        # The time of the next reading is predicted by the last two; until then there are no looks and no thread.
        self._readings += 1
        if last is None or self._readings <= OF_A_START or not (mains or others):
            return
        span = min(LONGEST_S, now - last)
        if self._random is None:
            from random import Random

            self._random = Random()
        self._due = [now + span * (part + self._random.random()) / LOOKS for part in range(LOOKS)]
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gputop-looks", daemon=True)
            self._thread.start()
        self._asked.set()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._asked.set()

    def _run(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            if self._closing.is_set():
                break
            assert self._random is not None
            due, first = self._due, self._random.randrange(LOOKS)
            for number, moment in enumerate(due):
                if self._closing.wait(max(0.0, moment - time.monotonic())):
                    break
                if due is not self._due:
                    break
                with self.lock:
                    self._look(self._main_turns.take(self._mains))
                    if number == first:
                        self._look(self._other_turns.take(self._others))
                        self._also(time.monotonic())
            self._forget(self._files.keys() - {*self._mains, *self._others})
        self._forget(list(self._files))

    def _look(self, pids: Sequence[int]) -> None:
        for pid in pids:
            files = self._files.get(pid)
            if files is None:
                files = self._files[pid] = ProcessFiles(f"{self._proc}/{pid}", self._descriptors)
            try:
                channel = files.read("wchan").decode("ascii", "replace")
            except OSError:
                self._forget((pid,))
                continue
            self._seen.setdefault(pid, []).append(channel)

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
