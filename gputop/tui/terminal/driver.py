"""Textual's driver for terminals that misbehave.

A terminal that takes no output stops nothing but the drawing, garbage input does not end the program, a closed
terminal is not read any further, and SIGCONT resumes only what was suspended.
"""

from __future__ import annotations

import os
import select
import signal
import termios
import threading
import tty
from codecs import getincrementaldecoder
from contextlib import suppress
from typing import Any

from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver

from gputop.tui.terminal.guard import TerminalGuard, in_background
from gputop.tui.textual_internals import InputParser

MOST_QUEUED = 24
"""Writes that wait for a terminal whose output is not read; more are dropped. Textual's queue blocks the loop at 30."""
INPUT_BYTES = 4096
NOISE_PAUSE_S = 0.01
"""A pause after noise, so that a terminal that sends nothing else costs next to nothing."""


class Outlet:
    """Where text goes to the terminal, past the compositor but in order with what it writes."""

    driver: GuardedDriver | None = None
    lost = False
    """Whether something was dropped, so that the terminal has to be drawn anew once it is read again."""

    def write(self, text: str) -> None:
        if self.driver is not None:
            self.driver.write(text)

    @property
    def is_behind(self) -> bool:
        """Whether the terminal has not taken what was written last: another picture would only pile up."""
        return self.driver is not None and self.driver.queued() > 0


class InputEnd(threading.Event):
    """Set when the input thread has to end, and from the moment the terminal is closed.

    Textual would read nothing from a closed terminal, at once and again and again, with a whole core.
    """

    def __init__(self, guard: TerminalGuard) -> None:
        super().__init__()
        self._guard = guard
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Readable while this is set, so that one poll can wait for it and for input."""

    def is_set(self) -> bool:
        return self._guard.is_gone or super().is_set()

    def set(self) -> None:
        super().set()
        os.eventfd_write(self.descriptor, 1)

    def clear(self) -> None:
        super().clear()
        with suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)


class GuardedDriver(LinuxDriver):
    """Never lets the loop wait for a terminal that is not read: what such a one would be written is dropped."""

    _guard: TerminalGuard
    _outlet: Outlet
    """Both are set by ``guarded_driver``: Textual makes the driver from its class alone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._outlet.driver = self
        self.exit_event: InputEnd = InputEnd(self._guard)
        self._has_started = self._resuming = self._continued_again = self._retaking = False

    # -- input --------------------------------------------------------------------------------------------------------

    def run_input_thread(self) -> None:
        while not self.exit_event.is_set():
            try:
                self._read_input()
            except (ValueError, OverflowError):
                # Bytes that are not UTF-8 or no key, as from noise on a line or a pasted file. Textual would end
                # the program; they are dropped with what came beside them, and its reader begins afresh.
                self.exit_event.wait(NOISE_PAUSE_S)

    def _read_input(self) -> None:
        """Read until told to end. Sleeps while nothing comes: Textual's own reader wakes up ten times a second."""
        parser, decode = InputParser(self._debug), getincrementaldecoder("utf-8")().decode
        poll = select.poll()
        poll.register(self.fileno, select.POLLIN)
        poll.register(self.exit_event.descriptor, select.POLLIN)
        while not self.exit_event.is_set():
            left_s = parser.waits_s()
            ready = poll.poll(None if left_s is None else 1000 * left_s)
            if any(descriptor == self.fileno for descriptor, _ in ready):
                text = decode(os.read(self.fileno, INPUT_BYTES))
                if not text:
                    # A closed terminal, or half a character.
                    self.exit_event.wait(NOISE_PAUSE_S)
                    continue
                for event in parser.feed(text):
                    self.process_message(event)
            for event in parser.tick():
                self.process_message(event)

    # -- taking the terminal, giving it back --------------------------------------------------------------------------

    def write(self, data: str) -> None:
        # The queue of a writer that has ended, as it does while suspended and when the terminal is closed, would
        # fill up and then block the loop, as would that of one whose terminal is not read.
        if self._writer_thread is None or not self._writer_thread.is_alive():
            return
        if self.queued() < MOST_QUEUED:
            super().write(data)
        else:
            self._outlet.lost = True

    def queued(self) -> int:
        """How many writes wait for the one that is under way."""
        return 0 if self._writer_thread is None else self._writer_thread._queue.qsize()

    def start_application_mode(self) -> None:
        is_first, self._has_started = not self._has_started, True
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if is_first and self._guard.attributes is not None:
            # Textual would remember the settings under which the program loaded.
            self.attrs_before = list(self._guard.attributes)

    def stop_application_mode(self) -> None:
        if not self._must_signal_resume:
            super().stop_application_mode()

    def disable_input(self) -> None:
        # Suspended, there is no input, and the terminal is another's.
        if not self._must_signal_resume:
            super().disable_input()

    def _get_terminal_size(self) -> tuple[int, int]:
        # Textual believes COLUMNS and LINES first: exported, they stay as they are when the window is resized.
        try:
            width, height = os.get_terminal_size(self.fileno)
        except OSError:
            return super()._get_terminal_size()
        return width or 80, height or 25

    def _take_keys(self) -> None:
        """Set the terminal as Textual does at the start, whatever was set in between."""
        attributes: list[Any] = termios.tcgetattr(self.fileno)
        attributes[tty.LFLAG] = self._patch_lflag(attributes[tty.LFLAG])
        attributes[tty.IFLAG] = self._patch_iflag(attributes[tty.IFLAG])
        attributes[tty.CC][termios.VMIN] = 1
        termios.tcsetattr(self.fileno, termios.TCSANOW, attributes)

    # -- suspending and being continued -------------------------------------------------------------------------------

    def _sigtstp_application(self, *_: object) -> None:
        if self._guard.is_leaving:
            return
        if self._auto_restart and not self._must_signal_resume:
            self.suspend_application_mode()
            self._must_signal_resume = True
        os.kill(os.getpid(), signal.SIGSTOP)

    def _sigcont_application(self, *_: object) -> None:
        """Resume what was suspended, once however often this is called, and nothing else.

        Textual would start a second thread for input at each SIGCONT, and wait at the end for the last one alone.
        """
        if self._resuming:
            self._continued_again = True
        elif self._must_signal_resume:
            self._resume()
        elif not self._guard.is_leaving and not self._retaking:
            self._retaking = True
            self._loop.call_soon_threadsafe(self._retake)

    def _resume(self) -> None:
        self._resuming = True
        try:
            while self._must_signal_resume and not self._guard.is_leaving:
                self._continued_again = False
                # In the background this stops the process, and returns with nothing done.
                self.resume_application_mode()
                if not self._continued_again:
                    break
        finally:
            self._resuming = False
        if not self._must_signal_resume:
            self._loop.call_soon_threadsafe(self._app.refresh)

    def _retake(self) -> None:
        """After an unannounced stop: set the terminal again, which the shell may have changed, and redraw."""
        self._retaking = False
        if self._guard.is_leaving or self._must_signal_resume:
            return
        if in_background():
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        try:
            self._take_keys()
        except termios.error:
            return
        self.write("\x1b[?1049h\x1b[?25l\x1b[?1004h")
        self._enable_mouse_support()
        self._enable_bracketed_paste()
        self._disable_line_wrap()
        self._app.refresh()


def guarded_driver(guard: TerminalGuard, outlet: Outlet) -> type[Driver]:
    """A driver class with this guard and this outlet."""
    return type("GuardedDriver", (GuardedDriver,), {"_guard": guard, "_outlet": outlet})
