"""Exchanges JSON lines with a program of gputop over stdin and stdout.

The program ends when its stdin does, when its reader goes, and with its parent. Both sides skip what they do not know.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from gputop.system.children import PIPE, ProgramEnvironment, TooLate, end, how_it_ended, start

T = TypeVar("T")
LONGEST_LINE = 8192
MOST_BYTES_PER_LOOK, MOST_LINES_PER_LOOK = 1 << 16, 256
"""A program that says more between two looks is broken: a line is some 150 bytes."""
EOF_S = 0.3
"""How long it may take to end once its stdin, or its stdout, is closed."""
CLOSED = "was told to end"
_KEPT_ERRORS = 4096
_NO_MESSAGE = (msgspec.DecodeError, msgspec.ValidationError, RecursionError)


class ProgramGone(Exception):
    """Raised when the program has ended or writes more than allowed.

    One phrase without the program's name: ``was ended by SIGSEGV``.
    """


class Dialogue(Generic[T]):
    """The asking side; ``close`` it in any case."""

    def __init__(
        self, command: Sequence[str], environment: ProgramEnvironment, message: Any
    ) -> None:
        """Start the program, which sends messages of this type. Raises OSError."""
        self._child = start(command, environment, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        pipes = (self._child.stdin, self._child.stdout, self._child.stderr)
        self._in, self._out, self._err = (pipe.fileno() for pipe in pipes if pipe is not None)
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(message)
        # Commands that a program which hangs cannot take are dropped.
        os.set_blocking(self._in, False)
        self._text = self._errors = b""
        self._lock = threading.Lock()
        self._is_closed = False
        self.pid = self._child.pid
        self.heard_at = time.monotonic()
        """When it last said something, in monotonic seconds; before that, when it was started."""

    def heard(self, wait_s: float, gather_s: float = 0.0) -> list[T]:
        """Return the messages that came within ``wait_s``.

        Those within ``gather_s`` after the first are included. Raises ProgramGone.
        """
        try:
            readable, _, _ = select.select([self._out, self._err], [], [], wait_s)
        except OSError:
            raise ProgramGone(CLOSED) from None
        if readable and gather_s:
            time.sleep(gather_s)
        with self._lock:
            if self._is_closed:
                # By another thread; what has these descriptors now is not ours.
                raise ProgramGone(CLOSED)
            if self._err in readable:
                self._keep_errors()
            if self._out not in readable:
                return []
            piece = os.read(self._out, MOST_BYTES_PER_LOOK)
            if not piece:
                raise ProgramGone(self._last_words())
        *lines, self._text = (self._text + piece).split(b"\n")
        if len(lines) > MOST_LINES_PER_LOOK or len(self._text) > LONGEST_LINE:
            raise ProgramGone("writes more than it was asked for")
        self.heard_at = time.monotonic()
        return [message for line in lines for message in _decoded(self._decoder, line)]

    def tell(self, message: Struct) -> None:
        """Send a message. ``heard`` reports an ended program."""
        with self._lock, suppress(OSError):
            if not self._is_closed:
                os.write(self._in, _encoded(message))

    def close(self, term_s: float = 0.0) -> None:
        """Close the program's stdin, then kill it with all it started.

        May be called from any thread.
        """
        child = self._child
        with self._lock:
            self._is_closed = True
            if child.stdin is not None:
                child.stdin.close()
        with suppress(TooLate):
            child.wait(EOF_S)
        end(child, term_s)

    def _keep_errors(self) -> None:
        self._errors = (self._errors + os.read(self._err, _KEPT_ERRORS))[-_KEPT_ERRORS:]

    def _last_words(self) -> str:
        """Return why the program ended."""
        try:
            status = self._child.wait(EOF_S)
        except TooLate:
            return "has closed its output"
        if select.select([self._err], [], [], 0.0)[0]:
            self._keep_errors()
        lines = [
            line.strip()
            for line in self._errors.decode(errors="replace").splitlines()
            if line.strip()
        ]
        return (
            f"{how_it_ended(status)} ({lines[-1][:200]})"
            if lines and status >= 0
            else how_it_ended(status)
        )


_output = threading.Lock()


def say(message: Struct) -> None:
    """Write one line to stdout; end this process without a reader."""
    with _output:
        try:
            os.write(1, _encoded(message))
        except OSError:
            os._exit(0)


def read_messages(message: type[T]) -> Iterator[T]:
    """Yield the messages on stdin to its end."""
    decoder = msgspec.json.Decoder(message)
    while line := sys.stdin.buffer.readline(LONGEST_LINE):
        yield from _decoded(decoder, line)


def _encoded(message: Struct) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def _decoded(decoder: msgspec.json.Decoder[T], line: bytes) -> list[T]:
    try:
        return [decoder.decode(line)]
    except _NO_MESSAGE:
        return []
