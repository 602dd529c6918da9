"""Threads that fetch or decode within a process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Queue

from tests.e2e.case import case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute, connect, endless, fed_by, receive


@case(("dataloader_cpu",), ("cpu", "queued"), 1, ("thread",), cores=1.0)
def threads_decode(gpu: Gpu) -> None:
    """A prefetch thread that decodes in Python while main waits for its queue."""
    queue: Queue[bytes] = Queue(2)

    def prefetch() -> None:
        while True:
            queue.put(compute(0.4))

    threading.Thread(target=prefetch, name="prefetch", daemon=True).start()
    gpu.train(endless(queue.get), 0.05)


@case(("dataloader_io",), ("network",), 2, ("thread", "network"), cores=0.2)
def threads_sockets(gpu: Gpu) -> None:
    """Prefetch threads that read slow sockets while main waits for their queue."""
    queue: Queue[bytes] = Queue(2)

    def prefetch() -> None:
        connection = connect(gpu.port)
        while True:
            queue.put(receive(connection))

    for _ in range(2):
        threading.Thread(target=prefetch, name="prefetch", daemon=True).start()
    gpu.train(endless(queue.get), 0.05)


@case(("dataloader_io",), ("network",), 1, ("thread",), cores=0.2, never=("cpu", "lock", "disk"))
def threads_in_turns(gpu: Gpu) -> None:
    """Threads of a worker that share one connection: each by itself waits for it a quarter of the time."""

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
