"""Workers that ask a multiprocessing Manager for each item: a wait for another process here, and no network."""

from __future__ import annotations

import time
from collections.abc import Iterator
from multiprocessing.managers import BaseManager

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import fed_by

CASE = Case(
    ("starved_unattributed",), ("unknown", "sleep", "lock"), 2, cores=0.1, never=("network", "fetch", "disk", "cpu")
)


class Index:
    def look_up(self) -> bytes:
        time.sleep(0.4)
        return b""


class Manager(BaseManager):
    pass


Manager.register("Index", Index)


def main(gpu: Gpu) -> None:
    with Manager() as manager:
        index = manager.Index()  # type: ignore[attr-defined]

        def asked() -> Iterator[bytes]:
            while True:
                yield index.look_up()

        gpu.train(fed_by([asked, asked]), 0.05)
