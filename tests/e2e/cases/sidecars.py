"""A job that is well, beside a child that writes checkpoints, a tracker (child and thread), an evaluation's loader."""

from __future__ import annotations

import multiprocessing
import threading

from tests.e2e.case import CALM, Case
from tests.e2e.cases.checkpoint_child import save
from tests.e2e.job import Gpu
from tests.e2e.loads import connect, receive

CASE = Case(tuple(sorted(CALM)), cores=0.4, needs="torch", only=CALM)


def main(gpu: Gpu) -> None:
    from torch.utils.data import DataLoader

    def track() -> None:
        while True:
            with connect(gpu.port, timeout=30.0) as connection:
                receive(connection)

    batches = iter(DataLoader(range(1_000_000), batch_size=None, num_workers=2, prefetch_factor=8))
    next(batches)
    evaluation = DataLoader(range(2), batch_size=None, num_workers=2, persistent_workers=True)
    list(evaluation)
    for work in (save, track):
        multiprocessing.get_context("fork").Process(target=work, daemon=True).start()
    threading.Thread(target=track, daemon=True).start()
    gpu.train(batches, 0.2)
