"""Workers that read from a slow file system in user space, as a bucket that is mounted."""

from __future__ import annotations

from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import BATCH_BYTES, fed_by

CASE = Case(("dataloader_io",), ("network",), 2, ("mount-",), cores=0.1, mount_s=0.4)


def main(gpu: Gpu) -> None:
    def read() -> Iterator[bytes]:
        with open(gpu.mount, "rb", buffering=0) as file:
            while True:
                yield file.read(BATCH_BYTES)

    gpu.train(fed_by([read, read]), 0.05)
