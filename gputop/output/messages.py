"""One-line messages to the user on stderr; stdout carries data alone."""

from __future__ import annotations

import sys

FAILED, USAGE_ERROR = 1, 2
"""Exit status where something failed, such as a full disk; of a wrong command line or configuration."""
LONGEST = 500
"""Characters of one message."""


def say(text: object) -> None:
    """Tell the user something in one line. A closed or broken stderr is not an error.

    A message may quote a wrong word, an address or a path, so secrets in it are masked.
    """
    if sys.stderr is None:
        return
    from gputop.model.secrets import masked_text
    from gputop.model.text import clean_text

    try:
        print(f"gputop: {masked_text(clean_text(str(text)))[:LONGEST]}", file=sys.stderr, flush=True)
    except OSError:
        return
