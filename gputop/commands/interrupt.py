"""Ctrl+C before a command has begun anything, and after it has put everything in order: the end, without a word.

Python raises KeyboardInterrupt wherever it is, which is mostly in the middle of an import: a traceback, or nothing but
a complaint that an exception was ignored. SIGTERM and SIGHUP end a process silently by themselves. What Python imports
before it comes here cannot be spared a traceback, so this module imports nothing else that is not at hand.
"""

from __future__ import annotations

import os
import signal
import sys

INTERRUPTED = 128 + signal.SIGINT


def end_at_once() -> None:
    """From now on Ctrl+C ends the process, unless it is ignored or a command listens to it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
        sys.unraisablehook = _unraisable


def raise_again() -> None:
    """From now on Ctrl+C raises KeyboardInterrupt, where it would have ended the process."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    os._exit(INTERRUPTED)


def _unraisable(hook_args: sys.UnraisableHookArgs, /) -> None:
    """Python drops what is raised in a destructor, Ctrl+C as well, and goes on."""
    if hook_args.exc_type is KeyboardInterrupt:
        _end()
    sys.__unraisablehook__(hook_args)
