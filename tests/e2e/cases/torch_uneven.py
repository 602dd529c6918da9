"""Four workers, one of which has all the large images. Batches come in order, so the GPU waits for that one."""

from __future__ import annotations

import time

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute

CASE = Case(("dataloader_cpu",), ("cpu", "queued"), 4, ("1 of 4", "in_order"), uneven=True, cores=1.0, needs="torch")


class Shards:
    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> bytes:
        if index % 4:
            time.sleep(0.01)
            return b""
        return compute(0.6)


def main(gpu: Gpu) -> None:
    from torch.utils.data import DataLoader

    gpu.train(iter(DataLoader(Shards(), batch_size=None, num_workers=4)), 0.04)
