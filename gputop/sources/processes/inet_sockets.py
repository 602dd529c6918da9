"""Which sockets are of the internet families: what a thread waits for in a socket is a network only there.

The kernel's tables are asked by netlink, for gputop's own network namespace; of a process in another one its own
tables are read, ``/proc/PID/net`` (proc(5)). Both are kept for a while: a socket does not change its family.
"""

from __future__ import annotations

import os

from gputop.sources.processes.process_sockets import tcp_tables, udp_inodes
from gputop.sources.procfs import read_small

ASK_AGAIN_S = 0.2
"""How often at most the tables are read for sockets that were in none of them yet."""
MOST_SPACES, MOST_OTHERS = 64, 4096
TABLES = ("tcp", "tcp6", "udp", "udp6")
MOST_BYTES = 1 << 20
"""What is read of one table of another network namespace."""
_INODE_FIELD = 9


class InetSockets:
    """Remembers what it has read, also of sockets that are of no such family. Used by one thread at a time."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._known: dict[str, tuple[float, frozenset[int]]] = {}
        """By network namespace, as the kernel names it: when its tables were read, and the inodes in them."""
        self._others: set[int] = set()
        """Sockets that were in no table: those of this machine's own processes, mostly."""

    def has(self, now: float, pid: int, inode: int) -> bool | None:
        """Whether a socket that ``pid`` holds is TCP or UDP; None where that was asked too lately to ask again.

        False also where nobody tells. ``now`` is monotonic s.
        """
        if inode in self._others:
            return False
        space = self._space(str(pid))
        known = self._known.get(space)
        if known is not None and inode in known[1]:
            return True
        if known is not None and 0.0 <= now - known[0] < ASK_AGAIN_S:
            return None
        inodes = (
            frozenset(tcp_tables(now).tcp) | udp_inodes() if space == self._space("self") else self._of_another(pid)
        )
        if len(self._known) > MOST_SPACES:
            self._known.clear()
        self._known[space] = now, inodes
        if inode not in inodes:
            if len(self._others) >= MOST_OTHERS:
                self._others.clear()
            self._others.add(inode)
        return inode in inodes

    def _space(self, pid: str) -> str:
        try:
            return os.readlink(f"{self._proc}/{pid}/ns/net")
        except OSError:
            # Of another user's process that cannot be told; its sockets could not be seen either.
            return ""

    def _of_another(self, pid: int) -> frozenset[int]:
        found: set[int] = set()
        for table in TABLES:
            try:
                descriptor = os.open(f"{self._proc}/{pid}/net/{table}", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                rest, left = b"", MOST_BYTES
                while left > 0 and (part := os.read(descriptor, 65536)):
                    left -= len(part)
                    *lines, rest = (rest + part).split(b"\n")
                    found.update(int(fields[_INODE_FIELD]) for line in lines if _is_row(fields := line.split()))
            except OSError:
                continue
            finally:
                os.close(descriptor)
        return frozenset(found)


def _is_row(fields: list[bytes]) -> bool:
    return len(fields) > _INODE_FIELD and fields[_INODE_FIELD].isdigit()


def waited_call(folder: str) -> tuple[int, int] | None:
    """(number, first argument as a file descriptor) of the system call in which a thread sleeps: ``folder``/syscall.

    None where it may not be seen (it takes the right to trace), or the thread is in none. Only for calls whose first
    argument is a descriptor: the wait channel must say so.
    """
    try:
        fields = read_small(f"{folder}/syscall").split(None, 2)
        number, first = (int(fields[0]), int(fields[1], 16)) if len(fields) > 2 else (-1, -1)
    except (OSError, ValueError):
        return None
    return (number, first) if number >= 0 and 0 <= first < 1 << 20 else None


_SAVING = {
    # write, pwrite64, writev, pwritev, pwritev2, fsync, fdatasync, close, ftruncate, fallocate: asm/unistd.h.
    "x86_64": frozenset((1, 18, 20, 296, 328, 74, 75, 3, 77, 285)),
    "aarch64": frozenset((64, 68, 66, 70, 287, 82, 83, 57, 46, 47)),
}
SAVING = _SAVING.get(os.uname().machine, frozenset())
"""The system calls that write a file, or wait until it is written, by number."""


def target_of(proc: str, pid: int, descriptor: int) -> str:
    """Where a descriptor of a process leads, as the kernel writes it; empty where that cannot be seen.

    The link is read and never followed: behind it may be a file system that does not answer.
    """
    try:
        return os.readlink(f"{proc}/{pid}/fd/{descriptor}")
    except OSError:
        return ""


def inode_in(target: str, kind: str) -> int | None:
    """The inode in ``pipe:[123]`` or ``socket:[123]``; None where a link leads to something else."""
    number = target[len(kind) + 2 : -1]
    return int(number) if target.startswith(f"{kind}:[") and number.isdigit() else None
