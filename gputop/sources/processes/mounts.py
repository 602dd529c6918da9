"""On which file system an open file lies, without touching it: mount ids of /proc/PID/fdinfo and /proc/PID/mountinfo.

A mount that hangs (a file server that is away, a stopped FUSE server) is named by what the kernel keeps in memory; a
path on it would hang whoever asks for it.
"""

from __future__ import annotations

from msgspec import Struct

from gputop.model.quantity import clean_text
from gputop.model.secrets import masked_text
from gputop.sources.procfs import read_file, read_small

NETWORKED = ("nfs", "cifs", "smb3", "ceph", "lustre", "fuse", "9p", "beegfs", "gpfs", "glusterfs", "afs", "virtiofs")
"""Beginnings of the types of file systems whose data come from elsewhere."""
KEPT_S = 30.0
MOST_KEPT = 256


class Mount(Struct, frozen=True):
    """Where a file system is mounted, and its type."""

    path: str
    kind: str

    @property
    def is_networked(self) -> bool:
        """Whether its data come from elsewhere."""
        return self.kind.startswith(NETWORKED)


class Mounts:
    """The mounts that processes see, remembered for a while. Used by one thread at a time."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._known: dict[int, tuple[float, dict[int, Mount]]] = {}

    def of(self, now: float, pid: int, descriptor: int) -> Mount | None:
        """The mount of an open file; None where it cannot be told. ``now`` is monotonic s."""
        try:
            text = read_small(f"{self._proc}/{pid}/fdinfo/{descriptor}")
            number = int(text[text.index(b"mnt_id:") + 7 :].split(None, 1)[0])
        except (OSError, ValueError, IndexError):
            return None
        known = self._known.get(pid)
        if known is None or not 0.0 <= now - known[0] < KEPT_S:
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            known = self._known[pid] = now, self._read(pid)
        return known[1].get(number)

    def _read(self, pid: int) -> dict[int, Mount]:
        try:
            lines = read_file(f"{self._proc}/{pid}/mountinfo").decode("utf-8", "replace").splitlines()
        except OSError:
            return {}
        found = {}
        for line in lines:
            # proc(5): id, parent, device, root, mount point, options, optional fields up to "-", type.
            before, _, after = line.partition(" - ")
            fields, kind = before.split(" "), after.split(" ", 1)[0]
            if len(fields) > 4 and fields[0].isdigit():
                found[int(fields[0])] = Mount(clean_text(masked_text(fields[4].replace("\\040", " "))), kind)
        return found
