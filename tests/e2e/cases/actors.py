"""A launcher that starts a trainer and, beside it, the process that makes its batches: no child of the trainer."""

from __future__ import annotations

import multiprocessing
from typing import Any

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute, endless

CASE = Case(("dataloader_cpu",), ("cpu", "queued"), 1, cores=1.0)


def _make(queue: Any) -> None:
    while True:
        queue.put(compute(0.4))


def main(gpu: Gpu) -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue(2)
    actor = context.Process(target=_make, args=(queue,), daemon=True)
    trainer = context.Process(target=gpu.train, args=(endless(queue.get), 0.05), daemon=True)
    for process in (actor, trainer):
        process.start()
    trainer.join()
