"""Runs a command in a process group of its own, as a shell runs a job.

The command keeps our standard input, output and error. At a terminal its group becomes the foreground group, so that
Ctrl-C and Ctrl-Z reach it once and not us; without one, signals that we get are passed on.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType

from gputop.system.children import in_our_place
from gputop.system.worker import once

FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
NOT_FOUND, NOT_EXECUTABLE = 127, 126


class ForegroundJob:
    """One running command with its terminal and signals.

    ``start`` and ``finish`` belong to the main thread; ``changed`` is called from another one. Raises OSError when the
    command cannot be started.
    """

    def __init__(self, command: Sequence[str], changed: Callable[[], None]) -> None:
        self._changed = changed
        self._statuses: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._terminal = _terminal()
        self._handlers: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}
        self.exit_code: int | None = None
        terminal, own_group = self._terminal, os.getpgrp()

        def become_job() -> None:
            """Set the group in the child, before any key can reach another one."""
            os.setpgid(0, 0)
            # What was ignored stays so (nohup); exec would give a signal with a handler its default.
            self._restore_handlers(FORWARDED)
            signal.pthread_sigmask(signal.SIG_SETMASK, usual_mask)
            if terminal is not None:
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
                with suppress(OSError):
                    os.tcsetpgrp(terminal, os.getpid())
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTTOU})

        self._own_group = own_group
        # A signal that comes while the job starts waits until there is somebody to pass it on to.
        usual_mask = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
        try:
            # With SIGCHLD ignored, which a parent may have passed on, the kernel keeps no exit code.
            self._handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number in FORWARDED:
                self._handlers[number] = signal.signal(number, self._forward)
            try:
                self._process = in_our_place(command, become_job)
            except BaseException:
                self._restore_handlers(tuple(self._handlers))
                raise
            self.pid = self._process.pid
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, usual_mask)
        if terminal is not None:
            # A background process that changes its terminal's settings is stopped by this signal.
            self._handlers[signal.SIGTTOU] = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        once("job", self._watch)

    def take_changes(self) -> bool:
        """Handle status changes of the job; True when it has ended."""
        while self.exit_code is None:
            try:
                status = self._statuses.get_nowait()
            except queue.Empty:
                return False
            if os.WIFSTOPPED(status):
                self._stop_with_it()
            else:
                self.exit_code = (
                    128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                )
                # Popen must not wait for a process that is gone.
                self._process.returncode = self.exit_code
        return True

    def finish(self) -> None:
        """Give the terminal and the signals back."""
        self._give_terminal(self.pid, self._own_group)
        self._restore_handlers(tuple(self._handlers))

    def _restore_handlers(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            handler = self._handlers.pop(number)
            if handler is not None:
                signal.signal(number, handler)

    def _watch(self) -> None:
        """Wait for the job on a thread of its own."""
        while True:
            try:
                _, status = os.waitpid(self.pid, os.WUNTRACED)
            except ChildProcessError:
                # The exit code was collected elsewhere in this process.
                status = NOT_EXECUTABLE << 8
            self._statuses.put(status)
            self._changed()
            if not os.WIFSTOPPED(status):
                return

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _stop_with_it(self) -> None:
        """Stop together with the job, and continue with it.

        A key has stopped the job; the shell gets its prompt only when gputop stops as well.
        """
        if self._terminal is None:
            return
        self._give_terminal(self.pid, self._own_group)
        os.kill(os.getpid(), signal.SIGSTOP)
        # In the background (bg) the terminal is the shell's, and stays it.
        self._give_terminal(self._own_group, self.pid)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGCONT)

    def _give_terminal(self, holder: int, group: int) -> None:
        """Make a group the foreground group, if ``holder`` is it now."""
        terminal = self._terminal
        if terminal is not None:
            # The terminal may have gone with its window.
            with suppress(OSError):
                if os.tcgetpgrp(terminal) == holder:
                    os.tcsetpgrp(terminal, group)


def _terminal() -> int | None:
    """Return our terminal's file descriptor if we are in its foreground."""
    try:
        fd = sys.stdin.fileno()
        return fd if os.isatty(fd) and os.tcgetpgrp(fd) == os.getpgrp() else None
    except (OSError, ValueError, AttributeError):
        return None
