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
import re
import signal
import socket as sockets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import textual_serve
from aiohttp import WSMsgType, web
from msgspec import Struct

from gputop.features.web.viewer import Size, Viewer
from gputop.output.messages import say
from gputop.system.children import ours

# Which requests are answered: those that name this machine's loopback; and which messages, those of the page.
#
# No cookie is read or set: browsers send cookies to every port of a host, so that a program on another port of this
# machine would receive them. The key is asked for later, as the first message on the WebSocket.

LOCAL_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE | re.ASCII)
"""The accepted Host, with any port, since a forwarded one differs. Any other name was made to point here."""


def refusal(host: str) -> str | None:
    """Why a request that names this Host is turned away (403), or None."""
    return None if LOCAL_HOST.fullmatch(host) else "this server answers to its loopback address only"


def headers_for(host: str) -> dict[str, str]:
    """Headers of every answer: they make the browser refuse whatever is not from here.

    ``host`` has passed the gate. The sockets are named because some browsers do not count them as 'self'; textual.js
    writes its styles into the page.
    """
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; "
        f"img-src 'self' data:; connect-src 'self' ws://{host} wss://{host}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }


# What a browser may send: a closed set of messages, and sizes that a screen can have.
#
# textual.js sends JSON arrays that begin with their kind; ``["key", …]`` is our page's own.

LARGEST_MESSAGE = 1 << 16
"""Bytes."""


class BadMessage(Exception):
    """The text is none of the known messages."""


class GateKey(Struct, frozen=True, array_like=True, tag="key"):
    """The first message of all: the secret of the address."""

    key: str


class Typed(Struct, frozen=True, array_like=True, tag="stdin"):
    """What a terminal would send: keys and the mouse."""

    text: str


class Resize(Struct, frozen=True, array_like=True, tag="resize"):
    size: Size


class Ping(Struct, frozen=True, array_like=True, tag="ping"):
    """To be answered with the same text."""

    text: str


class Focus(Struct, frozen=True, array_like=True, tag="focus"):
    """The page has the keyboard."""


class Blur(Struct, frozen=True, array_like=True, tag="blur"):
    """The page has lost the keyboard."""


Message = GateKey | Typed | Resize | Ping | Focus | Blur
_DECODER = msgspec.json.Decoder(Message)


def decoded(text: str) -> Message:
    """One message. Raises BadMessage."""
    try:
        message: Message = _DECODER.decode(text)
        return message
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        raise BadMessage from None


def first_size(width: str, height: str) -> Size:
    """The size in the socket's address, clamped. Raises BadMessage for anything but numbers."""
    if not all(re.fullmatch("[0-9]{1,18}", number) for number in (width, height)):
        raise BadMessage
    return Size(int(width), int(height)).clamped()


# The server.

MOST_VIEWERS = 8
"""Each viewer is a process that measures."""
KEY_S = 5.0
"""How long a socket may last without the key."""
CLOSE_S = 1.0
"""How long a browser may take to confirm that a socket is closed."""
HEARTBEAT_S = 15.0
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


class Server:
    """The page and its viewers, behind one key."""

    def __init__(self, key: str, screen: Screen) -> None:
        self._key = key.encode()
        self._screen = screen
        self._places = 0
        self._viewers: set[Viewer] = set()
        self._sockets: set[web.WebSocketResponse] = set()
        self._runner: web.AppRunner | None = None

    async def run(self, listener: sockets.socket) -> int:
        """Serve until a signal comes; the exit status."""
        # What it logs of a bad request quotes the request.
        logging.getLogger("aiohttp").setLevel(logging.CRITICAL)
        loop = asyncio.get_running_loop()
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
            self._application(), handle_signals=False, access_log=None, lingering_time=0.0, shutdown_timeout=CLOSE_S
        )
        await self._runner.setup()
        await web.SockSite(self._runner, listener).start()

    async def stop(self) -> None:
        """Everything ends with the server at once; nothing in a viewer's process is worth waiting for."""
        assert self._runner is not None
        closing = [_close(socket, 1001, "gputop serve was ended.") for socket in self._sockets]
        await asyncio.gather(*(viewer.end() for viewer in self._viewers), *closing)
        await self._runner.cleanup()

    def _application(self) -> web.Application:
        @web.middleware
        async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
            refused = refusal(request.headers.get("Host", ""))
            return await handler(request) if refused is None else web.Response(status=403, text=refused)

        application = web.Application(middlewares=[gate])
        for path, (file, kind) in FILES.items():
            application.router.add_get(path, _giving(file, kind))
        application.router.add_get("/ws", self._socket)
        return application

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
                code, reason = await self._view(socket, size)
        finally:
            self._sockets.discard(socket)
            await _close(socket, code, reason)
        return socket

    async def _has_key(self, socket: web.WebSocketResponse) -> bool:
        """Whether the first message is the key, and comes in time."""
        try:
            message = await socket.receive(timeout=KEY_S)
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
            screen = self._screen
            environment = ours(COLUMNS=str(size.width), ROWS=str(size.height), TEXTUAL_COLOR_SYSTEM="truecolor")
            viewer = await Viewer.start(screen.command, screen.settings, environment)
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
            if failure is None:
                return 1000, "The screen was closed."
            say(f"a viewer's screen failed: {failure}")
            return FAILED, failure
        finally:
            shown.cancel()
            heard.cancel()
            self._viewers.discard(viewer)
            await viewer.leave()


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


async def _close(socket: web.WebSocketResponse, code: int, reason: str) -> None:
    """Close a socket, with or without the browser's help: one that reads nothing would hold it."""
    with contextlib.suppress(asyncio.TimeoutError, ConnectionError, RuntimeError):
        message = reason.encode()[:LONGEST_REASON].decode("utf-8", "ignore")
        await asyncio.wait_for(socket.close(code=code, message=message.encode()), 2 * CLOSE_S)


def _giving(file: Path, kind: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A handler that serves one file, compressed: the terminal's script is half a megabyte."""
    packed = gzip.compress(file.read_bytes(), mtime=0)

    async def give(request: web.Request) -> web.Response:
        headers = {**headers_for(request.headers["Host"]), "Content-Encoding": "gzip", "Content-Type": kind}
        return web.Response(body=packed, headers=headers)

    return give
