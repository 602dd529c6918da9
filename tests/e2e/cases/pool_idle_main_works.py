"""The main thread does all the work beside an idle pool: its workers wait on a pipe for tasks, not for data."""

from __future__ import annotations

from multiprocessing import get_context

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute, endless

CASE = Case(("main_process",), ("cpu", "queued"), cores=1.0)


def main(gpu: Gpu) -> None:
    with get_context("fork").Pool(4) as pool:
        pool.map(abs, range(8))
        gpu.train(endless(lambda: compute(0.3)), 0.08)
