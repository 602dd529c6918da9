"""``gputop serve``: the screen in a browser, read-only, on loopback."""

from __future__ import annotations

import argparse
import secrets
import socket
import sys
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gputop.command_line.demo_node import DEMO
from gputop.command_line.registry import Needs
from gputop.config import Settings
from gputop.model.extras import install
from gputop.model.source import UsageError
from gputop.output.messages import say
from gputop.recording.reader import read_snapshots
from gputop.system.children import our_program

NEEDS = Needs("nothing")
HOST = "127.0.0.1"
SETTINGS = "SERVED_SETTINGS"
"""The environment variable that hands the settings to a viewer's process, as JSON; other users cannot read it."""


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "source", nargs="?", help="demo, or a recording; without it this machine is watched"
    )
    command.add_argument(
        "scenario", nargs="?", help="with demo: one scenario instead of the whole node"
    )
    command.add_argument(
        "--port", type=int, default=8000, metavar="N", help="port (default 8000; 0: any free one)"
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    try:
        from aiohttp import web

        from gputop.features.web.screen_server import ScreenServer
    except ImportError:
        raise UsageError(f"serve needs textual-serve: {install('web')}") from None
    if not 0 <= args.port <= 65535:
        raise UsageError(f"--port must be from 0 to 65535, not {args.port}")
    _refuse_early(args)
    source = args.source if args.source in (None, DEMO) else str(Path(args.source).absolute())
    child = our_program(
        "gputop.features.web.served",
        *(word for word in (source, args.scenario) if word is not None),
    )
    # Only one process can use the hardware counters, and what is private stays here.
    shown = replace(
        settings,
        perf=False,
        sm_source="auto",
        price=0.0,
        read_only=True,
        show_secrets=False,
        bell=False,
    )
    shown = replace(shown, alert=(), fleet={})
    try:
        text = msgspec.json.encode(shown, enc_hook=dict).decode()
    except UnicodeEncodeError:
        raise UsageError("a setting holds bytes that are not UTF-8: write it anew") from None
    token = secrets.token_urlsafe(18)
    server = ScreenServer(token, child, {SETTINGS: text})
    listener = listening(args.port)
    port = listener.getsockname()[1]
    say(
        f"open this address in a browser on this machine (ctrl+c ends it; from afar: ssh -L {port}:{HOST}:{port} …):"
    )
    sys.stdout.write(f"http://{HOST}:{port}/{token}/\n")
    sys.stdout.flush()
    web.run_app(
        server.application(), sock=listener, print=None, access_log=None, shutdown_timeout=1.0
    )
    return 0


def _refuse_early(args: argparse.Namespace) -> None:
    """Refuse a source that cannot be shown, before a browser is opened.

    Raises UsageError or RecordingError.
    """
    if args.source == DEMO:
        from gputop.sources.simulation.simulated import SimulatedSource

        SimulatedSource(args.scenario)
    elif args.scenario is not None:
        raise UsageError(f"a scenario belongs to `serve demo`, not to {args.source!r}")
    elif args.source is not None:
        if not Path(args.source).exists():
            raise UsageError(
                f"no recording at {args.source}: name one, or `demo`, or nothing for this machine"
            )
        next(read_snapshots(args.source))


def listening(port: int) -> socket.socket:
    """Return a socket that listens on loopback. Raises UsageError where the port is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        # Before the address is printed, so that its reader can connect at once.
        listener.listen()
    except OSError as error:
        listener.close()
        raise UsageError(
            f"port {port} cannot be used: {error.strerror}; choose another one with --port"
        ) from None
    return listener
