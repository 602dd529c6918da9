"""A Textual driver for terminals that misbehave.

Stock Textual 8.2 ends at bytes that are not UTF-8, spins on a closed terminal while SIGHUP is ignored, hears no keys
after SIGTSTP and SIGCONT, and blocks its loop while the terminal's output is not read.
"""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterable, Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Protocol, cast

from textual import constants, events
from textual._xterm_parser import XTermParser  # no public class turns escape sequences into events
from textual.app import App
from textual.driver import Driver
from textual.geometry import Size

from gputop.system.terminal_size import window_size
from gputop.tui.terminal.guard import RESTORE, TerminalGuard, in_background
from gputop.tui.terminal.input_decoder import Paste


class GuardedApp(Protocol):
    """The app, as the driver uses it."""

    guard: TerminalGuard | None
    terminal: TerminalDriver | None

    def refresh(self) -> object: ...
    def use_background(self, *, is_light: bool) -> None: ...


MOST_QUEUED = 24
"""Writes that may wait for a terminal that is not read; more are dropped."""
INPUT_BYTES = 4096
CLOSE_S = 0.3
"""How long the end of the writer is waited for; a terminal that takes nothing must not hold the loop."""
PASTE_S = 1.0
"""A paste from which nothing comes for so long has ended."""
SCREEN_ON = "\x1b[?1049h\x1b[?25l\x1b[?1004h\x1b[?7l"
"""Alternate screen, no cursor, focus reports, no line wrap."""
MOUSE_ON = "\x1b[?1000h\x1b[?1003h\x1b[?1006h"
ASK_SYNC = "\x1b[?2026$p"
"""Asks whether the terminal shows an update all at once; Textual then uses it."""
PASTE_ON = "\x1b[?2004h"


MOST_COPIED_BYTES = 74_994
"""xterm takes no more than 100,000 characters of base64 with their frame."""


def copy_sequence(text: str, environ: Mapping[str, str]) -> str | None:
    """Return the sequence that copies a text; None if too long.

    In tmux the sequence is sent twice: as it is, for ``set-clipboard on``, and passed through to the terminal outside.
    """
    data = text.encode()
    if len(data) > MOST_COPIED_BYTES:
        return None
    plain = f"\x1b]52;c;{base64.b64encode(data).decode()}\x07"
    if environ.get("TMUX"):
        return plain + "\x1bPtmux;" + plain.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    return plain


