"""Programs that a worker or the main thread starts."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Iterator

from tests.e2e.case import CALM, case
from tests.e2e.job import Gpu
from tests.e2e.loads import BATCH_BYTES, compute, endless, fed_by

CHILD_PER_SHARD_DECODER = """
import sys
from tests.e2e.loads import compute
for _ in range(6):
    sys.stdout.buffer.write(compute(0.4))
    sys.stdout.buffer.flush()
"""


@case(
    ("dataloader_cpu",),
    ("cpu", "queued"),
    1,
    ("child",),
    cores=1.0,
    never=("startup", "network", "disk"),
)
def child_per_shard(gpu: Gpu) -> None:
    """A worker that starts a decoding process for each shard: one after the other they are one worker, not restarts."""

    def decoded() -> Iterator[bytes]:
        while True:
            with subprocess.Popen(
                [sys.executable, "-c", CHILD_PER_SHARD_DECODER], stdout=subprocess.PIPE
            ) as decoder:
                assert decoder.stdout is not None
                while batch := decoder.stdout.read(BATCH_BYTES):
                    yield batch

    gpu.train(fed_by([decoded]), 0.05)


PROGRAM = "from tests.e2e.loads import compute; compute(2.0)"


@case(
    ("dataloader_cpu", "main_process"),
    ("cpu", "queued"),
    cores=1.0,
    never=("disk", "network", "fetch", "sleep"),
)
def runs_programs(gpu: Gpu) -> None:
    """Before every few steps the main thread runs a program and waits for its end: a line of children is one feeder."""

    def batches() -> Iterator[bytes]:
        while True:
            subprocess.run([sys.executable, "-c", PROGRAM], check=True)
            yield from [b""] * 3

    gpu.train(batches(), 0.2)


@case(
    ("dataloader_io",),
    ("network", "fetch"),
    1,
    ("child",),
    cores=0.3,
    never=("cpu", "queued", "disk"),
)
def shell_fetches(gpu: Gpu) -> None:
    """A worker that reads each shard from a shell's pipeline: a download into a decoder, both short-lived."""
    script = f"exec 3<>/dev/tcp/127.0.0.1/{gpu.port}; head -c {4 * BATCH_BYTES} <&3 | cat"

    def fetched() -> Iterator[bytes]:
        while True:
            with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE) as shell:
                assert shell.stdout is not None
                while batch := shell.stdout.read(BATCH_BYTES):
                    yield batch

    gpu.train(fed_by([fetched]), 0.05)


COMPILES_S = 26.0


@case(("healthy",), only=CALM | {"idle"}, cores=1.0, watch_s=62.0, changes=2)
def compiles_first(gpu: Gpu) -> None:
    """The first kernels, half a minute in which children compile, then training: that pause is part of its start."""
    gpu.step(0.5)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.map(compute, [COMPILES_S])
    gpu.train(endless(lambda: b""), 0.3)
