"""A rank that waits for the others before its first step."""

from __future__ import annotations

import socket

from tests.e2e.case import Case
from tests.e2e.job import Gpu

CASE = Case(("idle",), ("ranks",), says=("rendezvous",), cores=0.1, watch_s=90.0, never=("network", "disk", "cpu"))


def main(gpu: Gpu) -> None:
    gpu.hold()
    with (
        socket.create_server(("127.0.0.1", gpu.own_port)) as store,
        socket.create_connection(store.getsockname()) as me,
    ):
        me.recv(1)
