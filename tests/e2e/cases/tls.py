"""A worker that reads over TLS with a timeout, as from any object store."""

from __future__ import annotations

from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import connect, endless, fed_by, receive

CASE = Case(("dataloader_io",), ("fetch", "network"), 2, cores=0.2)


def main(gpu: Gpu) -> None:
    def fetched() -> Iterator[bytes]:
        connection = connect(gpu.tls_port, timeout=30.0, tls=True)
        return endless(lambda: receive(connection))

    gpu.train(fed_by([fetched, fetched]), 0.05)
