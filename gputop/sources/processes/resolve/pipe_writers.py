"""Processes that write to pipes, by /proc/PID/io.

``wchar`` counts bytes given to write(2), ``write_bytes`` those written to a disk, in whole pages. The difference went
to pipes, terminals or file systems without a disk; it may be too low. ``send`` counts in neither.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from gputop.sources.procfs import read_small

WROTE_S = 60.0
"""A process counts as a writer of its pipes for this long after its last write: a batch may take that long [judged]."""
COUNTED_AGAIN_S = 2.0
MOST_KNOWN = 4096


class _Written(Struct):
    """Bytes that a process wrote to anything but disks, and times of the count and of its last growth."""

    counted_at: float
    elsewhere: int = 0
    grown_at: float = float("-inf")


class PipeWriters:
    """Finds processes that lately wrote to pipes."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._written: dict[int, _Written] = {}

    def writers(self, now: float, pids: Iterable[int]) -> tuple[int, ...]:
        """Return the processes that wrote within the last minute.

        If there are none, return those that ever did. ``now`` is monotonic s.
        """
        written = {pid: self._count(now, pid) for pid in pids}
        lately = tuple(pid for pid, count in written.items() if now - count.grown_at <= WROTE_S)
        return lately or tuple(pid for pid, count in written.items() if count.elsewhere > 0)

    def forget(self, pid: int) -> None:
        """Forget an exited process."""
        self._written.pop(pid, None)

    def _count(self, now: float, pid: int) -> _Written:
        """Return a process's counters; zero if they are not readable."""
        before = self._written.get(pid)
        if before is not None and 0.0 <= now - before.counted_at < COUNTED_AGAIN_S:
            return before
        written = _Written(now)
        try:
            fields = read_small(f"{self._proc}/{pid}/io").split()
            written.elsewhere = int(fields[3]) - int(fields[11])
            if before is not None:
                written.grown_at = now if written.elsewhere > before.elsewhere else before.grown_at
        except (OSError, ValueError, IndexError):
            pass
        if len(self._written) >= MOST_KNOWN:
            self._written.clear()
        self._written[pid] = written
        return written
