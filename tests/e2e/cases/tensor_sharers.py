"""Workers that passed tensors keep a thread that accepts on a local socket; the main thread is what is slow."""

from __future__ import annotations

from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute

CASE = Case(("main_process",), ("cpu", "queued"), cores=1.2, needs="torch", never=("network", "fetch"))


class Tensors:
    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> object:
        import torch

        return torch.zeros(64)


def main(gpu: Gpu) -> None:
    from torch.utils.data import DataLoader

    loader = iter(DataLoader(Tensors(), batch_size=2, num_workers=2))  # type: ignore[arg-type,var-annotated]

    def batches() -> Iterator[object]:
        while True:
            batch = next(loader)
            compute(0.4)
            yield batch

    gpu.train(batches(), 0.05)
