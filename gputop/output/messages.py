"""One-line messages to the user on stderr; stdout carries data alone."""

from __future__ import annotations

import sys

USAGE_ERROR = 2
"""Exit status of a wrong command line or configuration."""


def one_line(text: object) -> str:
    """A message that a terminal can be trusted with: one line, nothing but printable characters."""
    return "".join(char if char.isprintable() else " " for char in str(text))[:500]


def say(text: object) -> None:
    """Tell the user something in one line. A stderr that is closed or broken is no reason to fail."""
    if sys.stderr is None:
        return
    try:
        print(f"gputop: {one_line(text)}", file=sys.stderr, flush=True)
    except OSError:
        return
