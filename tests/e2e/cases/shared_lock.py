"""Workers that share one index behind a lock, which nobody gives back in time: not a matter of CPU or network."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import fed_by

CASE = Case(("starved_unattributed",), ("lock", "sleep"), 4, ("lock",), cores=0.1)


def main(gpu: Gpu) -> None:
    lock = multiprocessing.get_context("fork").Lock()

    def looked_up() -> Iterator[bytes]:
        while True:
            with lock:
                time.sleep(0.25)
            yield b""

    gpu.train(fed_by([looked_up] * 4), 0.05)
