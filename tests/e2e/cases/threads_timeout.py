"""A ThreadPoolExecutor whose clients have timeouts, as requests and boto3 have: they wait in poll."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import connect, receive

CASE = Case(("dataloader_io",), ("fetch", "network"), 1, ("thread",), cores=0.2)


def main(gpu: Gpu) -> None:
    local = threading.local()

    def fetch() -> bytes:
        if not hasattr(local, "connection"):
            local.connection = connect(gpu.port, timeout=30.0)
        return receive(local.connection)

    with ThreadPoolExecutor(2) as executor:

        def batches() -> Iterator[bytes]:
            waiting = [executor.submit(fetch) for _ in range(2)]
            while True:
                waiting.append(executor.submit(fetch))
                yield waiting.pop(0).result()

        gpu.train(batches(), 0.05)
