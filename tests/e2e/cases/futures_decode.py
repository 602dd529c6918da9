"""concurrent.futures: a ProcessPoolExecutor with one worker that decodes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute

CASE = Case(("dataloader_cpu",), ("cpu", "queued"), 1, cores=1.0)


def main(gpu: Gpu) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:

        def batches() -> Iterator[bytes]:
            waiting = [executor.submit(compute, 0.3) for _ in range(2)]
            while True:
                waiting.append(executor.submit(compute, 0.3))
                yield waiting.pop(0).result()

        gpu.train(batches(), 0.05)
