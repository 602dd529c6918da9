"""Where a job's batches come from: each variant's dataset, and loaders with and without PyTorch.

Times are wall-clock times, so that a job keeps its character on a crowded machine: a worker that computes for 0.3 s is
runnable for 0.3 s, on a core or queued for one.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

BATCH_BYTES = 4096
LOAD_S = 0.30
"""Time that a worker (or the main thread) computes for one batch."""
PREFETCH = 2
ENDLESS = 1_000_000


def compute(seconds: float) -> int:
    """Keep a core busy until the time is over."""
    end, turns = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        turns += sum(range(200))
    return turns


@dataclass
class Variant:
    """How a job loads (``workers`` 0: in the main thread) and how long its GPU computes for a batch."""

    workers: int
    step_s: float
    spins: bool = False


VARIANTS = {
    "dataloader_cpu": Variant(workers=1, step_s=0.10),
    "dataloader_io_socket": Variant(workers=2, step_s=0.08),
    "dataloader_io_fifo": Variant(workers=2, step_s=0.08),
    "main_process": Variant(workers=0, step_s=0.08),
    "healthy": Variant(workers=1, step_s=0.25, spins=True),
}


class Dataset:
    """One item is one batch. ``source`` is a port, or a pattern of FIFO paths with the worker's number."""

    def __init__(self, variant: str, source: str) -> None:
        self._variant = variant
        self._source = source
        self._stream: BinaryIO | None = None

    def __len__(self) -> int:
        return ENDLESS

    def load(self, worker: int) -> bytes:
        """The bytes of the next batch, at the pace of the variant."""
        if self._variant in ("dataloader_cpu", "main_process"):
            compute(LOAD_S)
            return os.urandom(BATCH_BYTES)
        if self._variant == "healthy":
            return os.urandom(BATCH_BYTES)
        if self._stream is None:
            self._stream = self._open(worker)
        return self._stream.read(BATCH_BYTES)

    def _open(self, worker: int) -> BinaryIO:
        if self._variant == "dataloader_io_fifo":
            return open(self._source.format(worker=worker), "rb", buffering=BATCH_BYTES)
        connection = socket.create_connection(("127.0.0.1", int(self._source)))
        return connection.makefile("rb", buffering=BATCH_BYTES)


def plain_batches(dataset: Dataset, workers: int) -> Iterator[bytes]:
    """Batches from forked workers in turn, each a few batches ahead, as a dataloader does."""
    if workers == 0:
        while True:
            yield dataset.load(0)
    context = multiprocessing.get_context("fork")
    queues: list[multiprocessing.Queue[bytes]] = [context.Queue(PREFETCH) for _ in range(workers)]
    for number, queue in enumerate(queues):
        context.Process(target=_fill, args=(dataset, number, queue), daemon=True).start()
    while True:
        for queue in queues:
            yield queue.get()


def _fill(dataset: Dataset, number: int, queue: multiprocessing.Queue[bytes]) -> None:
    while True:
        queue.put(dataset.load(number))
