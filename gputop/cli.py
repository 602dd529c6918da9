"""Arguments → one command. Imports the standard library only, until the command is known.

Errors are one line on stderr that says what is wrong and how to mend it: exit 2 for wrong use, 3 where the machine
cannot measure. Tracebacks appear only with ``--debug``.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from gputop.output.messages import USAGE_ERROR, say
from gputop.output.streams import settle

if TYPE_CHECKING:
    import argparse

INTERNAL_ERROR, CANNOT_MEASURE = 1, 3
GARBAGE_THRESHOLD = 20_000
"""New objects before cyclic garbage is looked for. Imports make a hundred thousand objects and none of them garbage."""
MODULES = {"run": "job"}
"""Commands whose file is not named after them."""
UNCONFIGURED = ("config", "completion")
"""Commands that have to work while the configuration file is wrong."""
WITHOUT_STDOUT = ("live", "demo", "replay", "record", "run", "mark", "serve", "screenshot")
"""Commands that print nothing to stdout, or ask for a terminal themselves."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is returned."""
    gc.set_threshold(GARBAGE_THRESHOLD)
    has_stdout = settle()
    words = sys.argv[1:] if arguments is None else arguments
    args = _parsed(words)
    name = args.command or "live"
    if not hasattr(args, "debug"):
        args.debug = False
    if not has_stdout and name not in WITHOUT_STDOUT:
        say("stdout is closed: give the result somewhere to go")
        return USAGE_ERROR
    try:
        return _run(name, args)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader of our output went away; what Python flushes at exit must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    """What the command line says. Without a word it says nothing, and argparse is not even imported: 10 ms a start."""
    if not words:
        return cast("argparse.Namespace", SimpleNamespace(command=None))
    from gputop.commands.command_line import parse

    return parse(words)


def _run(name: str, args: argparse.Namespace) -> int:
    from gputop.config import ConfigError, Settings, load
    from gputop.model.source import SourceError, UsageError
    from gputop.recording.format import RecordingError

    try:
        settings = Settings()
        if name not in UNCONFIGURED:
            settings, warnings = load(getattr(args, "config", None), os.environ, vars(args))
            for warning in warnings:
                say(warning)
        return int(import_module(f"gputop.commands.{MODULES.get(name, name)}").run(args, settings))
    except (ConfigError, UsageError, RecordingError) as error:
        return _fail(error, USAGE_ERROR, debug=args.debug)
    except SourceError as error:
        return _fail(error, CANNOT_MEASURE, debug=args.debug)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _fail(f"{error.filename or 'input or output'}: {error.strerror}", USAGE_ERROR, debug=args.debug)
    except Exception as error:  # noqa: BLE001 - the outermost frame: a defect of ours ends in one line, too
        return _fail(
            f"internal error: {type(error).__name__}: {error}; run again with --debug to see where",
            INTERNAL_ERROR,
            debug=args.debug,
        )


def _fail(text: object, status: int, *, debug: bool) -> int:
    """Say what is wrong. Called while the error is handled: with ``debug`` its traceback is shown as well."""
    if debug:
        import traceback

        traceback.print_exc()
    say(text)
    return status
