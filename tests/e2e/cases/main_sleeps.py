"""The main thread looks for a new file now and then, and sleeps between."""

from __future__ import annotations

import time

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import endless

CASE = Case(("main_process",), ("sleep",), says=("sleep",), cores=0.1)


def main(gpu: Gpu) -> None:
    def look() -> bytes:
        time.sleep(0.9)
        return b""

    # The step spins: a sleep while the GPU computes is another thing than one while it idles.
    gpu.train(endless(look), 0.1, spins=True)
