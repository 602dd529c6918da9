"""A checkpoint on a disk that syncs slowly: few bytes, and the main thread waits for each of them."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu

CASE = Case(("checkpoint_pause",), says=("waits for the disk",), cores=0.6, never=("network",), watch_s=50.0)
EVERY_S, SAVES_S = 12.0, 4.0


def main(gpu: Gpu) -> None:
    with tempfile.NamedTemporaryFile(dir=".") as file:

        def batches() -> Iterator[bytes]:
            saved = time.monotonic()
            while True:
                if time.monotonic() - saved >= EVERY_S:
                    end = time.monotonic() + SAVES_S
                    while time.monotonic() < end:
                        file.write(os.urandom(1 << 10))
                        file.flush()
                        os.fsync(file.fileno())
                    saved = time.monotonic()
                yield b""

        gpu.train(batches(), 0.2)
