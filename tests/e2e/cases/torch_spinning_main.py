"""A healthy job: its workers keep up, and its main thread spins until the GPU is done, as CUDA's does."""

from __future__ import annotations

from tests.e2e.case import CALM, Case
from tests.e2e.job import Gpu

CASE = Case(("healthy",), only=CALM, cores=1.0, needs="torch")


class Ready:
    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> bytes:
        return bytes(4096)


def main(gpu: Gpu) -> None:
    from torch.utils.data import DataLoader

    gpu.train(iter(DataLoader(Ready(), batch_size=None, num_workers=2)), 0.4, spins=True)
