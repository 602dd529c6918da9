"""The main thread prints more than the reader of its output takes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import endless, fed_by

CASE = Case(("main_process",), ("pipe",), says=("reader of a pipe",), cores=0.1, never=("fetch", "network", "cpu"))
READER = "import os, time\nwhile os.read(0, 65536): time.sleep(0.4)"


def main(gpu: Gpu) -> None:
    reader = subprocess.Popen([sys.executable, "-c", READER], stdin=subprocess.PIPE, start_new_session=False)
    ready = fed_by([lambda: endless(lambda: b"")] * 2)

    def printed() -> Iterator[bytes]:
        assert reader.stdin is not None
        while True:
            batch = next(ready)
            reader.stdin.write(bytes(65536))
            reader.stdin.flush()
            yield batch

    gpu.train(printed(), 0.08)
