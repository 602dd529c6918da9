"""accelerate: a prepared DataLoader, whose workers decode."""

from __future__ import annotations

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute

REQUIREMENTS = ("accelerate>=1,<2",)
CASE = Case(("dataloader_cpu",), ("cpu", "queued"), 2, cores=2.0)


def decoded(samples: list[int]) -> object:
    import torch

    compute(0.3)
    return torch.tensor(samples)


def main(gpu: Gpu) -> None:
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    loader = DataLoader(range(100_000), batch_size=4, num_workers=2, collate_fn=decoded)  # type: ignore[arg-type]
    gpu.train(iter(Accelerator(cpu=True).prepare(loader)), 0.05)
