"""The parent of a screen: it waits, and puts the terminal in order where the screen can not do so itself.

A crash in the driver's library, the end of memory or ``kill -9`` leave a program no last words: the shell would be left
without echo, in the colours of another picture, with codes at each movement of the mouse. So the screen is the child of
this one, forked before anything heavy is imported, in the same process group. It passes signals and stops on, and ends
as the screen ends. If this one is killed, the kernel tells the screen by a hang-up.
"""

from __future__ import annotations

import fcntl
import os
import signal
import termios
import time
from collections.abc import Sequence
from contextlib import suppress

SCREENS = ("demo", "replay", "fleet")
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
PASSED_ON = (*ENDING, signal.SIGTSTP)
CRASH = "a crash in a library, such as the driver's"
REASONS: dict[int, str] = {
    **dict.fromkeys((signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE), CRASH),
    signal.SIGKILL: "kill -9, or no memory was left: dmesg says which", signal.SIGXCPU: "the limit on CPU time",
}  # fmt: skip


def hold_terminal(words: Sequence[str]) -> None:
    """For the words of a screen at a terminal: return in a child, and stay behind as its parent. Else just return."""
    if words and not words[0].startswith("-") and words[0] not in SCREENS:
        return
    try:
        if not all(os.isatty(descriptor) for descriptor in (0, 1, 2)):
            return
        found = termios.tcgetattr(0)
        hear, tell = os.pipe()
        # Where a parent has passed on that it is ignored, the kernel would keep no status.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        child = os.fork()
    except (OSError, termios.error):
        return
    if child:
        os.close(hear)
        os._exit(_wait(child, found))
    os.close(tell)
    # The kernel sends SIGHUP when the other end of the pipe is closed, which only the parent's end does.
    with suppress(OSError):
        fcntl.fcntl(hear, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(hear, fcntl.F_SETSIG, signal.SIGHUP)
        fcntl.fcntl(hear, fcntl.F_SETFL, fcntl.fcntl(hear, fcntl.F_GETFL) | os.O_ASYNC)


def _wait(child: int, found: list[int | list[bytes | int]]) -> int:
    """Wait for the child's end, passing on what comes, and put the terminal in order. The exit status."""
    asked: list[int] = []

    def pass_on(number: int, _frame: object) -> None:
        asked.extend({number} & {*ENDING})
        _send(child, number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    while os.WIFSTOPPED(status := os.waitpid(child, os.WUNTRACED)[1]):
        # What stops and continues a job comes to both, but not at one moment.
        time.sleep(0.05)
        if not asked and not _goes_on(child):
            # The shell sees a stopped job. What then continues this process alone is passed on.
            os.kill(os.getpid(), signal.SIGSTOP)
        if asked or not _goes_on(child):
            _send(child, signal.SIGCONT)
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_IGN)
    was_left = _restored(found)
    code = os.waitstatus_to_exitcode(status)
    if -code in PASSED_ON:
        # It came before the screen listened: this one ends in the same way.
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    if code < 0 or was_left:
        from gputop.system.children import how_it_ended

        reason = REASONS.get(-code) if code < 0 else f"it has not left the screen: {CRASH}"
        _write(f"gputop: {how_it_ended(code)}{f': {reason}' if reason else ''}\n".encode())
    return code if code >= 0 else 128 - code


def _goes_on(child: int) -> bool:
    """Whether the child has been continued since this was asked, or has ended, which only the next wait tells."""
    with suppress(ChildProcessError):
        return os.waitid(os.P_PID, child, os.WCONTINUED | os.WNOHANG) is not None
    return True


def _send(child: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, number)


def _restored(found: list[int | list[bytes | int]]) -> bool:
    """Give the terminal back as it was found; whether the child has not done so. Never waits for the terminal."""
    try:
        if termios.tcgetattr(0) == found or os.tcgetpgrp(0) != os.getpgrp():
            return False
        from gputop.tui.terminal.guard import RESTORE

        termios.tcflush(2, termios.TCOFLUSH)
        _write(RESTORE)
        termios.tcsetattr(0, termios.TCSANOW, found)
    except (OSError, termios.error):  # the terminal is gone
        return False
    return True


def _write(data: bytes) -> None:
    """To the terminal, without waiting for one that takes nothing."""
    os.set_blocking(2, False)
    with suppress(OSError):
        os.write(2, data)
    os.set_blocking(2, True)
