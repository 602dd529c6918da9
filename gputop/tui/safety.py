"""The terminal is left as it was found: on quit, on a signal, on a crash, and while nobody drains its output.

Textual restores the terminal only on its normal way out. It does not handle SIGTERM and SIGHUP, and once its writer
queue (30 frames) is full its event loop blocks, so that neither a key nor a loop-bound signal handler gets through.
The last resort here needs neither the loop nor the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable

from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key
from textual.message import Message

GRACE_S = 1.2
"""How long the normal way out may take before the last resort."""
WEDGED_S = 1.0
"""A loop that has not answered for this long is taken to be blocked by a terminal that nobody drains."""
RESTORE = (
    b"\x1b[<u\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?1016l\x1b[?2004l\x1b[?2048l"
    b"\x1b[?1004l\x1b[?7h\x1b[0m\x1b[?1049l\x1b[?25h"
)
"""Kitty keys, mouse, paste, resize and focus reports off; wrapping on; colours reset; main screen; cursor shown."""


class Terminal:
    """Remembers the terminal's settings and can put them back from any thread."""

    def __init__(self) -> None:
        self._attributes: list[int | list[bytes | int]] | None = None
        with contextlib.suppress(termios.error, OSError, ValueError):
            self._attributes = termios.tcgetattr(sys.__stdin__.fileno()) if sys.__stdin__ else None

    def restore(self) -> None:
        """Give the terminal back without ever blocking: output that nobody reads is thrown away first."""
        descriptor = sys.__stderr__.fileno() if sys.__stderr__ else 2
        with contextlib.suppress(termios.error, OSError):
            termios.tcflush(descriptor, termios.TCOFLUSH)
        with contextlib.suppress(OSError):
            os.set_blocking(descriptor, False)
            os.write(descriptor, RESTORE)
        if self._attributes is not None and sys.__stdin__:
            with contextlib.suppress(termios.error, OSError, ValueError):
                termios.tcsetattr(sys.__stdin__.fileno(), termios.TCSANOW, self._attributes)
        with contextlib.suppress(OSError):
            os.set_blocking(descriptor, True)

    def leave(self, return_code: int) -> None:
        """Restore and end the process at once, whatever hangs."""
        self.restore()
        os._exit(return_code)

    def leave_later(self, return_code: int, seconds: float = GRACE_S) -> None:
        """The last resort, unless the process has ended by then."""
        timer = threading.Timer(seconds, self.leave, (return_code,))
        timer.daemon = True
        timer.start()


def end_on_signals(terminal: Terminal, leave: Callable[[int], None]) -> None:
    """Make SIGTERM, SIGHUP and SIGQUIT end the program with the terminal restored. Call with the loop running.

    A plain handler is used, not the loop's own: the loop may be blocked in a full writer queue.
    """
    loop = asyncio.get_running_loop()

    def handler(number: int, _frame: object) -> None:
        terminal.leave_later(128 + number)
        loop.call_soon_threadsafe(leave, 128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, handler)


class SafeDriver(LinuxDriver):
    """Textual's Linux driver, but quitting by key works while the terminal does not take output.

    The input thread sees the key even when the loop is blocked; it then asks the loop for a sign of life, and leaves
    by the last resort when none comes.
    """

    terminal = Terminal()

    def process_message(self, message: Message) -> None:
        if isinstance(message, Key) and message.key in ("ctrl+c", "q"):
            self._leave_if_wedged()
        super().process_message(message)

    def _leave_if_wedged(self) -> None:
        alive = threading.Event()
        self._loop.call_soon_threadsafe(alive.set)

        def check() -> None:
            if not alive.wait(WEDGED_S):
                self.terminal.leave(0)

        threading.Thread(target=check, daemon=True, name="quit-watch").start()
