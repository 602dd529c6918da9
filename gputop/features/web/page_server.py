"""The page, its files, and the socket behind which a viewer's process draws.

The page holds nothing secret: it takes the key from the fragment of its address, which no browser sends to a server,
and it opens the socket with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hmac
import logging
import signal
import socket as sockets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import textual_serve
from aiohttp import WSMsgType, web
from msgspec import Struct

from gputop.features.web.gate import (
    ACCEPTED_AT_ONCE,
    LARGEST_MESSAGE,
    STRANGER_S,
    BadMessage,
    Blur,
    ConnectionLimit,
    Focus,
    GateKey,
    Ping,
    Resize,
    Size,
    Typed,
    decoded,
    first_size,
    guarded,
    headers_for,
    refusal,
)
from gputop.features.web.viewer import Viewer
from gputop.output.messages import say

MOST_VIEWERS = 8
"""Each viewer is a process that measures."""
WAITING_CONNECTIONS = 512
"""In the kernel, until the event loop takes them."""
MOST_TOLD = 64
"""The most lines of errors printed in all: some of their words are a client's."""
CLOSE_S = 1.0
"""How long a browser may take to confirm that a socket is closed."""
HEARTBEAT_S = 15.0
HEADER_BYTES = 8190
BAD_MESSAGE, BAD_KEY, FULL, FAILED = 4400, 4403, 1013, 1011
"""Close codes. 1013 is "try again later", 1011 an error of ours; 4000 and up are a program's own, here 4 and HTTP's."""
LONGEST_REASON = 120
"""Bytes of a close frame's reason, with room for the code (RFC 6455, section 5.5)."""
PAGE = Path(__file__).parent / "page"
TERMINAL = Path(textual_serve.__file__).parent / "static"
FILES = {
    "/": (PAGE / "index.html", "text/html"),
    "/page.js": (PAGE / "page.js", "text/javascript"),
    "/textual.js": (TERMINAL / "js" / "textual.js", "text/javascript"),
    "/xterm.css": (TERMINAL / "css" / "xterm.css", "text/css"),
    "/RobotoMono.ttf": (TERMINAL / "fonts" / "RobotoMono-VariableFont_wght.ttf", "font/ttf"),
}
"""All files that are served: a closed table, so that no path leads anywhere else."""


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Screen(Struct, frozen=True):
    """What is shown: how a viewer's process is started."""

    command: Sequence[str]
    settings: Mapping[str, Any]
    folder: str


