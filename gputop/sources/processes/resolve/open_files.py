"""Pipes and sockets of processes by inode, from the links of /proc/PID/fd only: they connect processes."""

from __future__ import annotations

import os
from stat import S_IRUSR, S_IWUSR

from msgspec import Struct

from gputop.sources.procfs import link_at

MOST_DESCRIPTORS = 1024
"""Limit of open files that are read of one process."""
HELD_AGAIN_S = 20.0
"""Lifetime of a cached list of inodes."""
MOST_REMEMBERED = 2048
READ_AT_ONCE = 64
"""Limit of processes whose open files are read in one round; the rest waits for the next."""
DENIED_FDS = "its open files are closed to this user"


class HeldInodes(Struct, frozen=True):
    """Inodes of a process's pipes, by open end, and of its sockets.

    Pipes used as standard input, output and error are ``standard``. Named pipes are left out: their links look like
    those to any other file, and following one might never return.
    """

    reads: frozenset[int]
    writes: frozenset[int]
    sockets: frozenset[int]
    standard: frozenset[int]


def held(proc: str, pid: int) -> HeldInodes | None:
    """Return a process's pipes and sockets.

    None if the process has ended or its open files are not readable.
    """
    directory = f"{proc}/{pid}/fd"
    reads: set[int] = set()
    writes: set[int] = set()
    sockets: set[int] = set()
    standard: set[int] = set()
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
        except (OSError, ValueError):
            continue
    return HeldInodes(frozenset(reads), frozenset(writes), frozenset(sockets), frozenset(standard))


class HeldInodesCache:
    """Cache of many processes' inodes, read a few at a time."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._held_by_pid: dict[int, tuple[float, HeldInodes | None]] = {}
        self._reads_left = 0

    def forget(self, pid: int) -> None:
        """Forget an exited process."""
        self._held_by_pid.pop(pid, None)

    def begin(self) -> None:
        """Begin a new round, with a new limit of reads."""
        self._reads_left = READ_AT_ONCE

    def held_by(self, now: float, pid: int, again_s: float = HELD_AGAIN_S) -> HeldInodes | None:
        """Return a process's pipes and sockets, as last read.

        None if they were not read yet or are not readable. A list older than ``again_s`` is read again. ``now`` is
        monotonic.
        """
        cached = self._held_by_pid.get(pid)
        if self._reads_left > 0 and (cached is None or now - cached[0] >= again_s):
            self._reads_left -= 1
            self._held_by_pid.pop(pid, None)
            while len(self._held_by_pid) >= MOST_REMEMBERED:
                # Evict the oldest entry.
                del self._held_by_pid[next(iter(self._held_by_pid))]
            cached = self._held_by_pid[pid] = now, held(self._proc, pid)
        return None if cached is None else cached[1]


def in_another_network(proc: str, pid: int) -> bool:
    """Return whether a process has another network namespace than gputop.

    False also if its namespace is not readable.
    """
    its, mine = link_at(f"{proc}/{pid}/ns/net"), link_at(f"{proc}/self/ns/net")
    return bool(its and mine) and its != mine
