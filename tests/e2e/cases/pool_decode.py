"""A multiprocessing.Pool that decodes: no DataLoader far and wide."""

from __future__ import annotations

from itertools import count
from multiprocessing import get_context

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute

CASE = Case(("dataloader_cpu",), ("cpu", "queued"), 2, cores=2.0)


def decode(number: int) -> bytes:
    return compute(0.3)


def main(gpu: Gpu) -> None:
    def batches():  # type: ignore[no-untyped-def]
        # imap would take an endless iterable in at once.
        waiting = [pool.apply_async(decode, (number,)) for number in range(4)]
        for number in count():
            waiting.append(pool.apply_async(decode, (number,)))
            yield waiting.pop(0).get()

    with get_context("fork").Pool(2) as pool:
        gpu.train(batches(), 0.05)
