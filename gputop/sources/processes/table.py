"""Who is whose child, over all of /proc, kept current cheaply. Knows neither GPUs nor loaders.

One listing of /proc names the processes; only new ones, those whose parent has gone, and young ones that were
new at the last look, are read. (Reading every ``stat`` costs 8 µs a process: it would be 40 ms on a node of 5000.)
Walking ``task/*/children`` instead would miss no less and costs a read for each *thread* of each process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from gputop.sources.procfs import Stat, parse_stat, read_small

# A pid reused between two looks would keep its old parent for ever; a full pass corrects that.
_FULL_PASS_EVERY = 20
_SETTLED_AFTER = 10 * os.sysconf("SC_CLK_TCK")
"""Clock ticks between the starts of a process and of the youngest one, after which it has its name and executable."""


class ProcessTable:
    """The processes of a /proc by pid. ``refresh`` is called whenever new processes are to be found."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._entries: dict[int, Stat] = {}
        self._young: set[int] = set()
        self._index: dict[int, list[int]] | None = None
        self._passes = 0

    def refresh(self) -> bool:
        """Bring the table up to date. Processes that vanish meanwhile, or are hidden, are left out.

        False where there was nothing to read: then it is the same as before.
        """
        try:
            present = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        except OSError:
            present = set()
        known = self._entries
        new = present - known.keys()
        gone = known.keys() - present
        again = self._young & present
        if self._passes % _FULL_PASS_EVERY == 0:
            again |= present
        elif gone:
            again |= {pid for pid, entry in known.items() if entry.ppid in gone}
        self._passes += 1
        for pid in gone:
            del known[pid]
        for pid in new | again:
            self._read(pid)
        # A name and an executable settle after birth: what was new and is young is read once more.
        self._young = set()
        if new:
            settled = max((entry.starttime for entry in known.values()), default=0) - _SETTLED_AFTER
            self._young = {pid for pid in new & known.keys() if known[pid].starttime > settled}
        if gone:
            self._index = None
        return bool(new or gone or again)

    def _read(self, pid: int) -> None:
        try:
            entry = parse_stat(read_small(f"{self._proc}/{pid}/stat"))
        except OSError:
            entry = None
        old = self._entries.get(pid)
        if entry is None:
            self._entries.pop(pid, None)
        else:
            self._entries[pid] = entry
        if entry is None or old is None or old.ppid != entry.ppid:
            self._index = None

    def get(self, pid: int) -> Stat | None:
        """The process as last read, or None."""
        return self._entries.get(pid)

    def read_again(self, pid: int) -> Stat | None:
        """The process read now, or None when it is gone."""
        self._read(pid)
        return self._entries.get(pid)

    def children(self, pid: int) -> list[int]:
        """Pids of the children, as of the last look at each."""
        if self._index is None:
            self._index = {}
            for child, entry in self._entries.items():
                self._index.setdefault(entry.ppid, []).append(child)
        return self._index.get(pid, [])

    def items(self) -> Iterator[tuple[int, Stat]]:
        """All processes."""
        return iter(self._entries.items())
