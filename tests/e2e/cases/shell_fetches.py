"""A worker that reads each shard from a shell's pipeline: a download into a decoder, a process each and short-lived."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import BATCH_BYTES, fed_by

CASE = Case(("dataloader_io",), ("network", "fetch"), 1, ("child",), cores=0.3, never=("cpu", "queued", "disk"))


def main(gpu: Gpu) -> None:
    script = f"exec 3<>/dev/tcp/127.0.0.1/{gpu.port}; head -c {4 * BATCH_BYTES} <&3 | cat"

    def fetched() -> Iterator[bytes]:
        while True:
            with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE) as shell:
                assert shell.stdout is not None
                while batch := shell.stdout.read(BATCH_BYTES):
                    yield batch

    gpu.train(fed_by([fetched]), 0.05)
