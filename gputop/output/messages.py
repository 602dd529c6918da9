"""One-line messages to the user on stderr; stdout carries data alone."""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import suppress
from typing import TextIO

FAILED, USAGE_ERROR = 1, 2
"""Exit status where something failed, such as a full disk; of a wrong command line or configuration."""
DEFECT = 70
"""Exit status of an error that nobody has foreseen (EX_SOFTWARE of sysexits.h)."""
NOTHING_READ = 3
"""Exit status where no GPU could be read."""
LONGEST = 500
"""Characters of one message."""


def say(text: object) -> None:
    """Tell the user something in one line. A closed or broken stderr is not an error.

    A message may quote a wrong word, an address or a path, so secrets in it are masked.
    """
    if sys.stderr is None:
        return
    from gputop.model.quantity import clean_text
    from gputop.model.secrets import masked_text

    try:
        print(f"gputop: {masked_text(clean_text(str(text)))[:LONGEST]}", file=sys.stderr, flush=True)
    except OSError:
        return


def show_progress(text: str) -> None:
    """Put how far something is into the terminal's last line, where stderr is one; an empty text takes it away."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


class Nowhere(io.TextIOWrapper):
    """Stands for a stdout that is closed, and knows whether something was meant for it."""

    def __init__(self) -> None:
        super().__init__(open(os.devnull, "wb"), encoding="utf-8")  # noqa: SIM115 - open as long as the program runs
        self.is_missed = False

    def write(self, text: str, /) -> int:
        self.is_missed = self.is_missed or bool(text)
        return super().write(text)


def is_lost() -> bool:
    """Whether something was printed and stdout is closed."""
    return isinstance(sys.stdout, Nowhere) and sys.stdout.is_missed


PLAIN = "gputop-plain"
"""What Python does with a character that the locale lacks."""


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    from gputop.paint.glyphs import ascii_only

    return ascii_only(error.object[error.start : error.end]), error.end


# Makes the standard streams safe to write to, whatever the parent process left open or closed.

_LAST_STANDARD = 2


def settle() -> bool:
    """Call this first. Returns whether there is a stdout to print to.

    A character that the locale lacks is printed in its ASCII form, ``x`` for ``×``, else as ``?``. Closed streams
    become /dev/null: otherwise the next file that is opened would get the number of stdout or stderr, and receive what
    is meant for them.
    """
    # Without a /dev there is nothing to put in their place.
    with suppress(FileNotFoundError):
        descriptor = os.open(os.devnull, os.O_RDWR)
        while descriptor <= _LAST_STANDARD:
            descriptor = os.open(os.devnull, os.O_RDWR)
        os.close(descriptor)
    codecs.register_error(PLAIN, _plain)
    open_stdout = sys.stdout is not None
    if sys.stdout is None:
        sys.stdout = Nowhere()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open as long as the program runs
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=PLAIN)
    return open_stdout


def in_ascii(stream: TextIO) -> None:
    """What is written to a standard stream from here on has ASCII characters only."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="ascii", errors=PLAIN)


def discard_output() -> None:
    """Drop what stdout still holds, so that writing it at Python's exit does not fail once more."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
