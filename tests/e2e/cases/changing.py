"""A job that decodes at first and then waits for the network: the old cause must not be said any longer."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute, connect, fed_by, receive

CASE = Case(("dataloader_cpu",), cores=1.0, then=("dataloader_io",), change_s=32.0)


def main(gpu: Gpu) -> None:
    begun = time.monotonic()

    def both() -> Iterator[bytes]:
        while time.monotonic() < begun + CASE.change_s:
            yield compute(0.4)
        connection = connect(gpu.port)
        while True:
            yield receive(connection)

    gpu.train(fed_by([both]), 0.05)
