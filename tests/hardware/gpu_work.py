"""Work for a real GPU, by PyTorch: `python -m tests.hardware.gpu_work gemm|profile|job`. Exit 3 without either."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

CAUSES = {
    "main_process": ("main_process",),
    "dataloader_cpu": ("dataloader_cpu",),
    "dataloader_sleep": ("dataloader_wait", "starved_unattributed"),
    "dataloader_io": ("dataloader_io", "dataloader_wait"),
    "small_kernels": ("small_kernels", "low_sm"),
    "healthy": ("healthy", "working", "no_bottleneck_seen"),
}
"""The jobs, and what gputop may say of each."""
WIDTH = 8192
ITEM_S = 0.02
FILE_BYTES = 4 << 20


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
            with open(self.path, "rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                while file.read(1 << 16):
                    pass
        elif self.cause in ("main_process", "dataloader_cpu"):
            while time.monotonic() < until:
                pass
        return index


def job(torch: Any, cause: str, seconds: float) -> None:
    """A training loop that suffers from a cause."""
    from torch.utils.data import DataLoader

    path = f"{os.environ.get('TMPDIR', '/var/tmp')}/gputop-items-{os.getpid()}"
    with open(path, "wb") as file:
        file.write(os.urandom(FILE_BYTES))
    try:
        workers = 0 if cause in ("main_process", "healthy", "small_kernels") else 4
        batches = iter(DataLoader(Items(cause, path), batch_size=8, num_workers=workers))
        size = 32 if cause == "small_kernels" else WIDTH if cause == "healthy" else 2048
        a = torch.randn(size, size, device="cuda", dtype=torch.float16)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if workers or cause == "main_process":
                next(batches)
            for _ in range(2000 if cause == "small_kernels" else 10):
                a @ a
            torch.cuda.synchronize()
    finally:
        os.unlink(path)


def gemm(torch: Any, seconds: float) -> None:
    """Prints how many TFLOP/s a large product of matrices reaches."""
    a = torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.float16)
    for _ in range(3):
        a @ a
    torch.cuda.synchronize()
    begun, count = time.monotonic(), 0
    while time.monotonic() - begun < seconds:
        for _ in range(10):
            a @ a
        torch.cuda.synchronize()
        count += 10
    print(f"{2 * WIDTH**3 * count / (time.monotonic() - begun) / 1e12:.1f}")


def profile(torch: Any) -> None:
    """Prints how many kernels torch.profiler sees of ten products."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiling

    a = torch.randn(2048, 2048, device="cuda")
    with profiling(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        for _ in range(10):
            a @ a
        torch.cuda.synchronize()
    print(sum(str(event.device_type).endswith("CUDA") for event in found.events()))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hardware.gpu_work", description=__doc__)
    parser.add_argument("work", choices=("gemm", "profile", "job"))
    parser.add_argument("cause", nargs="?", choices=CAUSES)
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
    if args.work == "job":
        job(torch, args.cause or "healthy", args.seconds)
    elif args.work == "gemm":
        gemm(torch, args.seconds)
    else:
        profile(torch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
