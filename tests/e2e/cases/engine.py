"""A server whose engine is a child that holds the GPU: it waits at a pipe of its parent, who takes the requests."""

from __future__ import annotations

import asyncio
import multiprocessing
from multiprocessing.connection import Connection

from tests.e2e.case import Case
from tests.e2e.job import Gpu

CASE = Case(
    ("low_demand",),
    says=("takes requests",),
    cores=0.2,
    visited=True,
    watch_s=50.0,
    only=frozenset({"collecting", "startup", "idle", "low_demand"}),
)


def _compute(asked: Connection, gpu: Gpu) -> None:
    while True:
        asked.recv_bytes()
        gpu.step(0.08)
        asked.send_bytes(b"!")


def main(gpu: Gpu) -> None:
    ours, its = multiprocessing.Pipe()
    multiprocessing.get_context("fork").Process(target=_compute, args=(its, gpu), daemon=True).start()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        ours.send_bytes(b"?")
        writer.write(await asyncio.get_running_loop().run_in_executor(None, ours.recv_bytes))
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", gpu.own_port)
        await server.serve_forever()

    asyncio.run(serve())
