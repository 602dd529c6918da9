"""Four workers that compute on the one core of their job, as under ``taskset -c 0``: more of them help nobody."""

from __future__ import annotations

import os

from tests.e2e.case import Case
from tests.e2e.cases.torch_decode import Images
from tests.e2e.job import Gpu

CASE = Case(("dataloader_cpu",), ("queued", "cpu"), 4, cores=1.0, needs="torch", never=("disk", "network", "fetch"))


def main(gpu: Gpu) -> None:
    from torch.utils.data import DataLoader

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    gpu.train(iter(DataLoader(Images(), batch_size=None, num_workers=4)), 0.05)
