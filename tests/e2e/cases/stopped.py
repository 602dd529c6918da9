"""A job that somebody stops by a signal."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu

CASE = Case(
    ("idle",), ("stopped",), says=("SIGSTOP",), cores=0.1, changes=1, watch_s=60.0, never=("network", "disk", "cpu")
)
WORKS_S = 12.0


def main(gpu: Gpu) -> None:
    def batches() -> Iterator[bytes]:
        end = time.monotonic() + WORKS_S
        while True:
            if time.monotonic() > end:
                os.kill(os.getpid(), signal.SIGSTOP)
            yield b""

    gpu.train(batches(), 0.2)