class Server:
    """The page and its viewers, behind one key."""

    def __init__(self, key: str, screen: Screen) -> None:
        self._key = key.encode()
        self._screen = screen
        self._places = 0
        self._viewers: set[Viewer] = set()
        self._leaving: dict[Viewer, asyncio.Task[None]] = {}
        self._sockets: set[web.WebSocketResponse] = set()
        self._words_told: set[str] = set()
        self._is_ending = False
        self._door: ConnectionLimit | None = None
        self._runner: web.AppRunner | None = None
        self._accepting: asyncio.Server | None = None

    async def run(self, listener: sockets.socket) -> int:
        """Serve until a signal comes; the exit status."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self._tell_once(f"internal error: {context['message']}"))
        # What libraries log about a bad request becomes one line, without the request's content.
        logging.basicConfig(handlers=[_Lines(self._tell_once)], force=True)
        ended: asyncio.Future[int] = loop.create_future()

        def end(number: int) -> None:
            if not ended.done():
                ended.set_result(number)

        for caught in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(caught, end, caught)
        await self.start(listener)
        number = await ended
        await self.stop()
        return 0 if number in (signal.SIGINT, signal.SIGTERM) else 128 + number

    async def start(self, listener: sockets.socket) -> None:
        """Answer on a socket that listens and does not block."""
        self._runner = web.AppRunner(
            self._application(),
            handle_signals=False,
            access_log=None,
            keepalive_timeout=STRANGER_S,
            lingering_time=0.0,
            auto_decompress=False,
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
            shutdown_timeout=CLOSE_S,
        )
        await self._runner.setup()
        assert self._runner.server is not None
        loop = asyncio.get_running_loop()
        self._door = ConnectionLimit(loop)
        factory = guarded(self._door, self._runner.server)
        self._accepting = await loop.create_server(factory, sock=listener, backlog=ACCEPTED_AT_ONCE)
        # asyncio uses one number for the backlog and for how many it accepts at once.
        listener.listen(WAITING_CONNECTIONS)

    async def stop(self) -> None:
        """Everything ends with the server at once; nothing in a viewer's process is worth waiting for."""
        assert self._accepting is not None and self._runner is not None
        self._accepting.close()
        self._is_ending = True
        ending = [viewer.end() for viewer in (*self._viewers, *self._leaving)]
        closing = [_close(socket, None, 1001, "gputop serve was ended.") for socket in self._sockets]
        await asyncio.gather(*ending, *closing)
        await self._runner.cleanup()

    def _application(self) -> web.Application:
        @web.middleware
        async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._gate(request, handler)

        application = web.Application(middlewares=[gate])
        for path, (file, kind) in FILES.items():
            application.router.add_get(path, _giving(file, kind))
        application.router.add_get("/ws", self._socket)
        return application

    async def _gate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if len(request.headers.getall("Host", ())) > 1 or len(request.headers.getall("Origin", ())) > 1:
            return web.Response(status=400, text="a request has one Host and at most one Origin")
        refused = refusal(request.headers, socket=request.path == "/ws")
        if refused is not None:
            self._tell_once(f"turned a request away ({refused.status}): {refused.words}")
            return web.Response(status=refused.status, text=refused.words)
        return await handler(request)

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        try:
            size = first_size(request.query.get("width", "80"), request.query.get("height", "24"))
        except BadMessage:
            return web.Response(status=400, text="width and height are numbers")
        socket = web.WebSocketResponse(heartbeat=HEARTBEAT_S, max_msg_size=LARGEST_MESSAGE, timeout=CLOSE_S)
        await socket.prepare(request)
        self._sockets.add(socket)
        code, reason = BAD_KEY, "the key is not that of this server"
        try:
            if await self._has_key(socket):
                assert self._door is not None
                self._door.let_in(request.transport)
                code, reason = await self._view(socket, size)
            else:
                self._tell_once("turned a browser away (403): " + reason)
        finally:
            self._sockets.discard(socket)
            await _close(socket, request.transport, code, reason)
        return socket

    async def _has_key(self, socket: web.WebSocketResponse) -> bool:
        """Whether the first message is the key, and comes in time."""
        try:
            message = await socket.receive(timeout=STRANGER_S)
            key_message = decoded(message.data) if message.type is WSMsgType.TEXT else None
        except (asyncio.TimeoutError, BadMessage):
            return False
        return isinstance(key_message, GateKey) and hmac.compare_digest(
            key_message.key.encode("utf-8", "replace"), self._key
        )

    async def _view(self, socket: web.WebSocketResponse, size: Size) -> tuple[int, str]:
        """Show the screen until either side ends it. Returns the close code and reason."""
        if self._places >= MOST_VIEWERS:
            return FULL, f"{MOST_VIEWERS} browsers are connected already; close one of them"
        # Taken before the first await: twenty browsers may connect at the same moment.
        self._places += 1
        try:
            # There are never more processes than places: viewers that are slow to leave are killed.
            for late in list(self._leaving)[: max(0, self._places + len(self._leaving) - MOST_VIEWERS)]:
                late.kill()
            screen = self._screen
            viewer = await Viewer.start(screen.command, screen.settings, size, screen.folder)
            return await self._look(socket, viewer)
        except OSError as error:
            return FAILED, f"the screen cannot be started: {error.strerror}"
        finally:
            self._places -= 1

    async def _look(self, socket: web.WebSocketResponse, viewer: Viewer) -> tuple[int, str]:
        self._viewers.add(viewer)
        shown = asyncio.create_task(viewer.show(socket.send_bytes))
        heard = asyncio.create_task(_hear(socket, viewer))
        try:
            await asyncio.wait({shown, heard}, return_when=asyncio.FIRST_COMPLETED)
            if heard.done():
                return heard.result()
            failure = await viewer.failure()
            if failure is None or self._is_ending:
                return 1000, "The screen was closed."
            self._tell_once(f"a viewer's screen failed: {failure}")
            return FAILED, failure
        finally:
            shown.cancel()
            heard.cancel()
            self._viewers.discard(viewer)
            if not viewer.has_ended:
                self._leaving[viewer] = leaving = asyncio.create_task(viewer.leave())
                leaving.add_done_callback(lambda _: self._leaving.pop(viewer, None))

    def _tell_once(self, words: str) -> None:
        """One line for each kind of error, however often it happens."""
        if words not in self._words_told and len(self._words_told) < MOST_TOLD:
            self._words_told.add(words)
            say(f"{words} (reported once)")


class _Lines(logging.Handler):
    """Log records as lines, without their tracebacks."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else record.levelname.lower()
        self._tell(f"bad request or connection: {kind}")


async def _hear(socket: web.WebSocketResponse, viewer: Viewer) -> tuple[int, str]:
    """Pass on what a browser sends until it leaves. Returns the close code and reason."""
    async for message in socket:
        try:
            if message.type is not WSMsgType.TEXT:
                raise BadMessage
            event = decoded(message.data)
        except BadMessage:
            return BAD_MESSAGE, "a message that this screen does not know"
        if isinstance(event, Typed):
            viewer.type(event.text)
        elif isinstance(event, Resize):
            viewer.resize(event.size.clamped())
        elif isinstance(event, Focus | Blur):
            viewer.focus(isinstance(event, Focus))
        elif isinstance(event, Ping):
            with contextlib.suppress(ConnectionError):
                await socket.send_json(["pong", event.text])
    return 1000, "The screen was closed."


async def _close(
    socket: web.WebSocketResponse, transport: asyncio.BaseTransport | None, code: int, reason: str
) -> None:
    """Close a socket, with or without the browser's help: one that reads nothing would hold it."""
    cut = reason
    if len(reason.encode()) > LONGEST_REASON:
        cut = reason.encode()[: LONGEST_REASON - 3].decode("utf-8", "ignore") + "…"
    with contextlib.suppress(asyncio.TimeoutError, ConnectionError, RuntimeError):
        await asyncio.wait_for(socket.close(code=code, message=cut.encode()), 2 * CLOSE_S)
    if isinstance(transport, asyncio.Transport):
        transport.abort()


def _giving(file: Path, kind: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A handler that serves one file, compressed: the terminal's script is half a megabyte."""
    packed = gzip.compress(file.read_bytes(), mtime=0)

    async def give(request: web.Request) -> web.Response:
        headers = {**headers_for(request.headers["Host"]), "Content-Encoding": "gzip", "Content-Type": kind}
        return web.Response(body=packed, headers=headers)

    return give
