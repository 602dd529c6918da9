"""Workers that passed tensors keep a thread that accepts on a local socket; it is the main thread that sleeps.

Beside a main thread that computes this proves nothing: then nobody asks what the workers wait for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu

CASE = Case(("main_process",), ("sleep",), says=("sleep",), cores=0.3, needs="torch", never=("network", "fetch"))


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
            time.sleep(0.9)
            yield batch

    gpu.train(batches(), 0.1, spins=True)
