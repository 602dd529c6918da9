"""A DataLoader that spawns its workers: another command line, another parent, the same work."""

from __future__ import annotations

from tests.e2e.case import Case
from tests.e2e.cases.torch_decode import Images
from tests.e2e.job import Gpu

CASE = Case(("dataloader_cpu",), ("cpu", "queued"), 1, cores=1.0, needs="torch")


def main(gpu: Gpu) -> None:
    from torch.utils.data import DataLoader

    loader = DataLoader(Images(), batch_size=None, num_workers=1, multiprocessing_context="spawn")
    gpu.train(iter(loader), 0.05)
