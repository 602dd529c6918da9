"""DALI without a GPU: its own Python workers make what its pipeline takes in, a batch of eight at a time."""

from __future__ import annotations

from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute

REQUIREMENTS = ("nvidia-dali-cuda120>=1.50,<3", "numpy")
CASE = Case(("dataloader_cpu",), ("cpu", "queued"), 1, cores=2.0)


def make(sample: object) -> object:
    import numpy

    compute(0.05)
    return numpy.zeros(16, dtype=numpy.uint8)


def main(gpu: Gpu) -> None:
    from nvidia.dali import fn, pipeline_def

    @pipeline_def(batch_size=8, num_threads=1, device_id=None, py_num_workers=2, py_start_method="spawn")
    def pipeline() -> object:
        return fn.external_source(source=make, batch=False, parallel=True)

    made = pipeline()
    made.build()

    def batches() -> Iterator[object]:
        while True:
            yield made.run()

    gpu.train(batches(), 0.05)
