"""Which batch job or container each process runs in, as one text that those of the same have in common.

A container starts its programs in sessions of their own (a supervisor, `docker exec`), so a helper and the GPU process
that it feeds often share nothing else that can be seen.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from gputop.sources.cgroup import cgroup_text
from gputop.sources.processes.absence import has_own_pids
from gputop.sources.processes.job import JobIdentity, job_identity
from gputop.sources.procfs import Stat

MOST_READ = 512
"""Files that one look at the machine may read for this; further processes wait their turn."""
_NOTHING = JobIdentity()


class Groups:
    """Remembers what it has read, by pid and start time."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._known: dict[int, tuple[int, str | None]] = {}
        self._left = MOST_READ
        self._own = os.getpid()
        self._inside = has_own_pids(proc)

    def begin(self, present: Collection[int]) -> None:
        """Begin a new look at the machine: forget processes that are gone."""
        self._left = MOST_READ
        self._known = {pid: known for pid, known in self._known.items() if pid in present}

    def of(self, pid: int, stat: Stat) -> str | None:
        """The job and container of a process; None where it is in neither, or not known yet."""
        known = self._known.get(pid)
        if known is None or known[0] != stat.starttime:
            if self._left <= 0 or pid == self._own:
                return None
            self._left -= 1
            known = self._known[pid] = stat.starttime, self._read(pid)
        return known[1]

    def _read(self, pid: int) -> str | None:
        try:
            found = job_identity(cgroup_text(f"{self._proc}/{pid}"))
        except OSError:
            return None
        if found != _NOTHING:
            return f"{found.job} {found.container}"
        # Within a container its own group has no name; all processes visible there belong to it.
        return "this container" if self._inside else None
