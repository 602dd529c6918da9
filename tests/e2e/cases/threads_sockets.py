"""Prefetch threads that read slow sockets while main waits for their queue."""

from __future__ import annotations

import threading
from queue import Queue

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import connect, endless, receive

CASE = Case(("dataloader_io",), ("network",), 2, ("thread", "network"), cores=0.2)


def main(gpu: Gpu) -> None:
    queue: Queue[bytes] = Queue(2)

    def prefetch() -> None:
        connection = connect(gpu.port)
        while True:
            queue.put(receive(connection))

    for _ in range(2):
        threading.Thread(target=prefetch, name="prefetch", daemon=True).start()
    gpu.train(endless(queue.get), 0.05)
