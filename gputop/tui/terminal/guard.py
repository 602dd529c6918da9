"""The terminal is left as it was found: on a signal, on a crash, and while nobody drains its output.

Needs neither Textual, nor its event loop, nor its writer queue: once that queue is full the loop blocks, and neither a
key nor a loop-bound signal handler gets through then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable

GRACE_S = 1.2
"""How long the normal way out may take before the last resort."""
INTERRUPT = signal.SIGURG
ATTEMPTS = 40
ATTEMPT_S = 0.01
RESTORE = (
    b"\x18\x1b[<u\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?1016l\x1b[?2004l\x1b[?2048l"
    b"\x1b[?1004l\x1b[?7h\x1b[0m\x1b[?1049l\x1b[?25h"
)
"""Cancels a half-written sequence; kitty keys, mouse, paste, resize and focus reports off; wrapping on; colours reset;
main screen; cursor shown."""


class TerminalGuard:
    """Remembers the terminal's settings at the start and can put them back from any thread."""

    def __init__(self) -> None:
        self._leave: Callable[[int], object] = self.leave
        # Taken once, by the normal way out or by the last resort, and never given back: only one of them ends us.
        self._way_out = threading.Lock()
        self._attributes: list[int | list[bytes | int]] | None = None
        with contextlib.suppress(termios.error, OSError, ValueError):
            self._attributes = termios.tcgetattr(sys.__stdin__.fileno()) if sys.__stdin__ else None

    def watch_signals(self) -> None:
        """From now on SIGTERM, SIGHUP, SIGQUIT and SIGINT end the program with the terminal restored."""
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT):
            signal.signal(number, self._on_signal)
        # Ignored by default; with a handler it interrupts a system call, which is all that it is here for.
        signal.signal(INTERRUPT, lambda _number, _frame: None)

    def leave_by(self, leave: Callable[[int], object]) -> None:
        """The normal way out for signals: called with the exit status; the last resort follows if it takes too long."""
        self._leave = leave

    def _on_signal(self, number: int, _frame: object) -> None:
        self.leave_later(128 + number)
        self._leave(128 + number)

    def restore(self) -> None:
        """Give the terminal back without ever blocking."""
        descriptor = sys.__stderr__.fileno() if sys.__stderr__ else 2
        with contextlib.suppress(OSError):
            os.set_blocking(descriptor, False)
        for _ in range(ATTEMPTS):
            # A thread that hangs in a write to a full terminal holds the terminal's write lock. Interrupted, it tries
            # again and gives up, because the descriptor no longer blocks; then what nobody read is dropped.
            _interrupt_other_threads()
            time.sleep(ATTEMPT_S)
            with contextlib.suppress(termios.error, OSError):
                termios.tcflush(descriptor, termios.TCOFLUSH)
            try:
                written = os.write(descriptor, RESTORE)
            except BlockingIOError:
                continue
            except OSError:
                break
            if written == len(RESTORE):
                break
        if self._attributes is not None and sys.__stdin__:
            with contextlib.suppress(termios.error, OSError, ValueError):
                termios.tcsetattr(sys.__stdin__.fileno(), termios.TCSANOW, self._attributes)
        with contextlib.suppress(OSError):
            os.set_blocking(descriptor, True)

    def leave(self, status: int) -> None:
        """Restore and end the process at once, whatever hangs."""
        self._way_out.acquire()
        self.restore()
        os._exit(status)

    def finish(self) -> None:
        """The normal way out has done its work; call it last. While the last resort is under way, wait for it."""
        self._way_out.acquire()

    def leave_later(self, status: int, seconds: float = GRACE_S) -> None:
        """The last resort, unless the process has ended by then."""
        timer = threading.Timer(seconds, self.leave, (status,))
        timer.daemon = True
        timer.start()


def _interrupt_other_threads() -> None:
    own = threading.get_ident()
    for thread in threading.enumerate():
        if thread.ident is not None and thread.ident != own:
            with contextlib.suppress(ProcessLookupError):
                signal.pthread_kill(thread.ident, INTERRUPT)
