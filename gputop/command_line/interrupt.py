"""Ends the process on Ctrl+C before and after a command, without a message.

Python raises KeyboardInterrupt wherever it is, which is mostly in the middle of an import: a traceback, or nothing but
a complaint that an exception was ignored. SIGTERM and SIGHUP end a process silently by themselves. This module imports
little, because Python's own earlier imports cannot be spared a traceback.
"""

from __future__ import annotations

import os
import signal
import sys

INTERRUPTED = 128 + signal.SIGINT


def end_at_once() -> None:
    """Let Ctrl+C end the process, unless it is ignored or handled."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
        sys.unraisablehook = _unraisable


def raise_again() -> None:
    """Let Ctrl+C raise KeyboardInterrupt instead of ending the process."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    os._exit(INTERRUPTED)


def _unraisable(hook_args: sys.UnraisableHookArgs, /) -> None:
    """End for Ctrl+C in a destructor, which Python would ignore."""
    if hook_args.exc_type is KeyboardInterrupt:
        _end()
    sys.__unraisablehook__(hook_args)
