"""Import and call the user's function that makes a dataset, within a time limit."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from contextlib import redirect_stdout
from types import FrameType
from typing import Any

from gputop.model.quantity import error_words
from gputop.model.source import UsageError

MAX_REASON_CHARS = 300


def make_data(function: str, limit_s: float) -> Any:
    """Return what MODULE:FUNCTION makes. Raises UsageError if it cannot be imported, fails or takes too long.

    It runs in the main thread of this process, and what it prints goes to stderr: stdout may be JSON.
    """
    module, name = split_name(function)

    def give_up(_signal: int, _frame: FrameType | None) -> None:
        raise UsageError(
            f"{function}() has not returned within the budget of {limit_s:g} s: make less in it, or give more with "
            "--budget"
        )

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        with redirect_stdout(sys.stderr):
            return _call(module, name)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _call(module: str, name: str) -> Any:
    sys.path.insert(0, os.getcwd())
    try:
        function = getattr(importlib.import_module(module), name, None)
    except UsageError:
        raise
    except BaseException as error:
        raise UsageError(f"{module} cannot be imported: {error_words(error)[:MAX_REASON_CHARS]}") from error
    if not callable(function):
        raise UsageError(f"{module} has no function {name}")
    try:
        return function()
    except (UsageError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise UsageError(f"{module}:{name}() raised {error_words(error)[:MAX_REASON_CHARS]}") from error


def split_name(text: str) -> tuple[str, str]:
    """Split MODULE:FUNCTION. Raises UsageError for anything else."""
    module, _, name = text.partition(":")
    if not module or not name.isidentifier():
        raise UsageError(f"{text!r} must be MODULE:FUNCTION, as in train:make_dataset")
    return module, name
