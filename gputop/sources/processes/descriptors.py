"""The pipes and sockets that a process holds, by inode: what connects it to others. Links of /proc/PID/fd only."""

from __future__ import annotations

import os
from stat import S_IRUSR, S_ISFIFO, S_IWUSR

from msgspec import Struct

MOST_DESCRIPTORS = 1024
"""The most open files of one process that are read."""
HELD_AGAIN_S = 20.0
"""How long what a process was seen to hold stays valid."""
MOST_REMEMBERED = 2048
READ_AT_ONCE = 64
"""The most processes whose open files are read at one time; the rest waits for the next."""
DENIED_FDS = "its open files are closed to this user"


class Held(Struct, frozen=True):
    """Inodes of pipes by the end that is held, and of sockets. Standard input, output and error are ``standard``.

    ``fifos``: whether it reads a pipe that has a name in the file system.
    """

    reads: frozenset[int]
    writes: frozenset[int]
    sockets: frozenset[int]
    standard: frozenset[int]
    fifos: bool = False


def held(proc: str, pid: int) -> Held | None:
    """What a process holds, or None where it has ended or may not be looked at."""
    directory = f"{proc}/{pid}/fd"
    reads: set[int] = set()
    writes: set[int] = set()
    sockets: set[int] = set()
    standard: set[int] = set()
    fifos = False
    try:
        names = os.listdir(directory)
    except OSError:
        return None
    for name in names[:MOST_DESCRIPTORS]:
        path = f"{directory}/{name}"
        try:
            target = os.readlink(path)
            if target.startswith("socket:["):
                sockets.add(int(target[8:-1]))
            elif target.startswith("pipe:["):
                inode, mode = int(target[6:-1]), os.lstat(path).st_mode
                if mode & S_IRUSR:
                    reads.add(inode)
                if mode & S_IWUSR:
                    writes.add(inode)
                if name in ("0", "1", "2"):
                    standard.add(inode)
            elif not fifos and target.startswith("/") and not target.startswith("/dev/"):
                fifos = S_ISFIFO(os.stat(path).st_mode) and bool(os.lstat(path).st_mode & S_IRUSR)
        except (OSError, ValueError):
            continue
    return Held(frozenset(reads), frozenset(writes), frozenset(sockets), frozenset(standard), fifos)


class HeldByMany:
    """What many processes hold, remembered, and read a few at a time."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._known: dict[int, tuple[float, Held | None]] = {}
        self._left = 0

    def begin(self) -> None:
        """Begin a new round, in which some more may be read."""
        self._left = READ_AT_ONCE

    def of(self, now: float, pid: int) -> Held | None:
        """What a process holds, as last read; None where it was not read yet or may not be. ``now`` is monotonic."""
        known = self._known.get(pid)
        if known is not None and now - known[0] < HELD_AGAIN_S:
            return known[1]
        if self._left <= 0:
            return None if known is None else known[1]
        self._left -= 1
        self._known.pop(pid, None)
        while len(self._known) >= MOST_REMEMBERED:
            # The one read longest ago.
            del self._known[next(iter(self._known))]
        known = self._known[pid] = now, held(self._proc, pid)
        return known[1]
