"""Which GPUs are this job's: those on which a process of this process's control group holds a context."""

from __future__ import annotations

import os

from gputop.model.snapshot import ProcessSample, Snapshot
from gputop.session.own_gpus import OwnGpus
from gputop.sources.cgroup import cgroup_text

MOST_KNOWN = 4096
FOREIGN_FRAMES = 2
"""Frames in which GPU processes were seen, and none that this PID namespace knows, until all GPUs are taken: a
container is shown the driver's pids, which are another namespace's, and only the GPUs that were given to it."""


class JobGpus:
    """Cuts snapshots down to the GPUs of this process's job, or with ``alone`` to its own."""

    def __init__(self, *, alone: bool = False, proc: str = "/proc") -> None:
        self._proc, self._alone = proc, alone
        self._pid = os.getpid()
        self._own = self._identity(self._pid)
        self._known: dict[int, bool] = {}
        self._gpus = OwnGpus(self._is_member, self.is_member)
        self._foreign = 0

    def take(self, snapshot: Snapshot) -> list[Snapshot]:
        """The snapshots to use: none until the job uses a GPU."""
        if not self._gpus.any and self._foreign < FOREIGN_FRAMES:
            users = [p for p in snapshot.processes if p.role == "gpu"]
            self._foreign += bool(users) and all(p.starttime is None for p in users)
        return [snapshot] if self._foreign >= FOREIGN_FRAMES else self._gpus.take(snapshot)

    def is_member(self, pid: int) -> bool:
        """Whether a process belongs to this job."""
        if pid == self._pid:
            return True
        if self._alone or self._own is None:
            return False
        known = self._known.get(pid)
        if known is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            known = self._known[pid] = self._identity(pid) == self._own
        return known

    def _is_member(self, process: ProcessSample) -> bool:
        return process.starttime is not None and self.is_member(process.pid)

    def _identity(self, pid: int) -> tuple[str, int] | None:
        """Control group and user: without control groups all processes would share one."""
        try:
            return cgroup_text(f"{self._proc}/{pid}"), os.stat(f"{self._proc}/{pid}").st_uid
        except OSError:
            return None
