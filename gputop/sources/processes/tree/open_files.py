"""What a process holds open: pipes and sockets by inode, and the mounts of its files.

Pipes and sockets are read from the links of /proc/PID/fd only; they connect processes. Who writes to a pipe is read
from /proc/PID/io: ``wchar`` counts bytes given to write(2), ``write_bytes`` those written to a disk, in whole pages.
The difference went to pipes, terminals or file systems without a disk; it may be too low. ``send`` counts in neither.

Mounts come from the mount ids of /proc/PID/fdinfo and from /proc/PID/mountinfo. The kernel's memory also names a mount
that hangs (an unreachable file server, a stopped FUSE server); access to a path on such a mount would block gputop.
"""

from __future__ import annotations

import os
from stat import S_IRUSR, S_IWUSR

from msgspec import Struct

from gputop.model.clean_text import clean_text
from gputop.model.secrets import masked_text
from gputop.sources.procfs import link_at, read_file, read_small

MOST_DESCRIPTORS = 1024
"""Limit of open files that are read of one process."""
HELD_AGAIN_S = 20.0
"""Lifetime of a list of inodes."""
DENIED_FDS = "its open files are closed to this user"
WROTE_S = 60.0
"""A process counts as a writer of its pipes for this long after its last write: a batch may take that long [judged]."""
COUNTED_AGAIN_S = 2.0


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


class OpenFiles:
    """Pipes and sockets of one process, as last read."""

    def __init__(self, proc: str, pid: int) -> None:
        self._proc = proc
        self._pid = pid
        self._read_at = float("-inf")
        self.held: HeldInodes | None = None
        """None if they were not read yet, or are not readable."""

    def are_older_than(self, now: float, age_s: float) -> bool:
        """Return whether the list is at least so old; ``now`` is monotonic s."""
        return now - self._read_at >= age_s

    def read_again(self, now: float) -> None:
        """Read the pipes and sockets now."""
        self._read_at = now
        self.held = held(self._proc, self._pid)


class PipeOutput:
    """Bytes that one process wrote to anything but disks, and when they last grew."""

    def __init__(self, proc: str, pid: int) -> None:
        self._path = f"{proc}/{pid}/io"
        self._counted_at: float | None = None
        self._grown_at = float("-inf")
        self.elsewhere = 0
        """Bytes given to pipes, terminals or file systems without a disk; 0 if not readable."""

    def wrote_lately(self, now: float) -> bool:
        """Return whether the process wrote within the last minute, by the newest count."""
        return now - self._grown_at <= WROTE_S

    def count(self, now: float) -> None:
        """Count the bytes again, unless they were counted a moment ago."""
        is_first = self._counted_at is None
        if self._counted_at is not None and 0.0 <= now - self._counted_at < COUNTED_AGAIN_S:
            return
        self._counted_at = now
        before = self.elsewhere
        try:
            fields = read_small(self._path).split()
            wchar, write_bytes = int(fields[3]), int(fields[11])
        except (OSError, ValueError, IndexError):
            self.elsewhere = 0
            self._grown_at = float("-inf")
            return
        self.elsewhere = wchar - write_bytes
        if self.elsewhere > before and not is_first:
            self._grown_at = now


def in_another_network(proc: str, pid: int) -> bool:
    """Return whether a process has another network namespace than gputop.

    False also if its namespace is not readable.
    """
    its, mine = link_at(f"{proc}/{pid}/ns/net"), link_at(f"{proc}/self/ns/net")
    return bool(its and mine) and its != mine


NETWORKED = (
    "nfs",
    "cifs",
    "smb3",
    "ceph",
    "lustre",
    "fuse",
    "9p",
    "beegfs",
    "gpfs",
    "glusterfs",
    "afs",
    "virtiofs",
)
"""Prefixes of the types of networked file systems."""
MOUNTS_KEPT_S = 30.0
MOST_NAMESPACES = 256


class Mount(Struct, frozen=True):
    """Mount point and type of a file system."""

    path: str
    kind: str

    @property
    def is_networked(self) -> bool:
        """Whether its data come from a server."""
        return self.kind.startswith(NETWORKED)


class _Namespace(Struct, frozen=True):
    """The mounts of one mount namespace by their ids, as read at ``t``."""

    t: float
    mounts: dict[int, Mount]


class Mounts:
    """Cache of mounts by mount namespace.

    Used by one thread at a time.
    """

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._namespaces: dict[str, _Namespace] = {}

    def mount_of(self, now: float, pid: int, descriptor: int) -> Mount | None:
        """Return the mount of an open file; None if unknown.

        ``now`` is monotonic s.
        """
        try:
            name = os.readlink(f"{self._proc}/{pid}/ns/mnt")
            number = _mount_id(read_small(f"{self._proc}/{pid}/fdinfo/{descriptor}"))
        except (OSError, ValueError, IndexError):
            return None
        namespace = self._namespaces.get(name)
        if namespace is None or not 0.0 <= now - namespace.t < MOUNTS_KEPT_S:
            if len(self._namespaces) >= MOST_NAMESPACES:
                self._namespaces.clear()
            namespace = self._namespaces[name] = _Namespace(now, self._read(pid))
        return namespace.mounts.get(number)

    def _read(self, pid: int) -> dict[int, Mount]:
        try:
            text = read_file(f"{self._proc}/{pid}/mountinfo").decode("utf-8", "replace")
        except OSError:
            return {}
        mounts: dict[int, Mount] = {}
        for line in text.splitlines():
            # proc(5): id, parent, device, root, mount point, options, optional fields up to "-", type.
            before, _, after = line.partition(" - ")
            kind, _, _ = after.partition(" ")
            number, *fields = before.split(" ")
            if len(fields) < LEAST_MOUNT_FIELDS or not number.isdigit():
                continue
            _, _, _, point, *_ = fields
            path = clean_text(masked_text(point.replace("\\040", " ")))
            mounts[int(number)] = Mount(path, kind)
        return mounts


LEAST_MOUNT_FIELDS = 4
"""Fields between a mount's id and its options."""


def _mount_id(fdinfo: bytes) -> int:
    """Return the mount id in a descriptor's fdinfo. Raises ValueError or IndexError."""
    begin = fdinfo.index(b"mnt_id:") + len(b"mnt_id:")
    number, *_ = fdinfo[begin:].split(None, 1)
    return int(number)
