"""num_workers=0: the main process decodes each batch itself."""

from __future__ import annotations

from tests.e2e.case import Case
from tests.e2e.cases.torch_decode import Images
from tests.e2e.job import Gpu

CASE = Case(("main_process",), ("cpu", "queued"), cores=1.0, needs="torch")


def main(gpu: Gpu) -> None:
    from torch.utils.data import DataLoader

    gpu.train(iter(DataLoader(Images(), batch_size=None, num_workers=0)), 0.08)
