"""Workers that a rate limit holds back: they sleep and try again."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import fed_by

CASE = Case(("starved_unattributed",), ("sleep",), 2, ("sleep",), cores=0.1)


def main(gpu: Gpu) -> None:
    def held_back() -> Iterator[bytes]:
        while True:
            time.sleep(0.5)
            yield b""

    gpu.train(fed_by([held_back, held_back]), 0.05)
