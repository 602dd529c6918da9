"""Work for a real GPU, by PyTorch: `python -m tests.hardware.gpu_work CAUSE`. Exit 3 without either."""

from __future__ import annotations

import argparse
import mmap
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CAUSES = {
    "main_process": ("main_process",),
    "dataloader_cpu": ("dataloader_cpu",),
    "dataloader_sleep": ("starved_unattributed",),
    "dataloader_io": ("dataloader_io",),
    "small_kernels": ("small_kernels", "low_sm"),
    "healthy": ("healthy", "working", "no_bottleneck_seen"),
}
"""The jobs, and what gputop may say of each."""
WIDTH, HALF_WIDTH = 8192, 2048
ROW = 4_000_000
"""Elements of a softmax over one row, which one multiprocessor works out alone."""
ITEM_S = 0.02
BATCH = 8
BUSY = 0.6
"""Work of the GPU over the time that a batch takes to come: it is starved, and not idle."""
FILE_BYTES, PIECE = 64 << 20, 4096


class Items:
    """A dataset whose items take their time as the cause has it."""

    def __init__(self, cause: str, path: str) -> None:
        self.cause, self.path = cause, path

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> int:
        until = time.monotonic() + ITEM_S
        if self.cause == "dataloader_sleep":
            time.sleep(ITEM_S)
        elif self.cause == "dataloader_io":
            _read_until(self.path, until, index)
        elif self.cause in ("main_process", "dataloader_cpu"):
            while time.monotonic() < until:
                pass
        return index


def _read_until(path: str, until: float, seed: int) -> None:
    """Read pieces from the disk itself: the page cache would make them cost nothing."""
    page = mmap.mmap(-1, PIECE)
    try:
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        # A file system in memory, or one that always caches: then there is no disk to wait for, and the job fails.
        file = os.open(path, os.O_RDONLY)
    try:
        while time.monotonic() < until:
            seed = (seed * 6364136223846793005 + 1442695040888963407) & (1 << 63) - 1
            os.preadv(file, [page], seed % (FILE_BYTES // PIECE) * PIECE)
    finally:
        os.close(file)


@contextmanager
def _data(cause: str) -> Iterator[str]:
    """The file that the items read, on a disk where there is one; empty for the other causes."""
    if cause != "dataloader_io":
        yield ""
        return
    folder = "/var/tmp" if os.access("/var/tmp", os.W_OK) else None
    with tempfile.NamedTemporaryFile(prefix="gputop-items-", dir=folder) as file:
        for _ in range(FILE_BYTES >> 20):
            file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        yield file.name


def job(torch: Any, cause: str, seconds: float, device: str = "cuda") -> None:
    """A training loop that suffers from a cause. A step's work on the GPU is fitted to how fast batches come."""
    from torch.utils.data import DataLoader

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    kind = torch.float16 if device == "cuda" else torch.float32
    size = WIDTH if cause == "healthy" else HALF_WIDTH
    a = torch.randn(size, size, device=device, dtype=kind)
    row = torch.randn(1, ROW, device=device)
    narrow = cause == "small_kernels"

    def work(times: int) -> float:
        wait()
        begun = time.monotonic()
        for _ in range(times):
            torch.softmax(row, dim=1) if narrow else a @ a
        wait()
        return time.monotonic() - begun

    work(3)
    once_s = work(10) / 10
    with _data(cause) as path:
        times = max(1, round(0.1 / once_s))
        if cause in ("healthy", "small_kernels"):
            batches = None
        else:
            workers = 0 if cause == "main_process" else 4
            batches = iter(DataLoader(Items(cause, path), batch_size=BATCH, num_workers=workers))
            # The first ones stand ready: how fast they come is known after them.
            for _ in range(4 * workers + 1):
                next(batches)
            begun = time.monotonic()
            for _ in range(8):
                next(batches)
            each_s = (time.monotonic() - begun) / 8
            times = max(1, round(BUSY * each_s / once_s))
            print(f"a batch comes every {1000 * each_s:.1f} ms", flush=True)
        print(f"a step is {times} times {1000 * once_s:.2f} ms on the GPU", flush=True)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if batches is not None:
                next(batches)
            work(times)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hardware.gpu_work", description=__doc__)
    parser.add_argument("cause", choices=CAUSES)
    parser.add_argument("--for", dest="seconds", type=float, default=5.0)
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("PyTorch is not here: pip install torch", file=sys.stderr)
        return 3
    if not torch.cuda.is_available():
        print("PyTorch sees no GPU", file=sys.stderr)
        return 3
    job(torch, args.cause, args.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
