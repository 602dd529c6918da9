"""A worker that reads from a decoder of its own, a child process: the worker waits on a pipe, the child computes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import BATCH_BYTES, fed_by

CASE = Case(("dataloader_cpu",), ("cpu", "queued"), 1, cores=1.0)
DECODER = """
import sys
from tests.e2e.loads import compute
while True:
    sys.stdout.buffer.write(compute(0.4))
    sys.stdout.buffer.flush()
"""


def decoded() -> Iterator[bytes]:
    decoder = subprocess.Popen([sys.executable, "-c", DECODER], stdout=subprocess.PIPE)
    assert decoder.stdout is not None
    while True:
        yield decoder.stdout.read(BATCH_BYTES)


def main(gpu: Gpu) -> None:
    gpu.train(fed_by([decoded]), 0.05)
