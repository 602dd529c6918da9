"""A worker that reads a FIFO which a process outside the job fills slowly."""

from __future__ import annotations

from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import BATCH_BYTES, fed_by

CASE = Case(("dataloader_io",), ("pipe", "fetch"), 1, ("pipe",), cores=0.1)


def main(gpu: Gpu) -> None:
    def piped() -> Iterator[bytes]:
        with open(gpu.fifo, "rb", buffering=BATCH_BYTES) as stream:
            while batch := stream.read(BATCH_BYTES):
                yield batch

    gpu.train(fed_by([piped]), 0.08)
