"""One-line messages on stderr; stdout carries data alone."""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import suppress
from typing import TextIO

USAGE_ERROR = 2
"""Exit status of a wrong command line or configuration, and of a file that cannot be read or written."""
DEFECT = 70
"""Exit status of an error that nobody has foreseen (EX_SOFTWARE of sysexits.h)."""
NOTHING_READ = 3
"""Exit status where no GPU could be read."""
LONGEST = 500
"""Characters of one message."""


def say(text: object) -> None:
    """Print one line on stderr.

    A closed or broken stderr is no error. A message may quote a wrong word, an address or a path, so secrets in it are
    masked.
    """
    if sys.stderr is None:
        return
    from gputop.model.clean_text import clean_text
    from gputop.model.secrets import masked_text

    try:
        print(
            f"gputop: {masked_text(clean_text(str(text)))[:LONGEST]}", file=sys.stderr, flush=True
        )
    except OSError:
        return


def show_progress(text: str) -> None:
    """Show progress on the last line of a terminal's stderr.

    An empty text removes it.
    """
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


class Nowhere(io.TextIOWrapper):
    """Replacement for a closed stdout that records writes."""

    def __init__(self) -> None:
        super().__init__(open(os.devnull, "wb"), encoding="utf-8")  # noqa: SIM115 - open as long as the program runs
        self.is_missed = False

    def write(self, text: str, /) -> int:
        self.is_missed = self.is_missed or bool(text)
        return super().write(text)


def is_lost() -> bool:
    """True if something was printed to a closed stdout."""
    return isinstance(sys.stdout, Nowhere) and sys.stdout.is_missed


PLAIN = "gputop-plain"
"""What Python does with a character that the locale lacks."""


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    from gputop.paint.glyphs import ascii_only

    return ascii_only(error.object[error.start : error.end]), error.end


_LAST_STANDARD = 2


def settle() -> bool:
    """Prepare the standard streams; return whether stdout is open.

    Call this first. A character that the locale lacks is printed in its ASCII form, ``x`` for ``×``, else as ``?``.
    Closed streams become /dev/null: otherwise the next file that is opened would get the number of stdout or stderr,
    and receive the messages for them.
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
    """Write ASCII to a standard stream from here on."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="ascii", errors=PLAIN)


def discard_output() -> None:
    """Drop buffered output, so that Python's exit does not write it."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
