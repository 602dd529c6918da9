"""The main thread tells a tracker of each step over HTTP, with a timeout, beside workers that keep up."""

from __future__ import annotations

from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import connect, endless, fed_by, receive

CASE = Case(("main_process",), ("network",), says=("network",), cores=0.1, never=("fetch", "cpu", "disk"))


def main(gpu: Gpu) -> None:
    ready = fed_by([lambda: endless(lambda: b"")] * 2)

    def told() -> Iterator[bytes]:
        while True:
            batch = next(ready)
            with connect(gpu.port, timeout=30.0) as connection:
                receive(connection)
            yield batch

    gpu.train(told(), 0.08)
