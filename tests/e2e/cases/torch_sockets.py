"""A DataLoader whose workers read a slow socket."""

from __future__ import annotations

import socket

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import connect, receive

CASE = Case(("dataloader_io",), ("network",), 2, ("network",), cores=0.2, needs="torch")


class Remote:
    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: socket.socket | None = None

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> bytes:
        if self._connection is None:
            self._connection = connect(self._port)
        return receive(self._connection)


def main(gpu: Gpu) -> None:
    from torch.utils.data import DataLoader

    gpu.train(iter(DataLoader(Remote(gpu.port), batch_size=None, num_workers=2)), 0.05)
