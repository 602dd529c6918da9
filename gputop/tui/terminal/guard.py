"""Restore the terminal however the screen ends.

Needs neither Textual, nor its event loop, nor its writer queue: whichever of them hangs, a signal gets through.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NoReturn

from gputop.tui.terminal.input_decoder import QUERY_BACKGROUND, InputDecoder, Paste

GRACE_S = 1.2
"""How long the normal exit may take before the last resort."""
GONE_GRACE_S = 0.5
"""The same when the terminal is closed: there is nothing to restore."""
KERNEL_S, GONE_KERNEL_S = 4.0, 1.9
"""When the kernel ends the process, in case even the last resort cannot run."""
TURN_S = 0.5
"""How long a thread waits for another one that is restoring the terminal, which takes at most 0.4 s."""
INTERRUPT = signal.SIGURG
ATTEMPTS = 40
ATTEMPT_S = 0.01
RESTORE = b"\x18\x1b[?2026l\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1004l\x1b[?7h\x1b[0m\x1b[?1049l\x1b[?25h"
"""Cancels a half-written sequence and a synchronized update; mouse, paste and focus reports off; wrapping on; colours
reset; main screen; cursor shown."""
ENDING = (
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGINT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
"""What tells the screen to end. Schedulers send the last two shortly before a job's time is over; their default action
would end the process with the terminal left as it was."""
HUNG_UP = 128 + signal.SIGHUP
LEFT = 128
"""In the guard's pipe smaller bytes are signals; larger ones say that the program leaves, with the rest as its status.
"""


class TerminalGuard:
    """Remembers the terminal's settings and restores them from any thread.

    A thread of its own, started before anything that may block, hears of signals and of a closed terminal, asks for the
    normal way out and is the last resort. It never waits for the main thread: the kernel's side of a signal writes into
    a pipe, whatever the interpreter is doing.
    """

    def __init__(self) -> None:
        self._leave: Callable[[int], object] = self.leave
        # Its holder restores the terminal, or has done so. It is not waited for longer than TURN_S.
        self._way_out = threading.Lock()
        self._finished = False
        self._hear = self._tell = -1
        self._listeners: Mapping[int, Callable[[], object]] = {}
        self.decoder = InputDecoder()
        self.early_input: list[str | Paste] = []
        """Input that came before the screen was loaded."""
        self.asked_status: int | None = None
        """The exit status, once a signal or the closed terminal has told the process to end."""
        self.is_leaving = False
        """Whether the way out has begun."""
        self.is_gone = False
        """Whether the terminal is closed."""
        self.attributes: list[int | list[bytes | int]] | None = None
        """The terminal's settings as they were found."""
        with contextlib.suppress(termios.error, OSError, ValueError):
            self.attributes = termios.tcgetattr(sys.__stdin__.fileno()) if sys.__stdin__ else None

    def watch(self) -> None:
        """Let signals and a closed terminal end the program."""
        self._hear, self._tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._tell, warn_on_full_buffer=False)
        for number in ENDING:
            signal.signal(number, self._on_signal)
        # Ignored by default; with a handler it interrupts a system call, which is its only purpose here.
        signal.signal(INTERRUPT, lambda _number, _frame: None)
        threading.Thread(target=self._watch, daemon=True, name="gputop-guard").start()

    def listen(self, listeners: Mapping[int, Callable[[], object]]) -> None:
        """Have functions called at signals by the guard's thread.

        Only the main thread may call this. The handler does nothing: a signal may come while the main thread holds any
        lock. What it interrupts is woken by the pipe.
        """
        for number in self._listeners.keys() - listeners.keys():
            signal.signal(number, signal.SIG_DFL)
        self._listeners = listeners
        for number in listeners:
            signal.signal(number, lambda _number, _frame: None)

    def leave_by(self, leave: Callable[[int], object]) -> None:
        """Set the normal way out, called with the exit status.

        It is called from another thread; the last resort follows after a while."""
        self._leave = leave

    def hurry(self, status: int) -> None:
        """Limit how long the normal exit may take."""
        self.is_leaving = True
        with contextlib.suppress(OSError):
            os.write(self._tell, bytes([LEFT + status]))

    def _on_signal(self, number: int, _frame: object) -> None:
        # The pipe has the signal already. Other handlers see from here on that the way out has begun.
        self.is_leaving = True
        self.asked_status = self.asked_status or 128 + number

    def _watch(self) -> None:
        # A thread in the background that changes the terminal would be stopped, and the process with it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        poll = select.poll()
        poll.register(self._hear, select.POLLIN)
        if self.attributes is not None and sys.__stdin__:
            # With no events requested, poll still reports a closed terminal, also in the background, without a signal.
            poll.register(sys.__stdin__.fileno(), 0)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            numbers = os.read(self._hear, 512) if self._hear in ready else b""
            self.is_gone = bool(ready - {self._hear})
            signals = [number for number in numbers if number in ENDING]
            if self.is_gone or signals:
                self._end(128 + signals[0] if signals else HUNG_UP, by_signal=True)
            for number in numbers:
                if number >= LEFT:
                    self._end(number - LEFT)
                elif (listener := self._listeners.get(number)) is not None:
                    # A loop that has ended takes no more calls.
                    with contextlib.suppress(RuntimeError):
                        listener()

    def _end(self, status: int, *, by_signal: bool = False) -> NoReturn:
        """End the process when the normal way out takes too long.

        With ``by_signal`` the way out begins here."""
        self.is_leaving = True
        try:
            signal.setitimer(signal.ITIMER_REAL, GONE_KERNEL_S if self.is_gone else KERNEL_S)
            if by_signal:
                self.asked_status = status = self.asked_status or status
                # A loop that has ended takes no more calls: then the normal way out is under way.
                with contextlib.suppress(RuntimeError):
                    self._leave(status)
            time.sleep(GONE_GRACE_S if self.is_gone else GRACE_S)
        finally:
            self.leave(self.asked_status or status)

    def restore(self) -> None:
        """Restore the terminal without blocking, before the end."""
        descriptor = terminal = sys.__stderr__.fileno() if sys.__stderr__ else 2
        with contextlib.suppress(OSError):
            terminal = os.dup(descriptor)
            # What other threads go on to write is dropped: a picture behind the last words would stay.
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
        with contextlib.suppress(OSError):
            os.set_blocking(terminal, False)
        for _ in range(ATTEMPTS):
            # A thread that hangs in a write to a full terminal holds the terminal's write lock. Interrupted, it tries
            # again and gives up, because the descriptor no longer blocks; then what was not read is dropped.
            _interrupt_other_threads()
            time.sleep(ATTEMPT_S)
            with contextlib.suppress(termios.error, OSError):
                termios.tcflush(terminal, termios.TCOFLUSH)
            try:
                written = os.write(terminal, RESTORE)
            except BlockingIOError:
                continue
            except OSError:
                break
            if written == len(RESTORE):
                break
        self.restore_attributes()
        with contextlib.suppress(OSError):
            os.set_blocking(terminal, True)

    def mute(self) -> None:
        """Stop echo and line mode while the program loads.

        Signals still come from keys, because nothing else reads them yet.
        """
        if self.attributes is None or not sys.__stdin__:
            return
        with contextlib.suppress(termios.error, OSError, ValueError):
            descriptor = sys.__stdin__.fileno()
            muted = termios.tcgetattr(descriptor)
            muted[0] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR)
            muted[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
            muted[6][termios.VMIN], muted[6][termios.VTIME] = 1, 0
            termios.tcsetattr(descriptor, termios.TCSANOW, muted)

    def ask_background(self) -> None:
        """Ask the terminal, which is muted, for its background colour."""
        assert sys.__stderr__ is not None
        with contextlib.suppress(OSError):
            os.write(sys.__stderr__.fileno(), QUERY_BACKGROUND)

    def read_early(self) -> bool | None:
        """Read early input; return whether the background is light."""
        assert sys.__stdin__ is not None
        descriptor = sys.__stdin__.fileno()
        with contextlib.suppress(OSError):
            while select.select([descriptor], [], [], 0.0)[0] and (
                data := os.read(descriptor, 4096)
            ):
                self.early_input += self.decoder.feed(data)
        return self.decoder.is_light

    def restore_attributes(self) -> None:
        """Put the terminal's settings back, unless another process group has it."""
        if self.attributes is not None and sys.__stdin__ and not in_background():
            with contextlib.suppress(termios.error, OSError, ValueError):
                # Mouse reports that are still under way are for nobody else.
                termios.tcflush(sys.__stdin__.fileno(), termios.TCIFLUSH)
                termios.tcsetattr(sys.__stdin__.fileno(), termios.TCSANOW, self.attributes)

    def leave(self, status: int) -> NoReturn:
        """Restore the terminal and end the process at once, whatever hangs."""
        try:
            if not self.is_gone and not self._finished and self._way_out.acquire(timeout=TURN_S):
                self.restore()
        finally:
            os._exit(status)

    def finish(self) -> None:
        """Restore the settings at the end of the normal exit.

        While the last resort is under way it is waited for, as it leaves the terminal unblocked for a moment.
        """
        self.hurry(1)
        if self._way_out.acquire(timeout=2 * TURN_S):
            self.restore_attributes()
            self._finished = True

    def end(self, status: int) -> NoReturn:
        """End the process without waiting for threads or exit handlers."""
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(self.asked_status or status)


def in_background() -> bool:
    """Return whether another process group has the terminal."""
    try:
        return sys.__stdin__ is not None and os.tcgetpgrp(sys.__stdin__.fileno()) != os.getpgrp()
    except (OSError, ValueError):
        return False


def _interrupt_other_threads() -> None:
    own_ident = threading.get_ident()
    for thread in threading.enumerate():
        if thread.ident is not None and thread.ident != own_ident:
            with contextlib.suppress(ProcessLookupError):
                signal.pthread_kill(thread.ident, INTERRUPT)


@contextlib.contextmanager
def dropped() -> Iterator[None]:
    """Discard stdout and stderr of libraries meanwhile.

    The screen is drawn by a descriptor of its own: ``sys.__stderr__``.

    The terminal must be on both.
    """
    own = sys.__stderr__
    assert own is not None
    kept = [(number, os.dup(number)) for number in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    sys.__stderr__ = open(os.dup(2), "w", encoding=own.encoding, errors=own.errors)  # type: ignore[misc]  # noqa: SIM115
    for number, _ in kept:
        os.dup2(nowhere, number)
    try:
        yield
    finally:
        for number, terminal in kept:
            os.dup2(terminal, number)
            os.close(terminal)
        sys.__stderr__ = own  # type: ignore[misc]
        os.close(nowhere)
