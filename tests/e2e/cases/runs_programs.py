"""Before every few steps the main thread runs a program and waits for its end: a line of children is one feeder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu

CASE = Case(
    ("dataloader_cpu", "main_process"), ("cpu", "queued"), cores=1.0, never=("disk", "network", "fetch", "sleep")
)
PROGRAM = "from tests.e2e.loads import compute; compute(2.0)"


def main(gpu: Gpu) -> None:
    def batches() -> Iterator[bytes]:
        while True:
            subprocess.run([sys.executable, "-c", PROGRAM], check=True)
            yield from [b""] * 3

    gpu.train(batches(), 0.2)
