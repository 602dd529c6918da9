"""`gputop serve demo` on a free port, those who look at it, and a program that listens on another port."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

from tests.support.waiting import has_ended

ROOT = Path(__file__).parent.parent.parent


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


class Serving:
    """``gputop serve SOURCE`` in a process, and a session of an HTTP client."""

    def __init__(self, source: str = "demo") -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the server
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gputop", "serve", source, "--port", "0"],
            env=environment(),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        self.origin, _, self.key = self.address.rstrip("/").rpartition("/")
        assert self.key, self.said()
        self.base = self.address.rstrip("/")
        self.port = int(self.origin.rpartition(":")[2])

    async def __aenter__(self) -> Serving:
        from aiohttp import ClientSession

        self.session = ClientSession()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        await self.session.close()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._stderr.close()

    def said(self) -> str:
        """All that it has written to stderr."""
        return os.pread(self._stderr.fileno(), 1 << 20, 0).decode("utf-8", "replace")

    def viewers(self) -> list[int]:
        """Processes of viewers that are running."""
        children = (
            Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        )
        return [int(pid) for pid in children]

    async def opened(self, **size: int) -> Any:
        """The socket of one viewer."""
        return await self.session.ws_connect(f"{self.base}/ws?{urlencode(size)}", max_msg_size=0)

    async def look(self, **size: int) -> Any:
        """The same, when the screen has been drawn."""
        socket = await self.opened(**size)
        await self._until(socket, b"NOT WORKING")
        return socket

    async def type(self, socket: Any, text: str, *, until: bytes) -> None:
        await socket.send_json(["stdin", text])
        await self._until(socket, until)

    async def _until(self, socket: Any, text: bytes) -> None:
        seen = b""

        async def read() -> None:
            nonlocal seen
            while text not in seen:
                message = await socket.receive()
                assert isinstance(message.data, bytes), (message, self.said())
                seen += message.data

        await asyncio.wait_for(read(), 60)

    async def closing(self, socket: Any) -> tuple[int, str]:
        """Code and reason with which the server closes a socket."""
        from aiohttp import WSMsgType

        while (message := await socket.receive(timeout=60)).type is not WSMsgType.CLOSE:
            assert message.type in (WSMsgType.BINARY, WSMsgType.TEXT), message
        return int(message.data), str(message.extra)


async def gone(pids: list[int], seconds: float) -> None:
    """Until these processes have ended, in so many seconds, or ten times as many on a slow machine."""
    deadline = time.monotonic() + 10.0 * seconds
    while alive := [pid for pid in pids if not has_ended(pid)]:
        assert time.monotonic() < deadline, f"left behind: {alive}"
        await asyncio.sleep(0.02)
