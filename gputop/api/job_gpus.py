"""GPUs of this job: those on which a process of this process's control group holds a context."""

from __future__ import annotations

import os

from gputop.model.snapshot import Snapshot
from gputop.session.job_gpus import OwnGpus
from gputop.sources.cgroup import cgroup_text
from gputop.sources.procfs import relatives_of

FOREIGN_FRAMES = 2
"""Frames in which GPU processes were seen, and none that this PID namespace knows, until all GPUs are taken: a
container is shown the driver's pids, which are another namespace's, and only the GPUs that were given to it."""


class JobGpus:
    """Cuts snapshots down to the GPUs of this process's job.

    Those are the GPUs on which a process of the same control group and user holds a context; with ``alone`` only this
    process counts.
    """

    def __init__(self, *, alone: bool = False, proc: str = "/proc") -> None:
        self._proc, self._alone = proc, alone
        self._pid = os.getpid()
        self._own_identity = self._identity(self._pid)
        self._is_ours: dict[int, tuple[int, bool]] = {}
        """The start of each process that was asked about, and whether it belongs to the job, by its pid."""
        self._gpus = OwnGpus(
            lambda p: p.starttime is not None and self.is_member(p.pid), self.is_member
        )
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
        if self._alone or self._own_identity is None:
            return False
        relatives, known = relatives_of(pid, self._proc), self._is_ours.get(pid)
        if relatives is None:
            return known is not None and known[1]
        if known is None or relatives.starttime != known[0]:
            known = self._is_ours[pid] = (
                relatives.starttime,
                self._identity(pid) == self._own_identity,
            )
        return known[1]

    def _identity(self, pid: int) -> tuple[str, int] | None:
        """Control group and user: without control groups all processes would share one."""
        try:
            return cgroup_text(f"{self._proc}/{pid}"), os.stat(f"{self._proc}/{pid}").st_uid
        except OSError:
            return None
