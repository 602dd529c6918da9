"""A machine made of real jobs and a pretended GPU for each: starts them, feeds them, and tells the stand-in library.

Every quarter of a second the GPU time that each job has counted becomes its GPU's utilisation and SM activity.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

from tests.e2e.busy_clock import BusyClock
from tests.e2e.case import Case
from tests.e2e.job import MOUNT
from tests.e2e.sources import SlowServer, feed_fifos, visit
from tests.nvml.stand_in import GIB, Process, Scenario
from tests.support.engines import free_port
from tests.support.hung_mount import HungMount

TELL_EVERY_S = 0.25
MEAN_OF = 4
SM_SHARE = 0.92
IDLE_W, BUSY_W = 90.0, 520.0
ROOT = Path(__file__).resolve().parents[2]


class Machine:
    """Jobs by the names of their cases, one on each GPU in the given order. Use it in a ``with`` statement."""

    def __init__(self, directory: Path, scenario: Scenario, cases: dict[str, Case]) -> None:
        self._directory, self._scenario, self._cases = directory, scenario, cases
        self._clock = BusyClock(directory / "busy", slots=len(cases))
        self._stop = threading.Event()
        self._server = SlowServer(self._stop)
        self._log = (directory / "jobs.log").open("wb")
        self._mounts = ExitStack()
        self._jobs: list[subprocess.Popen[bytes]] = []
        self._threads = [threading.Thread(target=self._tell, daemon=True)]

    def __enter__(self) -> Machine:
        fifos = []
        for slot, (name, case) in enumerate(self._cases.items()):
            fifos.append(str(self._directory / f"fifo-{slot}"))
            os.mkfifo(fifos[-1])
            own_port = free_port()
            if case.visited:
                self._threads.append(
                    threading.Thread(target=visit, args=(own_port, self._stop), daemon=True)
                )
            environ = dict(os.environ)
            if case.mount_s is not None:
                mount = self._mounts.enter_context(
                    HungMount(self._directory / f"mount-{slot}", case.mount_s)
                )
                environ[MOUNT] = str(mount.file)
                if case.hangs_s is not None:
                    self._threads.append(
                        threading.Thread(target=self._hang, args=(mount, case.hangs_s), daemon=True)
                    )
            ports = [str(self._server.port), str(own_port)]
            command = [
                sys.executable,
                "-m",
                "tests.e2e.job",
                name,
                str(self._clock.path),
                str(slot),
            ]
            self._jobs.append(
                subprocess.Popen(
                    [*command, *ports, fifos[-1]],
                    cwd=ROOT,
                    stdout=self._log,
                    stderr=self._log,
                    start_new_session=True,
                    env=environ,
                )
            )
        self._threads.append(
            threading.Thread(target=feed_fifos, args=(fifos, self._stop), daemon=True)
        )
        for gpu in self._scenario.gpus:
            # The first reading may come before a job has counted anything: no job has run then.
            gpu.set(util=0, mem_util=0, power_w=IDLE_W)
            gpu.gpm = dict.fromkeys((1, 2, 3, 5, 10), 0.0)
            gpu.processes = []
        self._scenario.write()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._stop.set()
        for job in self._jobs:
            # The workers live in the job's session: nothing of it may stay behind.
            with suppress(ProcessLookupError):  # it has ended by itself, and all of it has
                os.killpg(job.pid, signal.SIGKILL)
        # Who hangs on a mount is woken by its end.
        self._mounts.close()
        for job in self._jobs:
            job.wait()
        for thread in self._threads:
            thread.join()
        self._server.close()
        self._clock.close()
        self._log.close()

    def _hang(self, mount: HungMount, after_s: float) -> None:
        if not self._stop.wait(after_s):
            mount.stop()

    def dead_jobs(self) -> list[str]:
        """Cases whose job has ended: none should."""
        return [
            name
            for name, job in zip(self._cases, self._jobs, strict=True)
            if job.poll() is not None
        ]

    @property
    def log(self) -> str:
        """What the jobs have said."""
        return (self._directory / "jobs.log").read_text(errors="replace")

    def _tell(self) -> None:
        """Each GPU's share of busy time over the last second, as the driver's sampling does."""
        past: deque[tuple[float, list[float]]] = deque(maxlen=MEAN_OF + 1)
        while not self._stop.wait(TELL_EVERY_S):
            now, busy = (
                time.monotonic(),
                [self._clock.read(slot) for slot in range(len(self._jobs))],
            )
            past.append((now, busy))
            then, before = past[0]
            if now <= then:
                continue
            for slot, (gpu, end, begin) in enumerate(
                zip(self._scenario.gpus, busy, before, strict=True)
            ):
                share = min(1.0, (end - begin) / (now - then))
                util = round(100.0 * share)
                gpu.set(util=util, mem_util=util // 2, power_w=IDLE_W + (BUSY_W - IDLE_W) * share)
                sm = 100.0 * SM_SHARE * share
                gpu.gpm.update(
                    {
                        1: 100.0 * share,
                        2: sm,
                        3: 0.4 * sm,
                        5: 0.5 * sm,
                        10: 0.4 * sm,
                        20: 50.0,
                        21: 400.0,
                    }
                )
                pid = self._clock.pid(slot)
                gpu.processes = [Process(pid, 20 * GIB, sm=util)] if pid else []
            self._scenario.write()
