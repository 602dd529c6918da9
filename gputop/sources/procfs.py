"""Reads /proc into numbers, without their meaning.

Formats: proc(5), and fs/proc/array.c for ``stat``. A file that is kept open and read again with ``pread`` costs a
third of opening it each time (measured: 72 processes, ``stat`` + ``schedstat`` + ``io``, 0.41 ms against 1.28 ms), and
an open file of a process that died answers ESRCH even when its pid has been given to another process.
"""

from __future__ import annotations

import fcntl
import os
import resource
from contextlib import suppress

from msgspec import Struct

from gputop.model.inspection import Relatives

_CHUNK = 65536
_SMALL = 4096
_DESCRIPTOR_CEILING = 4096
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
"""The kernel's clock ticks, in which CPU times and start times are counted."""


class Stat(Struct, frozen=True, gc=False):
    """Used fields of /proc/PID/stat.

    ``cpu_ticks`` is user plus system time of all threads, ``starttime`` counts from boot, both in clock ticks;
    ``rss_pages`` is in pages. There is one for each process of the machine; without ``gc`` each is 16 bytes smaller.
    """

    comm: bytes
    state: str
    ppid: int
    session: int
    cpu_ticks: int
    threads: int
    starttime: int
    rss_pages: int


def read_file(path: str) -> bytes:
    """Return the whole file. Raises OSError.

    Files of many records come one page a read, so the end must be asked for.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, _CHUNK):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def read_small(path: str, size: int = _SMALL) -> bytes:
    """Return the result of one read: a file of one page. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)


def text_of(path: str) -> str:
    """Return a small file's stripped text; empty where unreadable."""
    try:
        return read_small(path).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def link_at(path: str) -> str:
    """Return a link's text without following it; empty where unreadable."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def number_of(path: str, base: int = 10) -> int | None:
    """Return a small file's number; None without one."""
    try:
        return int(text_of(path), base)
    except ValueError:
        return None


def names_in(folder: str) -> list[str]:
    """Return a folder's names in order; empty where unreadable."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def parse_stat(data: bytes) -> Stat | None:
    """Parse /proc/PID/stat; None when it is cut short.

    A name may hold spaces, parentheses and newlines.
    """
    start = data.find(b"(")
    end = data.rfind(b")")
    fields = data[end + 2 :].split(None, 22)
    if start < 0 or end < start or len(fields) < 22:
        return None
    return Stat(
        data[start + 1 : end],
        fields[0].decode("ascii", "replace"),
        int(fields[1]),
        int(fields[3]),
        int(fields[11]) + int(fields[12]),
        int(fields[17]),
        int(fields[19]),
        int(fields[21]),
    )


def relatives_of(pid: int, proc: str = "/proc") -> Relatives | None:
    """Return the relatives of a process; None once it has ended."""
    try:
        after_name = read_small(f"{proc}/{pid}/stat").rpartition(b") ")[2].split(None, 20)
        return Relatives(int(after_name[1]), int(after_name[2]), int(after_name[19]))
    except (OSError, IndexError, ValueError):
        return None


def parse_schedstat(data: bytes) -> tuple[int, int] | None:
    """Return nanoseconds on a core and queued for one, of one thread.

    None when the kernel keeps no such statistics: it then prints zeros (sched_info off), never for a thread that ran.
    """
    fields = data.split()
    if len(fields) < 3 or fields[2] == b"0":
        return None
    return int(fields[0]), int(fields[1])


def stat_of(folder: str) -> Stat | None:
    """Return the counters of a process or thread, by its folder; None once it has ended."""
    try:
        return parse_stat(read_small(f"{folder}/stat"))
    except OSError:
        return None


def times_of(folder: str) -> tuple[int, int]:
    """Return nanoseconds on a core and queued for one; 0 where unknown."""
    try:
        return parse_schedstat(read_small(f"{folder}/schedstat")) or (0, 0)
    except OSError:
        return 0, 0


def parse_io(data: bytes) -> tuple[int, int] | None:
    """Return storage bytes read and written, from /proc/PID/io.

    The page cache is not included.
    """
    fields = data.split()
    if len(fields) < 12 or fields[8] != b"read_bytes:" or fields[10] != b"write_bytes:":
        return None
    return int(fields[9]), int(fields[11])


def parse_uptime(data: bytes) -> float | None:
    """Return seconds since boot, on the clock of ``Stat.starttime``."""
    fields = data.split()
    return float(fields[0]) if fields else None


def _most_open() -> int:
    """Return how many files may stay open.

    Half of this process's limit, at most 4096 (a thousand processes).
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        _DESCRIPTOR_CEILING
        if soft == resource.RLIM_INFINITY
        else min(soft // 2, _DESCRIPTOR_CEILING)
    )


def make_room() -> None:
    """Grow the kernel's table of open files before threads run.

    It doubles as files are opened, and where several threads share it the one that opens waits each time until all
    processors have passed a grace period (``expand_fdtable`` in fs/file.c): three times 10 to 17 ms in a first pass
    over 64 processes. Where no file may be opened it does nothing.
    """
    with suppress(OSError), open(os.devnull, "rb", 0) as some:
        os.close(fcntl.fcntl(some, fcntl.F_DUPFD_CLOEXEC, _most_open() - 1))


class Descriptors:
    """Limits the number of files that stay open."""

    def __init__(self, ceiling: int | None = None) -> None:
        self.left = _most_open() if ceiling is None else ceiling

    def take(self) -> bool:
        """Whether one more file may stay open."""
        if self.left <= 0:
            return False
        self.left -= 1
        return True

    def give(self, count: int) -> None:
        """Return ``count`` files that were closed."""
        self.left += count


class ProcessFiles:
    """Small files of one process or the machine, kept open if possible."""

    __slots__ = ("_descriptors", "_directory", "_open")

    def __init__(self, directory: str, descriptors: Descriptors) -> None:
        self._directory = directory
        self._descriptors = descriptors
        self._open: dict[str, int] = {}

    def read(self, name: str) -> bytes:
        """Return the first page of a file.

        Raises OSError: ENOENT or ESRCH when the process is gone.
        """
        descriptor = self._open.get(name)
        if descriptor is not None:
            return os.pread(descriptor, _SMALL, 0)
        descriptor = os.open(f"{self._directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        if self._descriptors.take():
            self._open[name] = descriptor
            return os.pread(descriptor, _SMALL, 0)
        try:
            return os.read(descriptor, _SMALL)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Close the open files; ``read`` opens them again."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._descriptors.give(len(self._open))
        self._open.clear()
