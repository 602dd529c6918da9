"""tf.data: its own threads decode, below no process of their own."""

from __future__ import annotations

from tests.e2e.case import Case
from tests.e2e.job import Gpu

REQUIREMENTS = ("tensorflow-cpu>=2.19,<3",)
CASE = Case(("dataloader_cpu",), ("cpu", "queued"), 1, ("thread",), cores=2.0)


def main(gpu: Gpu) -> None:
    import tensorflow

    def decode(number: object) -> object:
        picture = tensorflow.random.uniform((900, 900))
        for _ in range(12):
            picture = tensorflow.linalg.matmul(picture, picture) / 900.0
        return tensorflow.reduce_sum(picture)

    data = tensorflow.data.Dataset.range(1_000_000).map(decode, num_parallel_calls=2).prefetch(2)
    gpu.train(iter(data), 0.02)
