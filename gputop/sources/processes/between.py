"""Looks between two readings, at a random moment: a job whose step fits the interval would else always be seen at the
same point of it, and what it waits for would be what it happens to wait for then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from random import Random

from gputop.sources.procfs import read_small

LOOKS = 2
"""Looks between two readings: each at a random moment of its half of the time."""
LONGEST_S = 5.0


class LooksBetween:
    """Looks at the wait channels of some processes after each reading, on a thread of its own.

    ``also`` is called once with them, under ``lock``: it may read what else must not be seen in step with the readings.
    """

    def __init__(self, proc: str, also: Callable[[float], None], seed: int | None = None) -> None:
        self._proc = proc
        self._also = also
        self._random = Random(seed)
        self._asked = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._pids: Sequence[int] = ()
        self._rest: Sequence[int] = ()
        self._due: list[float] = []
        self._last = 0.0
        self._seen: dict[int, list[str]] = {}
        self.lock = threading.Lock()

    def take(self) -> dict[int, list[str]]:
        """The kernel functions in which each process slept at the looks since the last call; "0" where it ran."""
        with self.lock:
            seen, self._seen = self._seen, {}
        return seen

    def ask(self, pids: Sequence[int], once: Sequence[int] = ()) -> None:
        """Look at ``pids`` each time, and at ``once`` one time, if the next reading comes about when it should."""
        now = time.monotonic()
        span, self._last = min(LONGEST_S, now - self._last), now
        self._pids, self._rest = pids, once
        if not pids and not once:
            return
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
                return
            due, first = self._due, self._random.randrange(LOOKS)
            for number, moment in enumerate(due):
                if self._closing.wait(max(0.0, moment - time.monotonic())):
                    return
                if due is not self._due:
                    break
                with self.lock:
                    self._look(self._pids)
                    if number == first:
                        self._look(self._rest)
                        self._also(time.monotonic())

    def _look(self, pids: Sequence[int]) -> None:
        for pid in pids:
            try:
                channel = read_small(f"{self._proc}/{pid}/wchan").decode("ascii", "replace")
            except OSError:
                continue
            self._seen.setdefault(pid, []).append(channel)
