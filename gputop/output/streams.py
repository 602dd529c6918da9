"""Makes the standard streams safe to write to, whatever the parent process left open or closed."""

from __future__ import annotations

import io
import os
import sys

_LAST_STANDARD = 2


def settle() -> bool:
    """Call this first. Returns whether there is a stdout to print to.

    A character that the locale lacks is printed as ``?``. Closed streams become /dev/null: otherwise the next file
    that is opened would get the number of stdout or stderr, and receive what is meant for them.
    """
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= _LAST_STANDARD:
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)
    open_stdout = sys.stdout is not None
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open as long as the program runs
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open as long as the program runs
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    return open_stdout


def discard_output() -> None:
    """Let nobody have what stdout still holds, so that writing it at Python's exit does not fail once more."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
