"""Ray: an actor beside the trainer makes the batches. Neither is a child of the other."""

from __future__ import annotations

from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute

REQUIREMENTS = ("ray>=2.50,<3",)
CASE = Case(("dataloader_cpu",), ("cpu", "queued"), 1, cores=2.0)


def main(gpu: Gpu) -> None:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    make = ray.remote(compute)

    def batches() -> Iterator[object]:
        waiting = [make.remote(0.3) for _ in range(2)]
        while True:
            waiting.append(make.remote(0.3))
            yield ray.get(waiting.pop(0))

    gpu.train(batches(), 0.05)
