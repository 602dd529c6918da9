"""A program in a pseudo-terminal: what it writes, what its terminal was set to, how it ends."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyte

ROOT = Path(__file__).parents[2]
LIMIT_S = 2.0
"""How long gputop may take to end."""
STARTS = 3.0
"""Where a start takes long, so does an end: so many starts of the same program are granted. On a machine of its own
that is less than LIMIT_S, on a crowded or slow one more."""
SCREEN_TAKEN = "\x1b[?2004h"
"""Textual writes it last when it takes a terminal: from here on keys are obeyed."""
FOREVER_S = 60.0
"""What has not come by then never comes, however slow the machine."""
LAST_WORDS_S = 0.1
"""How long more of what a program wrote last is waited for: a terminal hands it over a few kilobytes at a time."""


def in_time_s(start_s: float) -> float:
    """How long the end of a program may take whose start took so many seconds."""
    return max(LIMIT_S, STARTS * start_s)


def _known_modes(match: re.Match[str]) -> str:
    return match[0] if re.fullmatch(r"\x1b\[\?(25|7)[hl]", match[0]) else ""


class PtyProgram:
    """Runs ``python -m gputop ARGUMENTS`` in a terminal of ``columns`` × ``rows``.

    ``within`` is a command that executes the one which follows it, such as ``nice``.
    """

    def __init__(
        self,
        *arguments: str,
        columns: int = 160,
        rows: int = 48,
        env: Mapping[str, str] | None = None,
        within: Sequence[str] = (),
    ) -> None:
        self.written = b""
        self.status: int | None = None
        self.start_s = 0.0
        """From its begin to what was waited for before anything was asked of it."""
        self._asked, self._begun = False, time.monotonic()
        environment = {
            **os.environ,
            "TERM": "xterm-256color",
            "PYTHONPATH": str(ROOT),
            **(env or {}),
        }
        environment.pop("NO_COLOR", None) if "NO_COLOR" not in (env or {}) else None
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            command = [*within, sys.executable, "-m", "gputop", *arguments]
            os.execvpe(command[0], command, environment)
        self.attributes = termios.tcgetattr(self.terminal)

    def __enter__(self) -> PtyProgram:
        return self

    def __exit__(self, *_: object) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.terminal)

    def read_until(self, text: str, timeout_s: float = FOREVER_S) -> None:
        """Drain the terminal until a text was written. Raises AssertionError when it does not come."""
        wanted, deadline = text.encode(), time.monotonic() + timeout_s
        start = len(self.written)
        while wanted not in self.written[max(0, start - len(wanted)) :]:
            assert time.monotonic() < deadline, (
                f"{text!r} was not written: …{self.written[-400:]!r}"
            )
            self._drain(0.05)
        if not self._asked:
            self.start_s = time.monotonic() - self._begun

    def read_until_started(self, shown: str) -> None:
        """Drain the terminal until it was shown something and was taken, in whichever order.

        The first picture comes before, unless a crowded machine reads its GPUs late.
        """
        for text in (shown, SCREEN_TAKEN):
            if text.encode() not in self.written:
                self.read_until(text)

    def read_for(self, seconds: float) -> None:
        """Drain the terminal for a while."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._drain(0.05)

    def screen(self, columns: int, rows: int) -> list[str]:
        """What a terminal shows after all that was written."""
        # pyte takes private mode queries and the kitty protocol for text.
        text = re.sub(
            r"\x1b\[[<>=?][0-9;]*\$?[a-zA-Z]", _known_modes, self.written.decode("utf-8", "replace")
        )
        screen = pyte.Screen(columns, rows)
        pyte.Stream(screen).feed(text)
        return [line.rstrip() for line in screen.display]

    def read_screen_until(
        self,
        holds: Callable[[list[str]], bool],
        columns: int,
        rows: int,
        timeout_s: float = FOREVER_S,
    ) -> None:
        """Drain the terminal until what it shows fulfils a condition. Raises AssertionError when it never does."""
        deadline = time.monotonic() + timeout_s
        while not holds(screen := self.screen(columns, rows)):
            while not self._drain(
                0.05
            ):  # to draw what was drawn already takes a tenth of a second of CPU
                assert time.monotonic() < deadline, "the screen never came to it:\n" + "\n".join(
                    screen
                )

    def press(self, keys: str) -> None:
        self._asked = True
        os.write(self.terminal, keys.encode())

    def signal(self, number: int) -> None:
        self._asked = True
        os.kill(self.pid, number)

    def wait_for_state(self, state: str, timeout_s: float = FOREVER_S) -> None:
        """Wait until the kernel shows the program in a state, such as T for stopped."""
        deadline = time.monotonic() + timeout_s
        while Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != state:
            assert time.monotonic() < deadline, f"the program never came into state {state}"
            self._drain(0.02)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def settings(self) -> list[object]:
        """What the terminal is set to."""
        return termios.tcgetattr(self.terminal)

    def set(self, settings: list[object]) -> None:
        """Set the terminal, as another program may while this one is stopped."""
        termios.tcsetattr(self.terminal, termios.TCSANOW, settings)

    def end_in_time(self, drain: bool = True) -> None:
        """Wait for the end; AssertionError where it takes longer than it may on this machine, now."""
        took, most = self.end(drain=drain), in_time_s(self.start_s)
        assert took <= most, f"it ended after {took:.1f} s, {most:.1f} s are granted"

    def end(self, timeout_s: float = FOREVER_S, drain: bool = True) -> float:
        """Wait for the end; how many seconds it took. ``drain`` False leaves the output where it is meanwhile."""
        begun = time.monotonic()
        while True:
            if drain:
                self._drain(0.01)
            else:
                time.sleep(0.01)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
                break
            assert time.monotonic() - begun < timeout_s, "the program did not end"
        took = time.monotonic() - begun
        while self._drain(LAST_WORDS_S):
            pass
        return took

    def is_restored(self) -> bool:
        """Whether the terminal's settings, screen, cursor, mouse and paste mode are as before the program."""
        tail = self.written[-4000:]
        return (
            termios.tcgetattr(self.terminal) == self.attributes
            and tail.rfind(b"\x1b[?1049l") > tail.rfind(b"\x1b[?1049h")
            and tail.rfind(b"\x1b[?25h") > tail.rfind(b"\x1b[?25l")
            and tail.rfind(b"\x1b[?1003l") > tail.rfind(b"\x1b[?1003h")
            and tail.rfind(b"\x1b[?2004l") > tail.rfind(SCREEN_TAKEN.encode())
        )

    def _drain(self, seconds: float) -> bool:
        """Take what has been written, and wait for it so long at most; whether there was any."""
        before = len(self.written)
        while select.select([self.terminal], [], [], seconds)[0]:
            try:
                data = os.read(self.terminal, 65536)
            except OSError:
                break
            if not data:
                break
            self.written += data
            seconds = 0.0
        return len(self.written) > before
