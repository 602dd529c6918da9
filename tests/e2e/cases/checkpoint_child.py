"""One worker that computes, and beside it children that fork made after it: a checkpoint that is written and written,
a tracker that waits for the network, a loader for the evaluation that waits for its turn."""

from __future__ import annotations

import multiprocessing
import os
import tempfile

from tests.e2e.case import Case
from tests.e2e.cases.torch_decode import Images
from tests.e2e.job import Gpu
from tests.e2e.loads import connect, receive

CASE = Case(
    ("dataloader_cpu",), ("cpu", "queued"), 1, cores=1.3, needs="torch", never=("disk", "network", "fetch", "lock")
)


def save() -> None:
    """As an asynchronous checkpoint does."""
    with tempfile.TemporaryFile() as file:
        while True:
            os.pwrite(file.fileno(), bytes(1 << 16), 0)
            os.fsync(file.fileno())


def main(gpu: Gpu) -> None:
    from torch.utils.data import DataLoader

    def track() -> None:
        while True:
            with connect(gpu.port, timeout=30.0) as connection:
                receive(connection)

    batches = iter(DataLoader(Images(), batch_size=None, num_workers=1))
    next(batches)
    evaluation = DataLoader(range(2), batch_size=None, num_workers=2, persistent_workers=True)
    list(evaluation)
    for work in (save, track):
        multiprocessing.get_context("fork").Process(target=work, daemon=True).start()
    gpu.train(batches, 0.05)
