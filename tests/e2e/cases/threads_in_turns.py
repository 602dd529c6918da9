"""Threads of a worker that share one connection: each by itself waits for it a quarter of the time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Queue

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import connect, fed_by, receive

CASE = Case(("dataloader_io",), ("network",), 1, ("thread",), cores=0.2, never=("cpu", "lock", "disk"))


def main(gpu: Gpu) -> None:
    def fetched() -> Iterator[bytes]:
        queue: Queue[bytes] = Queue(1)
        connection, lock = connect(gpu.port), threading.Lock()

        def fetch() -> None:
            while True:
                with lock:
                    batch = receive(connection)
                queue.put(batch)

        for _ in range(4):
            threading.Thread(target=fetch, daemon=True).start()
        while True:
            yield queue.get()

    gpu.train(fed_by([fetched]), 0.05)
