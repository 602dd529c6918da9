"""PyTorch's DataLoader, well and not, with what real jobs have beside it."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from queue import Queue
from typing import Any

from tests.e2e.case import CALM, case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute, connect, endless, fed_by, receive

PR_SET_NAME = 15


class Items:
    """A data set without an end; each item is what ``make`` gives for its number."""

    def __init__(self, make: Callable[[int], object], count: int = 1_000_000) -> None:
        self._make, self._count = make, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> object:
        return self._make(index)


def decode(index: int) -> bytes:
    return compute(0.3)


def loader(
    make: Callable[[int], object] = decode, workers: int = 2, count: int = 1_000_000, **options: Any
) -> Any:
    """Its items are made by ``workers``."""
    from torch.utils.data import DataLoader

    return DataLoader(Items(make, count), **{"batch_size": None, "num_workers": workers, **options})


@case(("dataloader_cpu",), ("cpu", "queued"), 2, cores=2.0, needs="torch")
def torch_decode(gpu: Gpu) -> None:
    """A DataLoader whose two forked workers decode all the time: the textbook case."""
    gpu.train(iter(loader()), 0.05)


@case(("worker_restart",), (), 1, ("persistent_workers",), cores=0.4, needs="torch")
def torch_epochs(gpu: Gpu) -> None:
    """Workers that are started anew each epoch, and open their data set for a second before they give anything."""
    epoch = loader(lambda index: b"", count=30, worker_init_fn=lambda worker: time.sleep(1.6))

    def epochs() -> Iterator[object]:
        while True:
            yield from epoch

    gpu.train(epochs(), 0.08)


@case(("healthy",), only=CALM, cores=1.0, needs="torch")
def torch_spinning_main(gpu: Gpu) -> None:
    """A healthy job: its workers keep up, and its main thread spins until the GPU is done, as CUDA's does."""
    gpu.train(iter(loader(lambda index: bytes(4096))), 0.4, spins=True)


@case(
    ("dataloader_cpu",),
    ("cpu", "queued"),
    4,
    ("1 of 4", "in_order"),
    uneven=True,
    cores=1.0,
    needs="torch",
)
def torch_uneven(gpu: Gpu) -> None:
    """Four workers, one of which has all the large images. Batches come in order, so the GPU waits for that one."""

    def decode_large(index: int) -> bytes:
        if index % 4:
            time.sleep(0.01)
            return b""
        return compute(0.6)

    gpu.train(iter(loader(decode_large, workers=4)), 0.04)


@case(
    ("main_process",),
    ("sleep",),
    says=("sleep",),
    cores=0.3,
    needs="torch",
    never=("network", "fetch"),
)
def tensor_sharers(gpu: Gpu) -> None:
    """Workers that passed tensors keep a thread that accepts on a local socket; it is the main thread that sleeps.

    Beside a main thread that computes this proves nothing: then nobody asks what the workers wait for.
    """
    import torch

    tensors = iter(loader(lambda index: torch.zeros(64), batch_size=2))

    def batches() -> Iterator[object]:
        while True:
            batch = next(tensors)
            time.sleep(0.9)
            yield batch

    gpu.train(batches(), 0.1, spins=True)


def save() -> None:
    """As an asynchronous checkpoint does."""
    with tempfile.TemporaryFile() as file:
        while True:
            os.pwrite(file.fileno(), bytes(1 << 16), 0)
            os.fsync(file.fileno())


def _beside(gpu: Gpu, batches: Iterator[object]) -> tuple[Callable[[], None], object]:
    """Start what fork makes later than the workers: a checkpoint, a tracker, an evaluation's loader that is kept.

    Gives what the tracker does, and that loader.
    """

    def track() -> None:
        while True:
            with connect(gpu.port, timeout=30.0) as connection:
                receive(connection)

    next(batches)
    evaluation = loader(lambda index: index, count=2, persistent_workers=True)
    list(evaluation)
    for work in (save, track):
        multiprocessing.get_context("fork").Process(target=work, daemon=True).start()
    return track, evaluation


@case(
    ("dataloader_cpu",),
    ("cpu", "queued"),
    1,
    cores=1.3,
    needs="torch",
    never=("disk", "network", "fetch", "lock"),
)
def checkpoint_child(gpu: Gpu) -> None:
    """One worker that computes, and beside it a checkpoint that is written and written, a tracker that waits for the
    network, a loader for the evaluation that waits for its turn."""
    batches = iter(loader(workers=1))
    kept = _beside(gpu, batches)
    gpu.train(batches, 0.05)
    del kept


@case(tuple(sorted(CALM)), cores=0.4, needs="torch", only=CALM)
def sidecars(gpu: Gpu) -> None:
    """A job that is well, with a child that saves checkpoints, a tracker (child and thread), an evaluation's loader."""
    batches = iter(loader(lambda index: index, prefetch_factor=8))
    track, kept = _beside(gpu, batches)
    threading.Thread(target=track, daemon=True).start()
    gpu.train(batches, 0.2)
    del kept


@case(
    ("dataloader_cpu",),
    ("cpu", "queued"),
    1,
    ("pin_memory thread",),
    cores=1.0,
    never=("lock", "network", "disk"),
)
def pin_memory(gpu: Gpu) -> None:
    """Workers that are ahead of a pin_memory thread, which copies each batch on one core: it alone holds main up."""
    ready = fed_by([lambda: endless(lambda: b"")] * 2)
    pinned: Queue[bytes] = Queue(2)

    def pin() -> None:
        # As PyTorch names it.
        ctypes.CDLL(None).prctl(PR_SET_NAME, b"pt_data_pin")
        for _ in ready:
            pinned.put(compute(0.4))

    threading.Thread(target=pin, daemon=True).start()
    gpu.train(endless(pinned.get), 0.05)
