"""A checkpoint on a slow file system: few bytes, and the main thread waits for each of them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu

CASE = Case(
    ("checkpoint_pause",),
    says=("main waits for that",),
    cores=0.2,
    mount_s=0.1,
    changes=1,
    watch_s=50.0,
    never=("network", "disk"),
)
EVERY_S, SAVES_S = 12.0, 4.0


def main(gpu: Gpu) -> None:
    file = os.open(gpu.mount, os.O_WRONLY)

    def batches() -> Iterator[bytes]:
        saved = time.monotonic()
        while True:
            if time.monotonic() - saved >= EVERY_S:
                end = time.monotonic() + SAVES_S
                while time.monotonic() < end:
                    os.pwrite(file, bytes(4096), 0)
                saved = time.monotonic()
            yield b""

    gpu.train(batches(), 0.2)
