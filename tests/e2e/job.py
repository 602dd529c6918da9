"""One job of a case, run as ``python -m tests.e2e.job NAME CLOCK SLOT PORT OWN_PORT FIFO``.

As with CUDA, the main thread sleeps or spins until its pretended GPU has done the step.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.busy_clock import BusyClock
from tests.e2e.case import all_jobs

LIFE_S = 300.0
"""A job ends by itself if nobody ends it."""
PIECE_S = 0.01
MOUNT = "E2E_MOUNT"
"""The variable of the environment that names the file on the job's own file system."""


class Gpu:
    """The pretended GPU of one job, and where the job finds its slow sources.

    ``port`` sends batches at a slow pace to whoever connects, ``fifo`` is a path to read them from, and
    ``own_port`` is where a job that serves is asked.
    """

    def __init__(self, clock: str, slot: str, port: str, own_port: str, fifo: str) -> None:
        self._clock = BusyClock(Path(clock))
        self._slot = int(slot)
        self.port, self.own_port, self.fifo = int(port), int(own_port), fifo
        self.mount = Path(os.environ.get(MOUNT, ""))
        """A file on a slow file system of its own, where the case asks for one."""
        self.began = 0.0
        """When the first step was taken, monotonic."""

    def hold(self) -> None:
        """Create a context on the GPU, and compute nothing."""
        self._clock.use(self._slot, os.getpid())

    def step(self, seconds: float, *, spins: bool = False) -> None:
        """Compute on the GPU for so long, counted as it passes."""
        begun = counted = time.monotonic()
        if not self.began:
            self.began = begun
            self._clock.use(self._slot, os.getpid())
        while True:
            now = time.monotonic()
            left = begun + seconds - now
            if now - counted >= PIECE_S or left <= 0.0:
                self._clock.add(self._slot, now - counted)
                counted = now
            if left <= 0.0:
                return
            if not spins:
                time.sleep(min(PIECE_S, left))

    def train(self, batches: Iterator[object], step_s: float, *, spins: bool = False) -> None:
        """A training loop: a batch, a step, for as long as the job lives."""
        end = time.monotonic() + LIFE_S
        while time.monotonic() < end:
            next(batches)
            self.step(step_s, spins=spins)


def main(name: str, *given: str) -> None:
    # A job that is stopped by a signal cannot end by itself when the test is killed (prctl(2), PR_SET_PDEATHSIG).
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    all_jobs()[name](Gpu(*given))


if __name__ == "__main__":
    main(*sys.argv[1:])
