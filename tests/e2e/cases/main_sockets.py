"""The main thread reads a slow socket itself: no loader is to blame, because there is none."""

from __future__ import annotations

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import connect, endless, receive

CASE = Case(("main_process",), ("network",), says=("network",), cores=0.1)


def main(gpu: Gpu) -> None:
    connection = connect(gpu.port)
    gpu.train(endless(lambda: receive(connection)), 0.08)
