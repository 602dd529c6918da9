"""Hugging Face datasets: a transform that decodes when an item is read, in the workers of a DataLoader."""

from __future__ import annotations

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute

REQUIREMENTS = ("datasets>=4,<6",)
CASE = Case(("dataloader_cpu",), ("cpu", "queued"), 2, cores=2.0)


def decode(batch: dict[str, list[int]]) -> dict[str, list[int]]:
    compute(0.3)
    return batch


def main(gpu: Gpu) -> None:
    import datasets
    from torch.utils.data import DataLoader

    data = datasets.Dataset.from_dict({"number": list(range(100_000))}).with_transform(decode)
    gpu.train(iter(DataLoader(data, batch_size=None, num_workers=2)), 0.05)
