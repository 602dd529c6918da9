"""``python -m tests.hardware.red_scenes SCENE --for S``: keep the first GPU busy with work that is none.

The scenes are those that every tool calls 100 % and that only SM activity, or what moves beside
it, tells from training. They need NVIDIA's driver alone: kernels come from ``gputop prove``.
``nccl_wait`` needs PyTorch and two GPUs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from typing import NamedTuple

from gputop.features.prove.cuda_program import KERNELS, SPIN, TINY, Cuda, CudaError

CANNOT = 3
"""The exit status where the machine cannot do what was asked."""
SHORT_NS = 20_000_000
EVER_CYCLES = 1 << 62
"""The kernel's second clock does not end it: only its time does."""
QUEUED = 2
TINY_QUEUED = 256
THREADS = 1024
RANKS = 2
MEETINGS = 20
"""All-reduces that both ranks enter before the second one stays away."""


class Scene(NamedTuple):
    """What runs on the GPU, and the verdicts that are right for it."""

    text: str
    verdicts: frozenset[str]


SCENES = {
    "one_sm": Scene(
        "one block of 1,024 threads: one multiprocessor is busy",
        frozenset({"low_sm", "small_kernels"}),
    ),
    "tiny_kernels": Scene("empty kernels, one after another", frozenset({"small_kernels"})),
    "spinning": Scene(
        "one kernel that holds every multiprocessor and computes nothing",
        frozenset({"stalled", "hang"}),
    ),
    "nccl_wait": Scene(
        "an all-reduce that the second rank never enters", frozenset({"hang", "communication"})
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.hardware.red_scenes", description=__doc__
    )
    parser.add_argument("scene", choices=SCENES)
    parser.add_argument("--for", dest="seconds", type=float, default=5.0, metavar="S")
    args = parser.parse_args()
    try:
        if args.scene == "nccl_wait":
            return nccl_wait(args.seconds)
        keep_busy(Cuda(KERNELS), args.scene, args.seconds)
    except CudaError as error:
        print(error, file=sys.stderr)
        return CANNOT
    return 0


def keep_busy(cuda: Cuda, scene: str, seconds: float) -> None:
    """Run the scene's kernels for so many seconds.

    Raises CudaError.
    """
    spin, tiny = cuda.function(SPIN, cuda.shared_bytes), cuda.function(TINY)
    # So much shared memory leaves room for one block on a multiprocessor.
    shared_bytes = cuda.shared_bytes
    if scene == "spinning":
        whole_ns = int(seconds * 1e9)
        cuda.launch(spin, cuda.multiprocessors, THREADS, shared_bytes, whole_ns, EVER_CYCLES)
        cuda.wait()
        return
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if scene == "one_sm":
            for _ in range(QUEUED):
                cuda.launch(spin, 1, THREADS, shared_bytes, SHORT_NS, EVER_CYCLES)
        else:
            for _ in range(TINY_QUEUED):
                cuda.launch(tiny, 1, 32)
        cuda.wait()


def nccl_wait(seconds: float) -> int:
    """Start two ranks that meet for a while, until the second one stays away."""
    try:
        import torch
    except ImportError:
        print("PyTorch is not here: pip install torch", file=sys.stderr)
        return CANNOT
    if torch.cuda.device_count() < RANKS:
        print("ranks that wait for each other need two GPUs", file=sys.stderr)
        return CANNOT
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517", "WORLD_SIZE": str(RANKS)}
    command = [sys.executable, "-c", RANK, str(seconds)]
    ranks = [
        subprocess.Popen(
            command, env={**os.environ, **address, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        )
        for rank in range(RANKS)
    ]
    time.sleep(seconds)
    for rank in ranks:
        rank.kill()
        rank.wait()
    return 0


RANK = f"""
import os, sys, time
import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
values = torch.ones(1 << 20, device="cuda")
for _ in range({MEETINGS}):
    dist.all_reduce(values)
torch.cuda.synchronize()
if rank == 0:
    dist.all_reduce(values)
    torch.cuda.synchronize()
time.sleep(float(sys.argv[1]))
"""


if __name__ == "__main__":
    sys.exit(main())
