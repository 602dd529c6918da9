"""Run the read-only MCP server on stdin and stdout."""

from __future__ import annotations

import argparse
import os

from gputop.config import Settings
from gputop.model.extras import install
from gputop.model.source import UsageError


def arguments(command: argparse.ArgumentParser) -> None:
    text = (
        "folders whose recordings, traces and memory snapshots may be asked about (default: this "
        "one)"
    )
    command.add_argument("folders", nargs="*", default=["."], metavar="DIR", help=text)


def run(args: argparse.Namespace, settings: Settings) -> int:
    try:
        import mcp.server  # noqa: F401
    except ImportError:
        raise UsageError(f"gputop mcp needs the protocol's SDK: {install('mcp')}") from None
    from gputop.mcp.answers import Refused
    from gputop.mcp.server import make_server

    named = getattr(args, "config", None)
    options = [
        *(["--redact"] if settings.redact else []),
        *([f"--config={os.path.abspath(named)}"] if named else []),
    ]
    try:
        server = make_server(args.folders or ["."], options)
    except Refused as error:
        raise UsageError(str(error)) from None
    server.run("stdio")
    return 0
