"""The server of ``gputop serve``: textual-serve's, on loopback, behind a token in the address.

Any process of this machine may connect and is hostile until it names the token. A page of another origin cannot know
the token; a name that was made to point here (DNS rebinding) is refused by its Host.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from aiohttp import web
from textual_serve.app_service import AppService
from textual_serve.server import Server

from gputop.system.children import ours, started
from gputop.system.terminal_size import MOST_COLUMNS, MOST_ROWS

LOCAL_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE | re.ASCII)
"""The accepted Host; any port, because a forwarded one differs."""
MOST_VIEWERS = 8
"""Each viewer is a process that measures."""
LARGEST_MESSAGE = 1 << 16
MOST_UNREAD = 1 << 16
LEAVE_S = 3.0
"""How long a child may take to end once its socket is closed."""
CLOSE_S = 1.0
BAD_MESSAGE, FULL = 4400, 1013
PAGE = Path(__file__).parent / "page"
# Sockets are named because some browsers do not count them as 'self'; textual.js writes styles into the page.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; img-src 'self' data:; "
    "connect-src 'self' ws://127.0.0.1:* ws://localhost:*; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def require_local_host(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse every request whose Host is not this machine's loopback."""
    if LOCAL_HOST.fullmatch(request.headers.get("Host", "")):
        return await handler(request)
    return web.Response(status=403, text="this server answers to its loopback address only\n")


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Let the browser load nothing from elsewhere, and hand the address to nobody."""
    response.headers.update(HEADERS)


class Viewer(AppService):
    """One viewer's process, started by ``system/children.py``."""

    child: Sequence[str]
    variables: Mapping[str, str]

    # Private in textual-serve, and the only place where it starts a process: by a shell.
    async def _open_app_process(self, width: int = 80, height: int = 24) -> Any:
        size = {"COLUMNS": str(_cells(width, MOST_COLUMNS)), "ROWS": str(_cells(height, MOST_ROWS))}
        environment = ours(**self.variables, **size, TEXTUAL_COLOR_SYSTEM="truecolor")
        self._process = process = await started(self.child, environment)
        self._stdin = process.stdin
        return process

    async def set_terminal_size(self, width: int, height: int) -> None:
        await super().set_terminal_size(_cells(width, MOST_COLUMNS), _cells(height, MOST_ROWS))

    # textual-serve would wait for a process that reads nothing, even when its browser has gone: drop packets instead.
    async def send_bytes(self, data: bytes) -> bool:
        return self._write(b"D", data)

    async def send_meta(self, data: dict[str, str | int | bool | None]) -> bool:
        return self._write(b"M", json.dumps(data).encode())

    def _write(self, kind: Literal[b"D", b"M"], content: bytes) -> bool:
        if has_room := self.stdin.transport.get_write_buffer_size() <= MOST_UNREAD:
            self.stdin.write(self.encode_packet(kind, content))
        return has_room

    async def ended(self) -> None:
        """Wait for the process's end."""
        assert self._process is not None
        await self._process.wait()

    async def end(self) -> None:
        """End the process; kill its session where it takes too long."""
        # textual-serve lets its own cancellation out where the process ended at once.
        with suppress(asyncio.TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(self.stop(), LEAVE_S)
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()


def _cells(number: Any, most: int) -> int:
    """Return a size that a screen can have. Raises TypeError."""
    return max(1, min(int(number + 0), most))


class ScreenServer(Server):
    """Serves one screen, by one process for each socket."""

    def __init__(self, token: str, child: Sequence[str], variables: Mapping[str, str]) -> None:
        super().__init__("gputop")
        self._token, self._child, self._variables = token, child, variables
        self._viewers = 0

    async def application(self) -> web.Application:
        """Return the whole application: textual-serve's below the token, nothing beside it."""
        # Both log what a client sent.
        for name in ("aiohttp", "textual-serve"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        root = web.Application(middlewares=[require_local_host])
        root.on_response_prepare.append(add_headers)
        # Private in textual-serve, and its only way to the routes.
        screen = await self._make_app()
        screen.router.add_static("/page", PAGE)
        root.add_subapp(f"/{self._token}", screen)
        return root

    async def on_startup(self, app: web.Application) -> None:
        """Print no logo."""

    async def handle_index(self, request: web.Request) -> web.StreamResponse:
        return web.FileResponse(PAGE / "index.html")

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Run a process for one viewer until either side ends."""
        socket = web.WebSocketResponse(
            heartbeat=15.0, max_msg_size=LARGEST_MESSAGE, timeout=CLOSE_S
        )
        await socket.prepare(request)
        if self._viewers >= MOST_VIEWERS:
            await socket.close(
                code=FULL, message=b"%d browsers are connected already" % MOST_VIEWERS
            )
            return socket
        self._viewers += 1
        viewer = Viewer(
            "",
            write_bytes=socket.send_bytes,
            write_str=socket.send_str,
            close=socket.close,  # type: ignore[arg-type]
            download_manager=self.download_manager,
        )
        viewer.child, viewer.variables = self._child, self._variables
        try:
            await viewer.start(
                int(request.query.get("width", 80)), int(request.query.get("height", 24))
            )
            # Private in textual-serve; a message that it cannot read raises an error of any kind.
            tasks = map(
                asyncio.ensure_future, (self._process_messages(socket, viewer), viewer.ended())
            )
            done, others = await asyncio.wait(list(tasks), return_when=asyncio.FIRST_COMPLETED)
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            done.pop().result()
        except Exception:  # noqa: BLE001
            await socket.close(code=BAD_MESSAGE, message=b"not a message of this page")
        finally:
            await viewer.end()
            self._viewers -= 1
            await socket.close()
        return socket
