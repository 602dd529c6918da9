"""A small training job whose GPU is pretended: run as ``python -m tests.e2e.train VARIANT CLOCK SLOT SOURCE``.

With PyTorch it is a real training loop over a real DataLoader; without, the same loop on plain multiprocessing. The
forward and backward pass runs on the CPU and counts as GPU time, which a wait then fills up to the step's length: as
with CUDA, the main thread sleeps or spins until the GPU is done.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from tests.e2e.batches import BATCH_BYTES, PREFETCH, VARIANTS, Dataset, Variant, plain_batches
from tests.e2e.busy_clock import BusyClock

LIFE_S = 600.0
"""A job ends by itself if nobody ends it."""
PIECE_S = 0.01
Step = Callable[[bytes], None]


def torch_job(dataset: Dataset, variant: Variant) -> tuple[Iterator[bytes], Step]:
    """A linear model trained on the batches of a torch DataLoader."""
    import torch
    from torch.utils.data import DataLoader, get_worker_info

    torch.set_num_threads(1)

    class TorchDataset(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(dataset)

        def __getitem__(self, index: int) -> bytes:
            worker = get_worker_info()
            return dataset.load(0 if worker is None else worker.id)

    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(batch: bytes) -> None:
        x = torch.frombuffer(bytearray(batch), dtype=torch.uint8).float().reshape(BATCH_BYTES // 64, 64) / 255.0
        loss = torch.nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    workers = variant.workers
    loader = DataLoader(
        TorchDataset(),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=PREFETCH if workers else None,
        persistent_workers=workers > 0,
    )
    return iter(loader), step


def plain_job(dataset: Dataset, variant: Variant) -> tuple[Iterator[bytes], Step]:
    """The same without PyTorch."""
    return plain_batches(dataset, variant.workers), lambda batch: None


def wait_for_gpu(begun: float, step_s: float, spins: bool, add: Callable[[float], None]) -> None:
    """Until the step's time is over, adding GPU seconds as they pass."""
    counted = begun
    while True:
        now = time.monotonic()
        left = begun + step_s - now
        if now - counted >= PIECE_S or left <= 0.0:
            add(now - counted)
            counted = now
        if left <= 0.0:
            return
        if not spins:
            time.sleep(min(PIECE_S, left))


def main(name: str, clock: str, slot: str, source: str) -> None:
    variant = VARIANTS[name]
    dataset = Dataset(name, source)
    batches, step = (torch_job if find_spec("torch") else plain_job)(dataset, variant)
    end = time.monotonic() + LIFE_S
    with closing(BusyClock(Path(clock))) as busy:
        while time.monotonic() < end:
            batch = next(batches)
            begun = time.monotonic()
            step(batch)
            wait_for_gpu(begun, variant.step_s, variant.spins, lambda seconds: busy.add(int(slot), seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
