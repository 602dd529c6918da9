"""A program for each item, and a step every few seconds: judged before its first minute has passed."""

from __future__ import annotations

import subprocess
import sys

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import BATCH_BYTES, endless, fed_by

CASE = Case(("dataloader_cpu",), ("cpu", "queued"), 1, cores=1.0, never=("fetch", "network", "disk"))
DECODE = """
import os, time
end = time.monotonic() + 2.2
while time.monotonic() < end:
    sum(range(200))
os.write(1, bytes(4096))
"""


def main(gpu: Gpu) -> None:
    def decoded() -> bytes:
        done = subprocess.run([sys.executable, "-c", DECODE], stdout=subprocess.PIPE, check=True)
        return done.stdout[:BATCH_BYTES]

    gpu.train(fed_by([lambda: endless(decoded)]), 0.15)
