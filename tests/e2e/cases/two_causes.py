"""A worker that decodes for half of its time and waits for the network in the other: neither alone explains it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute, connect, fed_by, receive

CASE = Case(("dataloader_cpu", "dataloader_io"), ("cpu", "queued", "network"), 1, ("network", "run"), cores=0.5)


def main(gpu: Gpu) -> None:
    def both() -> Iterator[bytes]:
        connection = connect(gpu.port)
        while True:
            receive(connection)
            yield compute(0.2)

    gpu.train(fed_by([both]), 0.05)
