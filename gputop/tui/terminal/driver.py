"""Textual's driver, but quitting by key works while the terminal takes no output, and garbage input ends nothing."""

from __future__ import annotations

import threading
from typing import Any

from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key
from textual.message import Message

from gputop.tui.terminal.guard import TerminalGuard

WEDGED_S = 1.0
"""A loop that has not answered for this long is taken to be blocked by a terminal that nobody drains."""

NOISE_PAUSE_S = 0.01
"""So that a terminal that gives nothing but noise costs next to nothing."""


class Outlet:
    """Where text goes to the terminal, past the compositor but in order with what it writes."""

    driver: Driver | None = None

    def write(self, text: str) -> None:
        if self.driver is not None:
            self.driver.write(text)


def guarded_driver(guard: TerminalGuard, outlet: Outlet) -> type[Driver]:
    """A driver class that leaves by the guard when the event loop gives no sign of life after a key to quit.

    The input thread sees the key even when the loop is blocked in a full writer queue.
    """

    class GuardedDriver(LinuxDriver):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            outlet.driver = self

        def run_input_thread(self) -> None:
            while not self.exit_event.is_set():
                try:
                    super().run_input_thread()
                except (ValueError, OverflowError):
                    # Bytes that are not UTF-8 or no key, as from noise on a line or a pasted file. Textual would end
                    # the program; they are dropped with what came beside them, and its reader begins afresh.
                    self.exit_event.wait(NOISE_PAUSE_S)

        def process_message(self, message: Message) -> None:
            if isinstance(message, Key) and message.key in ("ctrl+c", "q"):
                self._leave_if_wedged()
            super().process_message(message)

        def _leave_if_wedged(self) -> None:
            alive = threading.Event()
            self._loop.call_soon_threadsafe(alive.set)

            def check() -> None:
                if not alive.wait(WEDGED_S):
                    guard.leave(0)

            threading.Thread(target=check, daemon=True, name="quit-watch").start()

    return GuardedDriver
