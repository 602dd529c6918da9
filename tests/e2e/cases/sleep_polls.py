"""The main thread looks for the next batch and sleeps between, as joblib does: its worker is the cause."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from typing import Any

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute

CASE = Case(("dataloader_cpu",), ("cpu", "queued"), 1, never=("sleep",))


def _fill(queue: Any) -> None:
    while True:
        queue.put(compute(0.5))


def main(gpu: Gpu) -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue(4)
    context.Process(target=_fill, args=(queue,), daemon=True).start()

    def looked_for() -> Iterator[bytes]:
        while True:
            while queue.empty():
                time.sleep(0.02)
            yield queue.get()

    gpu.train(looked_for(), 0.06)
