"""A script that serves by asyncio: between the bursts of its visitors it waits in epoll, and starves of nothing."""

from __future__ import annotations

import asyncio

from tests.e2e.case import Case
from tests.e2e.job import Gpu

CASE = Case(("low_demand",), cores=0.2, visited=True, only=frozenset({"collecting", "startup", "low_demand"}))


def main(gpu: Gpu) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        gpu.step(0.08)
        writer.write(b"!")
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", gpu.own_port)
        await server.serve_forever()

    asyncio.run(serve())
