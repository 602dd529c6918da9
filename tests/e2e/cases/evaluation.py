"""Every few steps the main thread evaluates for seconds, as scikit-learn does, beside workers that are ahead."""

from __future__ import annotations

from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute, endless, fed_by

CASE = Case(
    ("main_process",),
    ("cpu", "queued"),
    says=("workers 0 % busy",),
    cores=0.5,
    never=("lock", "sleep", "fetch", "disk"),
)
STEPS, EVALUATES_S = 15, 3.0


def main(gpu: Gpu) -> None:
    ready = fed_by([lambda: endless(lambda: b"")] * 2)

    def batches() -> Iterator[bytes]:
        while True:
            for _ in range(STEPS):
                yield next(ready)
            compute(EVALUATES_S)

    gpu.train(batches(), 0.2)
