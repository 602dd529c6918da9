"""grain: a pipeline that reads in worker processes of its own."""

from __future__ import annotations

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute

REQUIREMENTS = ("grain>=0.2,<0.3",)
CASE = Case(("dataloader_cpu",), ("cpu", "queued"), 1, cores=2.0)


def decode(number: int) -> int:
    compute(0.3)
    return number


def main(gpu: Gpu) -> None:
    import grain.python as grain

    # By default sixteen threads read ahead in each worker.
    one = grain.ReadOptions(num_threads=1, prefetch_buffer_size=1)
    data = grain.MapDataset.range(100_000).map(decode).to_iter_dataset(one)
    gpu.train(iter(data.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))), 0.05)
