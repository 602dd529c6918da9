"""Runs one command; imports only the standard library before.

Errors are one line on stderr with the problem and its fix: exit 2 for wrong use and for files that cannot be read or
written, 3 where the machine cannot measure, 70 for defects of gputop. Tracebacks appear only with ``--debug``.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, cast

from gputop.command_line.interrupt import INTERRUPTED, raise_again
from gputop.command_line.registry import LIVE, USUAL, Needs, module_of
from gputop.output.messages import (
    DEFECT,
    NOTHING_READ,
    USAGE_ERROR,
    discard_output,
    in_ascii,
    is_lost,
    say,
    settle,
)

if TYPE_CHECKING:
    import argparse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    has_stdout = settle()
    mute_psutil()
    import_msgspec()
    words = sys.argv[1:] if arguments is None else arguments
    try:
        try:
            status = _run(words, has_stdout=has_stdout)
        except SystemExit as ended:
            # ``--help`` and ``--version`` end so.
            if not is_lost():
                raise
            status = ended.code if isinstance(ended.code, int) else 0
        finally:
            # Here and not at Python's exit, which answers a full disk or a reader that left with words of its own.
            sys.stdout.flush()
        return _closed() if is_lost() and status in (0, None) else status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        discard_output()
        return 128 + signal.SIGPIPE
    except Exception as error:  # noqa: BLE001 - the outermost frame: a defect of ours ends in one line, too
        return _fail(error, debug="--debug" in words)


def mute_psutil() -> None:
    """Let psutil not warn of lines that a container's /proc lacks.

    Only in our own program: inside somebody else's, warnings are theirs.
    """
    lacks = ".*couldn't be determined"
    warnings.filterwarnings("ignore", lacks, category=RuntimeWarning, module="psutil")


def import_msgspec() -> None:
    """Import msgspec without typing_extensions, which it takes where it is installed.

    It is for annotations that gputop does not have, and brings inspect, ast and dis: 22 ms of CPU of every start, on
    two busy cores. Only in our own program: another one may have such annotations.
    """
    name = "typing_extensions"
    if "msgspec" in sys.modules or name in sys.modules:
        return
    # What an import that fails leaves there: None for a package that is not to be found.
    sys.modules[name] = cast("ModuleType", None)
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules[name]


def _run(words: Sequence[str], *, has_stdout: bool) -> int:
    args = _parsed(words)
    command = module_of(args.command or LIVE)
    needs: Needs = getattr(command, "NEEDS", USUAL)
    if needs.output == "stdout" and not has_stdout:
        return _closed()
    from gputop.config import Settings, load
    from gputop.sources.capabilities import clear_ambient

    # Before any program is started: none but the helper that reads the counters inherits the right to.
    clear_ambient()

    settings = Settings()
    if needs.configuration:
        settings, warnings = load(getattr(args, "config", None), os.environ, vars(args))
        for warning in warnings:
            say(warning)
    if settings.ascii:
        in_ascii(sys.stderr)
    if needs.output != "terminal":
        # A screen's guard listens to signals itself, from before it changes the terminal.
        raise_again()
    return int(command.run(args, settings))


def _closed() -> int:
    say("stdout is closed: redirect it to a file or a terminal")
    return USAGE_ERROR


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line.

    Without words argparse is not imported, which saves 10 ms.
    """
    if not words:
        return cast("argparse.Namespace", SimpleNamespace(command=None))
    from gputop.command_line.parser import parse

    return parse(words)


def _fail(error: Exception, *, debug: bool) -> int:
    """Report an error and return the exit status.

    Called while the error is handled: ``debug`` shows its traceback as well.
    """
    from gputop.config import ConfigError
    from gputop.model.source import SourceError, UsageError, unexpected
    from gputop.recording.format import RecordingError
    from gputop.system.limits import limit_reached

    if debug:
        import traceback

        traceback.print_exc()
    if (limit := limit_reached(error)) is not None:
        discard_output()
        say(limit)
        return NOTHING_READ
    if isinstance(error, (ConfigError, UsageError, RecordingError)):
        say(error)
        return USAGE_ERROR
    if isinstance(error, SourceError):
        say(error)
        return NOTHING_READ
    if isinstance(error, OSError):
        discard_output()
        say(f"{error.filename or 'reading or writing failed'}: {error.strerror or error}")
        return USAGE_ERROR
    say(f"{unexpected(error)}; run again with --debug to see more")
    return DEFECT
