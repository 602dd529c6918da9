"""A worker that starts a decoding process for each shard: one after the other they are one worker, not restarts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import BATCH_BYTES, fed_by

CASE = Case(("dataloader_cpu",), ("cpu", "queued"), 1, ("child",), cores=1.0, never=("startup", "network", "disk"))
DECODER = """
import sys
from tests.e2e.loads import compute
for _ in range(6):
    sys.stdout.buffer.write(compute(0.4))
    sys.stdout.buffer.flush()
"""


def main(gpu: Gpu) -> None:
    def decoded() -> Iterator[bytes]:
        while True:
            with subprocess.Popen([sys.executable, "-c", DECODER], stdout=subprocess.PIPE) as decoder:
                assert decoder.stdout is not None
                while batch := decoder.stdout.read(BATCH_BYTES):
                    yield batch

    gpu.train(fed_by([decoded]), 0.05)