class Writer(threading.Thread):
    """Writes to the terminal without blocking the loop."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(name="gputop-output", daemon=True)
        self._descriptor = descriptor
        self._pending: SimpleQueue[bytes | None] = SimpleQueue()

    def queued(self) -> int:
        """Number of writes that wait for the one under way."""
        return self._pending.qsize()

    def put(self, data: bytes | None) -> None:
        """Queue data for writing; None ends the thread."""
        self._pending.put(data)

    def run(self) -> None:
        # A blocking guard or a closed terminal: what cannot be written is dropped.
        while (data := self._pending.get()) is not None:
            with suppress(OSError):
                while data:
                    data = data[os.write(self._descriptor, data) :]


class TerminalDriver(Driver):
    """Takes the terminal, reads, writes, and gives it back."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: Any = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._screen_app = guarded = cast("GuardedApp", app)
        assert (
            sys.__stdin__ is not None and sys.__stderr__ is not None and guarded.guard is not None
        )
        guarded.terminal, self._guard = self, guarded.guard
        self._own_loop = asyncio.get_running_loop()
        self._in_fd, self._out_fd = sys.__stdin__.fileno(), sys.__stderr__.fileno()
        self._encoding = sys.__stderr__.encoding
        self._decoder = self._guard.decoder
        self._key_parser = XTermParser()
        self._take = SCREEN_ON + (MOUSE_ON if mouse else "") + ASK_SYNC + PASTE_ON
        self._writer: Writer | None = None
        self._flush_timer: asyncio.TimerHandle | None = None
        self._is_stopping = False
        """Whether a stop was asked for and no SIGCONT has come since; the guard's thread alone changes it."""
        self.has_dropped = False
        """Whether a write was dropped, so that the screen has to be drawn again."""

    # -- output -------------------------------------------------------------------------------------------------------

    def write(self, data: str) -> None:
        if self._writer is None:
            return
        if self._writer.queued() < MOST_QUEUED:
            self._writer.put(data.encode(self._encoding, "replace"))
        else:
            self.has_dropped = True

    @property
    def is_behind(self) -> bool:
        """Whether the terminal has not taken the last picture."""
        return self._writer is not None and self._writer.queued() > 0

    def copy(self, text: str) -> bool:
        """Copy a text; return False if it is too long."""
        sequence = copy_sequence(text, os.environ)
        if sequence is not None:
            self.write(sequence)
        return sequence is not None

    # -- input --------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            data = os.read(self._in_fd, INPUT_BYTES)
        except OSError:
            data = b""
        if data:
            self._handle(self._decoder.feed(data))
        elif self._guard.is_gone:
            # Always readable; the guard ends the program.
            self._own_loop.remove_reader(self._in_fd)

    def _handle(self, parts: Iterable[str | Paste]) -> None:
        for part in parts:
            if isinstance(part, Paste):
                self.process_message(events.Paste(part.text))
            else:
                self._press(part)
        if (is_light := self._decoder.is_light) is not None:
            self._decoder.is_light = None
            self._screen_app.use_background(is_light=is_light)
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        delay_s = PASTE_S if self._decoder.is_pasting else constants.ESCAPE_DELAY
        self._flush_timer = self._own_loop.call_later(delay_s, self._end_wait)

    def _end_wait(self) -> None:
        """End the wait for the rest of a sequence."""
        self._flush_timer = None
        if self._decoder.is_waiting:
            self._handle(self._decoder.flush())
        self._send(self._key_parser.tick())

    def _press(self, text: str) -> None:
        try:
            self._send(self._key_parser.feed(text))
        except (ValueError, OverflowError):
            # Sequences that name no character, as from noise on a line.
            self._key_parser = XTermParser()

    def _send(self, messages: Iterable[Any]) -> None:
        for message in messages:
            # Sizes come from the kernel: the in-band reports of some terminals arrive only after garbage.
            if not isinstance(message, events.Resize):
                self.process_message(message)

    # -- taking the terminal, giving it back --------------------------------------------------------------------------

    @property
    def can_suspend(self) -> bool:
        return True

    def start_application_mode(self) -> None:
        # A handler that did the work itself could wait for a lock that its own thread holds. Before the terminal is
        # taken: whoever sees that it was may send a signal at once.
        call = self._own_loop.call_soon_threadsafe
        self._guard.listen(
            {
                signal.SIGWINCH: lambda: call(self._resize),
                signal.SIGTSTP: self._stop_asked,
                signal.SIGCONT: self._go_on_asked,
            }
        )
        self._begin()
        self._handle(self._guard.early_input)
        self._guard.early_input = []

    def _begin(self) -> None:
        self._writer = Writer(self._out_fd)
        self._writer.start()
        self._take_terminal()
        self._resize()

    def _take_terminal(self) -> None:
        """Set the terminal's modes, whatever was set in between."""
        with suppress(termios.error):
            attributes: list[Any] = termios.tcgetattr(self._in_fd)
            attributes[tty.IFLAG] &= ~(
                termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR
            )
            attributes[tty.LFLAG] &= ~(
                termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG
            )
            # Nothing to read is an answer: the loop must not wait for a key that another program has taken.
            attributes[tty.CC][termios.VMIN] = attributes[tty.CC][termios.VTIME] = 0
            termios.tcsetattr(self._in_fd, termios.TCSANOW, attributes)
        self.write(self._take)
        self._own_loop.add_reader(self._in_fd, self._read)

    def _resize(self) -> None:
        try:
            columns, rows = window_size(self._out_fd)
        except OSError:
            columns, rows = 0, 0
        size = Size(columns or 80, rows or 25)
        self.send_message(events.Resize(size, size))

    def disable_input(self) -> None:
        self._own_loop.remove_reader(self._in_fd)

    def stop_application_mode(self) -> None:
        self._give_back()
        self._guard.listen({})

    def _give_back(self) -> None:
        writer = self._writer
        if writer is None:
            return
        self.disable_input()
        self.write(RESTORE.decode())
        self.close()
        if writer.is_alive() and self._guard.is_leaving:
            # A terminal that takes nothing: what waits for it is dropped.
            self._guard.restore()
        self._guard.restore_attributes()

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.put(None)
            writer.join(CLOSE_S)

    # -- suspending and being continued -------------------------------------------------------------------------------

    def _stop_asked(self) -> None:
        """Suspend once; called by the guard, in the order of signals.

        A second SIGTSTP before SIGCONT means nothing, however late it is read."""
        if not self._is_stopping:
            self._is_stopping = True
            self._own_loop.call_soon_threadsafe(self._suspend)

    def _go_on_asked(self) -> None:
        if not self._is_stopping:
            # It was stopped without being asked.
            self._own_loop.call_soon_threadsafe(self._continued)
        self._is_stopping = False

    def _suspend(self) -> None:
        """Give the terminal back and stop, unless SIGCONT has come since."""
        if not self._is_stopping or self._guard.is_leaving or self._writer is None:
            return
        self._give_back()
        if self._is_stopping:
            self._stop()
        if not self._guard.is_leaving:
            self._begin()
            self._screen_app.refresh()

    def _stop(self) -> None:
        """Stop until continued in the foreground.

        From the background the terminal must not be touched: that would stop the process once more."""
        os.kill(os.getpid(), signal.SIGSTOP)
        while in_background() and not self._guard.is_leaving:
            os.kill(os.getpid(), signal.SIGSTOP)

    def _continued(self) -> None:
        """Take the terminal again after an unannounced stop."""
        if self._guard.is_leaving or self._writer is None:
            return
        if in_background():
            self._stop()
        if not self._guard.is_leaving:
            self._take_terminal()
            self._screen_app.refresh()
