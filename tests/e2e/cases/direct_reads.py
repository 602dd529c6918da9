"""Workers that read past the page cache (O_DIRECT): state D, in a function that no table of names knows."""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from collections.abc import Iterator
from random import randrange

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import fed_by

CASE = Case(("dataloader_io",), ("disk",), 2, ("disk",), cores=0.6, never=("network",))
BLOCK, BLOCKS = 1 << 20, 64


def main(gpu: Gpu) -> None:
    # Without a name: nothing stays behind, whatever ends the job.
    with tempfile.TemporaryFile(dir=".") as file:
        file.write(os.urandom(BLOCK) * BLOCKS)
        file.flush()
        os.fsync(file.fileno())

        def read() -> Iterator[bytes]:
            data, buffer = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, BLOCK)
            while True:
                end = time.monotonic() + 0.4
                while time.monotonic() < end:
                    os.preadv(data, [buffer], BLOCK * randrange(BLOCKS))
                yield b""

        gpu.train(fed_by([read, read]), 0.05)
