"""The first kernels, then half a minute in which children compile, then training: that pause is part of its start."""

from __future__ import annotations

import multiprocessing

from tests.e2e.case import CALM, Case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute, endless

CASE = Case(("healthy",), only=CALM | {"idle"}, cores=1.0, watch_s=62.0, changes=2)
COMPILES_S = 26.0


def main(gpu: Gpu) -> None:
    gpu.step(0.5)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.map(compute, [COMPILES_S])
    gpu.train(endless(lambda: b""), 0.3)
