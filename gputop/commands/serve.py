"""The screen in a browser: on this machine's loopback alone, read-only, behind an address with a secret in it.

textual-serve runs one process a viewer and brings the terminal for the page. The page and the gate before it are ours:
nothing is loaded from anywhere else, and no other site and no other user of the machine gets in.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import json
import secrets
import shlex
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import asdict

from gputop.commands.needs import Needs
from gputop.config import Settings
from gputop.model.source import UsageError
from gputop.output.messages import say

NEEDS = Needs("nothing")

HOST = "127.0.0.1"
LOCAL_NAMES = ("127.0.0.1", "localhost", "::1")
"""Names in a request's Host; any other means that a foreign name was made to point here."""
COOKIE = "gputop"
MOST_VIEWERS = 8
"""Each viewer is a process that measures."""
SHUTDOWN_S = 0.5
"""How long aiohttp waits, twice, for what still runs; a viewer's process needs about a third of a second."""
PAGE = Path(__file__).parent.parent / "tui" / "web" / "index.html"
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; font-src 'self' data:; "
    "img-src 'self' data:; connect-src 'self' ws: wss:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The browser itself refuses whatever is not from here. ws: because some browsers do not count sockets as 'self'."""


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("source", nargs="?", help="demo, or a recording; without it this machine is watched")
    command.add_argument("scenario", nargs="?", help="with demo: one scenario instead of the whole node")
    command.add_argument("--port", type=int, default=8000, metavar="N", help="port (default 8000; 0: any free one)")


def run(args: argparse.Namespace, settings: Settings) -> int:
    try:
        from aiohttp import web
        from textual_serve.server import Server
    except ImportError:
        raise UsageError("serve needs textual-serve: pip install 'gputop-tui[web]'") from None
    if not 0 <= args.port <= 65535:
        raise UsageError(f"--port must be from 0 to 65535, not {args.port}")
    if args.source is not None and args.source != "demo" and not Path(args.source).exists():
        raise UsageError(f"no recording at {args.source}: name one, or `demo`, or nothing for this machine")
    server = Server(viewer_command(args, settings))
    token = secrets.token_urlsafe(18)
    app = application(token, server.handle_websocket, Path(server.statics_path))
    listener = _listen(args.port)
    port = listener.getsockname()[1]
    say(f"open this address in a browser on this machine (ctrl+c ends it; from afar: ssh -L {port}:{HOST}:{port} …):")
    sys.stdout.write(f"http://{HOST}:{port}/?token={token}\n")
    sys.stdout.flush()
    web.run_app(app, sock=listener, print=None, access_log=None, shutdown_timeout=SHUTDOWN_S)
    return 0


def viewer_command(args: argparse.Namespace, settings: Settings) -> str:
    """The shell command of one viewer's process."""
    values = asdict(settings)
    source = [part for part in (args.source, args.scenario) if part is not None]
    return shlex.join(
        ["exec", sys.executable, "-m", "gputop.commands.served", json.dumps(values, default=dict), *source]
    )


def _listen(port: int) -> Any:
    import socket

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        # Before the address is printed, so that whoever reads it can connect at once.
        listener.listen()
    except OSError as error:
        listener.close()
        raise UsageError(f"port {port} cannot be used: {error.strerror}; choose another one with --port") from None
    return listener


def application(token: str, websocket: Callable[[Any], Awaitable[Any]], statics: Path) -> Any:
    """The aiohttp application: page, socket and static files behind the gate."""
    from aiohttp import web

    page = PAGE.read_text(encoding="utf-8")
    viewers: set[asyncio.Task[Any] | None] = set()

    async def gate(request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        refusal = refused(token, request.headers, request.query.get("token"), request.cookies.get(COOKIE))
        if refusal is not None:
            return web.Response(status=403, text=refusal)
        return await handler(request)

    async def index(request: Any) -> Any:
        headers = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
        response = web.Response(text=page, content_type="text/html", headers=headers)
        response.set_cookie(COOKIE, token, httponly=True, samesite="Strict")
        return response

    async def viewer(request: Any) -> Any:
        if len(viewers) >= MOST_VIEWERS:
            return web.Response(status=503, text=f"{MOST_VIEWERS} browsers are looking already; close one of them")
        task = asyncio.current_task()
        viewers.add(task)
        try:
            return await websocket(request)
        finally:
            viewers.discard(task)

    async def end_viewers(_: Any) -> None:
        """Each ends its process; aiohttp by itself would wait for the browsers to leave."""
        for task in list(viewers):
            if task is not None:
                task.cancel()

    app = web.Application(middlewares=[web.middleware(gate)])
    app.on_shutdown.append(end_viewers)
    app.add_routes([web.get("/", index), web.get("/ws", viewer), web.static("/static", statics)])
    return app


def refused(token: str, headers: Any, given: str | None, cookie: str | None) -> str | None:
    """Why a request is turned away, or None: foreign name, foreign site, or no secret."""
    host = headers.get("Host", "")
    if urlsplit(f"//{host}").hostname not in LOCAL_NAMES:
        return "this server answers to its loopback address only"
    origin = headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != host:
        return "another site may not look at this screen"
    if not any(hmac.compare_digest(secret.encode(), token.encode()) for secret in (given, cookie) if secret):
        return "open the address that `gputop serve` printed, with its token"
    return None
