"""A machine made of real jobs and a pretended GPU for each: starts them, feeds them, and tells the stand-in library.

Every quarter of a second the GPU time that each job has counted becomes its GPU's utilisation and SM activity.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from types import TracebackType

from tests.e2e.batches import BATCH_BYTES, VARIANTS
from tests.e2e.busy_clock import BusyClock
from tests.nvml.stand_in import GIB, Process, Scenario

TELL_EVERY_S = 0.25
FEED_EVERY_S = 0.4
"""Each worker that reads a socket or a FIFO gets one batch in this time."""
MEAN_OF = 4
SM_SHARE = 0.92
IDLE_W, BUSY_W = 90.0, 520.0
ROOT = Path(__file__).resolve().parents[2]


class Machine:
    """Jobs by variant, one on each GPU in the given order. Use it in a ``with`` statement."""

    def __init__(self, directory: Path, scenario: Scenario, variants: tuple[str, ...]) -> None:
        self.started = time.monotonic()
        self._scenario = scenario
        self._variants = variants
        self._clock = BusyClock(directory / "busy", slots=len(variants))
        self._server = socket.create_server(("127.0.0.1", 0))
        self._fifo = str(directory / "fifo-{worker}")
        self._stop = threading.Event()
        self._log = (directory / "jobs.log").open("wb")
        self._jobs: list[subprocess.Popen[bytes]] = []
        self._readers_due: dict[int, float] = {}
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._tell, self._feed)]
        for worker in range(VARIANTS["dataloader_io_fifo"].workers):
            path = self._fifo.format(worker=worker)
            os.mkfifo(path)
            # Opened for both directions, a FIFO needs no reader yet.
            self._readers_due[os.open(path, os.O_RDWR | os.O_NONBLOCK)] = 0.0

    def __enter__(self) -> Machine:
        for slot, variant in enumerate(self._variants):
            source = self._fifo if variant == "dataloader_io_fifo" else str(self._server.getsockname()[1])
            command = [sys.executable, "-m", "tests.e2e.train", variant, str(self._clock.path), str(slot), source]
            self._jobs.append(
                subprocess.Popen(command, cwd=ROOT, stdout=self._log, stderr=self._log, start_new_session=True)
            )
        for slot, job in enumerate(self._jobs):
            self._scenario.gpus[slot].processes = [Process(job.pid, 20 * GIB)]
        self._scenario.write()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        for job in self._jobs:
            # The workers live in the job's session: nothing of it may stay behind.
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        for thread in self._threads:
            thread.join()
        for descriptor in self._readers_due:
            os.close(descriptor)
        self._server.close()
        self._clock.close()
        self._log.close()

    def dead_jobs(self) -> list[str]:
        """Variants whose job has ended: none should."""
        return [v for v, job in zip(self._variants, self._jobs, strict=True) if job.poll() is not None]

    def _tell(self) -> None:
        """Each GPU's share of busy time over the last second, as the driver's sampling does."""
        past: deque[tuple[float, list[float]]] = deque(maxlen=MEAN_OF + 1)
        while not self._stop.wait(TELL_EVERY_S):
            now, busy = time.monotonic(), [self._clock.read(slot) for slot in range(len(self._jobs))]
            past.append((now, busy))
            then, before = past[0]
            if now <= then:
                continue
            for gpu, end, begin in zip(self._scenario.gpus, busy, before, strict=True):
                share = min(1.0, (end - begin) / (now - then))
                util = round(100.0 * share)
                gpu.set(util=util, mem_util=util // 2, power_w=IDLE_W + (BUSY_W - IDLE_W) * share)
                sm = 100.0 * SM_SHARE * share
                gpu.gpm.update({1: 100.0 * share, 2: sm, 3: 0.4 * sm, 5: 0.5 * sm, 10: 0.4 * sm, 20: 50.0, 21: 400.0})
                gpu.processes[0].sm = util
            self._scenario.write()

    def _feed(self) -> None:
        """One batch to each reader, at its pace: a slow network and a slow pipe."""
        while not self._stop.wait(TELL_EVERY_S / 5):
            if select.select([self._server], [], [], 0.0)[0]:
                connection, _ = self._server.accept()
                self._readers_due[connection.detach()] = 0.0
            now, writable = time.monotonic(), select.select([], list(self._readers_due), [], 0.0)[1]
            for descriptor in writable:
                due = self._readers_due[descriptor]
                if now >= due:
                    os.write(descriptor, bytes(BATCH_BYTES))
                    self._readers_due[descriptor] = max(due + FEED_EVERY_S, now)
