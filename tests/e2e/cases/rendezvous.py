"""A job that waits on a socket before its first step: nothing says that it is a rank of several."""

from __future__ import annotations

import socket

from tests.e2e.case import Case
from tests.e2e.job import Gpu

CASE = Case(("idle",), says=("waits",), cores=0.1, watch_s=90.0, never=("ranks", "disk", "cpu"))


def main(gpu: Gpu) -> None:
    gpu.hold()
    with (
        socket.create_server(("127.0.0.1", gpu.own_port)) as store,
        socket.create_connection(store.getsockname()) as me,
    ):
        me.recv(1)
