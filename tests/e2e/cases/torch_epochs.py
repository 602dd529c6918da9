"""Workers that are started anew each epoch, and open their data set for a second before they give anything."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu

CASE = Case(("worker_restart",), (), 1, ("persistent_workers",), cores=0.4, needs="torch")
BATCHES = 30


class Small:
    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> bytes:
        return b""


def open_data_set(worker: int) -> None:
    time.sleep(1.6)


def _epochs() -> Iterator[object]:
    from torch.utils.data import DataLoader

    loader = DataLoader(Small(), batch_size=None, num_workers=2, worker_init_fn=open_data_set)
    while True:
        yield from loader


def main(gpu: Gpu) -> None:
    gpu.train(_epochs(), 0.08)
