"""A DataLoader whose two forked workers decode all the time: the textbook case."""

from __future__ import annotations

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute

CASE = Case(("dataloader_cpu",), ("cpu", "queued"), 2, cores=2.0, needs="torch")


class Images:
    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> bytes:
        return compute(0.3)


def main(gpu: Gpu) -> None:
    from torch.utils.data import DataLoader

    gpu.train(iter(DataLoader(Images(), batch_size=None, num_workers=2)), 0.05)
