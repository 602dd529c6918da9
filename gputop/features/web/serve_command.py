"""The screen in a browser: only on this machine's loopback, read-only, behind an address with a secret in it."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import socket
import sys
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from gputop.commands.demo import DEMO
from gputop.commands.registry import Needs
from gputop.config import Settings
from gputop.model.extras import install
from gputop.model.sm import SmOptions
from gputop.model.source import UsageError
from gputop.output.messages import say
from gputop.recording.reader import read_snapshots
from gputop.system.children import our_program

NEEDS = Needs("nothing")

HOST = "127.0.0.1"
FOR_VIEWERS = frozenset(
    {
        "interval",
        "gpus",
        "visible",
        "redact",
        "theme",
        "ascii",
        "no_color",
        "mouse",
        "span",
        "dcgm_url",
        "server_url",
        "dcgmi",
        "density",
    }
    | {"columns", "hint", "keys", "key_preset"}
)
"""Settings that a viewer's process is given."""
NOT_FOR_VIEWERS = frozenset(
    {"read_only", "price", "bell", "show_secrets", "alert", "fleet"} | {*SmOptions.__struct_fields__} - FOR_VIEWERS
)
"""Settings that it is not given: private ones, those that reach outside the machine, and those that it sets itself."""


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("source", nargs="?", help="demo, or a recording; without it this machine is watched")
    command.add_argument("scenario", nargs="?", help="with demo: one scenario instead of the whole node")
    command.add_argument("--port", type=int, default=8000, metavar="N", help="port (default 8000; 0: any free one)")


def run(args: argparse.Namespace, settings: Settings) -> int:
    try:
        from gputop.features.web.page_server import Screen, Server
    except ImportError:
        raise UsageError(f"serve needs textual-serve: {install('web')}") from None
    if not 0 <= args.port <= 65535:
        raise UsageError(f"--port must be from 0 to 65535, not {args.port}")
    _refuse_early(args)
    screen = Screen(viewer_command(args), for_viewers(settings))
    key = secrets.token_urlsafe(18)
    server = Server(key, screen)
    listener = listening(args.port)
    port = listener.getsockname()[1]
    say(f"open this address in a browser on this machine (ctrl+c ends it; from afar: ssh -L {port}:{HOST}:{port} …):")
    sys.stdout.write(f"http://{HOST}:{port}/#token={key}\n")
    sys.stdout.flush()
    return asyncio.run(server.run(listener))


def _refuse_early(args: argparse.Namespace) -> None:
    """Raises UsageError or RecordingError for what could not be shown: in a browser the reason would not be seen."""
    if args.source == DEMO:
        from gputop.sources.simulation.simulated import SimulatedSource

        SimulatedSource(args.scenario)
    elif args.scenario is not None:
        raise UsageError(f"a scenario belongs to `serve demo`, not to {args.source!r}")
    elif args.source is not None:
        if not Path(args.source).exists():
            raise UsageError(f"no recording at {args.source}: name one, or `demo`, or nothing for this machine")
        next(read_snapshots(args.source))


def viewer_command(args: argparse.Namespace) -> list[str]:
    """The command of one viewer's process."""
    source = args.source if args.source in (None, DEMO) else str(Path(args.source).absolute())
    parts = [part for part in (source, args.scenario) if part is not None]
    return our_program("gputop.features.web.served", *parts)


def for_viewers(settings: Settings) -> dict[str, Any]:
    """The settings that a viewer's process is given, over its stdin."""
    return {name: value for name, value in asdict(settings).items() if name in FOR_VIEWERS}


def listening(port: int) -> socket.socket:
    """A socket on this machine's loopback. Raises UsageError where the port cannot be had."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        # Before the address is printed, so that its reader can connect at once.
        listener.listen()
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise UsageError(f"port {port} cannot be used: {error.strerror}; choose another one with --port") from None
    return listener
