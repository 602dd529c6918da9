"""Answer coding assistants over the Model Context Protocol, on stdin and stdout, read-only."""

from __future__ import annotations

import argparse

from gputop.commands.shared_options import redactor_of
from gputop.config import Settings
from gputop.model.extras import install
from gputop.model.source import UsageError


def arguments(command: argparse.ArgumentParser) -> None:
    text = "folders whose recordings and traces may be asked about (default: this one)"
    command.add_argument("folders", nargs="*", default=["."], metavar="DIR", help=text)
    text = "let assistants measure this function's loader, which runs it; may be given several times"
    command.add_argument("--allow-run", action="append", default=[], metavar="MODULE:FUNCTION", help=text)
    command.add_argument("--allow-mark", action="store_true", help="let assistants set marks in running recordings")


def run(args: argparse.Namespace, settings: Settings) -> int:
    try:
        import mcp.server  # noqa: F401
    except ImportError:
        raise UsageError(f"gputop mcp needs the protocol's SDK: {install('mcp')}") from None
    from gputop.mcp.answers import Outside
    from gputop.mcp.server import make_server

    try:
        server = make_server(
            args.folders or ["."], redactor_of(settings), allow_run=args.allow_run, allow_mark=args.allow_mark
        )
    except Outside as error:
        raise UsageError(str(error)) from None
    server.run("stdio")
    return 0
