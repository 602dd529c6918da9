"""A program on a pseudo terminal that is read all the time, and replayed afterwards.

Nothing is interpreted while the program runs, so that measuring costs the measured program nothing on a machine with
few cores: bytes are kept with the time of their arrival. One question is answered, as every terminal does: where the
cursor is.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyte

WHERE_IS_THE_CURSOR, AT_HOME = b"\x1b[6n", b"\x1b[1;1R"


class ProgramEnded(Exception):
    """The program left before it was told to. The text is what its terminal showed."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Megabytes (10⁶) of a process. ``peak_mb`` is the most that was ever resident, ``pss_mb`` shares shared pages out
    evenly. None: the kernel does not say."""

    peak_mb: float | None
    pss_mb: float | None


def memory_of(pid: int) -> Memory:
    """The memory of a process now. Raises OSError when it is gone."""
    text = "".join(Path(f"/proc/{pid}/{name}").read_text() for name in ("status", "smaps_rollup"))

    def megabytes(name: str) -> float | None:
        found = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
        return 1024 * int(found[1]) / 1e6 if found else None

    return Memory(megabytes("VmHWM"), megabytes("Pss"))


def process_cpu_s(pid: int) -> float:
    """CPU time of a process and all its threads so far: the kernel's own clock of it, in nanosecond steps."""
    return time.clock_gettime((~pid << 3) | 2)


class Terminal:
    """One run of a program on a terminal of ``rows`` × ``columns``. Times are monotonic seconds."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], rows: int, columns: int
    ):
        self.rows = rows
        self.columns = columns
        self.chunks: list[tuple[float, bytes]] = []
        self.started = time.monotonic()
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            try:
                os.execvpe(command[0], list(command), dict(environment))
            except OSError as error:
                os.write(2, f"{command[0]}: {error}\n".encode())
            os._exit(127)

    def drain(self, seconds: float, key: bytes = b"", keys_per_s: float = 0.0) -> None:
        """Read for some seconds, pressing a key at an even rate if one is given. Raises ProgramEnded."""
        begin = time.monotonic()
        end, next_key = begin + seconds, begin if key else float("inf")
        while (now := time.monotonic()) < end:
            if now >= next_key:
                os.write(self._master, key)
                next_key += 1 / keys_per_s
            self._read(min(end, next_key) - now)

    def drain_until(self, text: bytes, seconds: float, settle_s: float = 0.2) -> None:
        """Read until some bytes come anew, and what follows them at once; at most so long. Raises ProgramEnded."""
        end, known = time.monotonic() + seconds, len(self.chunks)
        seen = known
        while (now := time.monotonic()) < end:
            self._read(end - now)
            fresh, seen = self.chunks[max(known, seen - 1) :], len(self.chunks)
            if text in b"".join(data for _, data in fresh):
                self.drain(min(settle_s, max(0.0, end - time.monotonic())))
                return

    def answer_s(self, key: bytes, patience_s: float = 1.0) -> float:
        """Seconds from a key to the next bytes on the terminal; ``patience_s`` when none come."""
        pressed = time.monotonic()
        os.write(self._master, key)
        count = len(self.chunks)
        while len(self.chunks) == count and time.monotonic() < pressed + patience_s:
            self._read(pressed + patience_s - time.monotonic())
        return self.chunks[-1][0] - pressed if len(self.chunks) > count else patience_s

    def _read(self, timeout_s: float) -> None:
        ready, _, _ = select.select([self._master], [], [], max(0.0, timeout_s))
        if not ready:
            return
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:
            data = b""
        if not data:
            raise ProgramEnded(
                "\n".join(line for line in self.screen() if line) or "it showed nothing"
            )
        self.chunks.append((time.monotonic(), data))
        if WHERE_IS_THE_CURSOR in data:
            os.write(self._master, AT_HOME)

    def bytes_written(self) -> int:
        return sum(len(data) for _, data in self.chunks)

    def cpu_s(self) -> float:
        return process_cpu_s(self.pid)

    def memory(self) -> Memory:
        return memory_of(self.pid)

    def close(self, patience_s: float = 1.0) -> None:
        """Ask with ``q``, then with SIGTERM, then with SIGKILL, each after ``patience_s``."""
        for ask in (
            lambda: os.write(self._master, b"q"),
            lambda: os.kill(self.pid, signal.SIGTERM),
        ):
            ask()
            if self._ended_within(patience_s):
                break
        else:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._master)

    def _ended_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                return True
            try:
                self._read(0.02)
            except ProgramEnded:
                time.sleep(0.01)
        return False

    def screen(self) -> list[str]:
        """What the terminal shows now, one string a row."""
        shown, stream = self._replay()
        for _, data in self.chunks:
            stream.feed(data)
        return [line.rstrip() for line in shown.display]

    def first_shown_s(self, pattern: str) -> float | None:
        """Seconds from the start until a pattern stood on the screen, or None if it never did."""
        shown, stream = self._replay()
        for moment, data in self.chunks:
            stream.feed(data)
            if any(re.search(pattern, line) for line in shown.display):
                return moment - self.started
        return None

    def _replay(self) -> tuple[pyte.Screen, pyte.ByteStream]:
        shown = pyte.Screen(self.columns, self.rows)
        return shown, pyte.ByteStream(shown)
