"""A healthy job with a pool that has nothing to do: waiting for a task is no fault."""

from __future__ import annotations

from multiprocessing import get_context

from tests.e2e.case import CALM, Case
from tests.e2e.job import Gpu
from tests.e2e.loads import endless

CASE = Case(("healthy",), only=CALM, cores=0.2)


def main(gpu: Gpu) -> None:
    with get_context("fork").Pool(4) as pool:
        pool.map(abs, range(8))
        gpu.train(endless(lambda: bytes(4096)), 0.4)
