"""Mounts of open files, by mount ids of /proc/PID/fdinfo and /proc/PID/mountinfo.

The kernel's memory also names a mount that hangs (an unreachable file server, a stopped FUSE server); access to a path
on such a mount would block gputop.
"""

from __future__ import annotations

import os

from msgspec import Struct

from gputop.model.clean_text import clean_text
from gputop.model.secrets import masked_text
from gputop.sources.procfs import read_file, read_small

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
KEPT_S = 30.0
MOST_KEPT = 256


class Mount(Struct, frozen=True):
    """Mount point and type of a file system."""

    path: str
    kind: str

    @property
    def is_networked(self) -> bool:
        """Whether its data come from a server."""
        return self.kind.startswith(NETWORKED)


class Mounts:
    """Cache of mounts by mount namespace.

    Used by one thread at a time.
    """

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._mounts: dict[str, tuple[float, dict[int, Mount]]] = {}

    def mount_of(self, now: float, pid: int, descriptor: int) -> Mount | None:
        """Return the mount of an open file; None if unknown.

        ``now`` is monotonic s.
        """
        try:
            namespace = os.readlink(f"{self._proc}/{pid}/ns/mnt")
            text = read_small(f"{self._proc}/{pid}/fdinfo/{descriptor}")
            number = int(text[text.index(b"mnt_id:") + 7 :].split(None, 1)[0])
        except (OSError, ValueError, IndexError):
            return None
        cached = self._mounts.get(namespace)
        if cached is None or not 0.0 <= now - cached[0] < KEPT_S:
            if len(self._mounts) >= MOST_KEPT:
                self._mounts.clear()
            cached = self._mounts[namespace] = now, self._read(pid)
        return cached[1].get(number)

    def _read(self, pid: int) -> dict[int, Mount]:
        try:
            lines = (
                read_file(f"{self._proc}/{pid}/mountinfo").decode("utf-8", "replace").splitlines()
            )
        except OSError:
            return {}
        mounts = {}
        for line in lines:
            # proc(5): id, parent, device, root, mount point, options, optional fields up to "-", type.
            before, _, after = line.partition(" - ")
            fields, kind = before.split(" "), after.split(" ", 1)[0]
            if len(fields) > 4 and fields[0].isdigit():
                mounts[int(fields[0])] = Mount(
                    clean_text(masked_text(fields[4].replace("\\040", " "))), kind
                )
        return mounts
