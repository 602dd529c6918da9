"""A prefetch thread that decodes in Python while main waits for its queue."""

from __future__ import annotations

import threading
from queue import Queue

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute, endless

CASE = Case(("dataloader_cpu",), ("cpu", "queued"), 1, ("thread",), cores=1.0)


def main(gpu: Gpu) -> None:
    queue: Queue[bytes] = Queue(2)

    def prefetch() -> None:
        while True:
            queue.put(compute(0.4))

    threading.Thread(target=prefetch, name="prefetch", daemon=True).start()
    gpu.train(endless(queue.get), 0.05)
