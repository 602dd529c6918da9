"""How many cores the processes of a tree may use, and how much their cgroups throttle them."""

from __future__ import annotations

from collections.abc import Iterable

from gputop.sources.cgroup import CgroupFolders, Throttling, cpu_quota
from gputop.sources.processes.count.job_process import JobProcess
from gputop.sources.processes.tree.process_facts import allowed_cores, allowed_cpus

_THROTTLE_S = 2.0
_MASKS_AGAIN_S = 10.0


class CoreLimits:
    """Reads throttling every two seconds, and CPU masks and quotas every ten."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._throttling: dict[str, Throttling] = {}
        self._throttled_at: float | None = None
        self._masked_at: float | None = None

    def set_members(self, members: Iterable[JobProcess]) -> None:
        """Give each process the throttling of its cgroup, which processes of one cgroup share."""
        before, self._throttling = self._throttling, {}
        for member in members:
            folders = member.facts.folders
            for group in folders.cpu[:1]:
                shared = self._throttling.get(group) or before.get(group)
                if shared is None:
                    shared = Throttling(folders)
                    shared.read()
                self._throttling[group] = member.throttling = shared

    def note_new_process(self) -> None:
        """Note that a process is new: masks are read at once."""
        self._masked_at = None

    def read_throttling(self, now: float) -> None:
        """Read the throttling of all cgroups, if due; ``now`` is monotonic s."""
        if self._throttled_at is not None and 0.0 <= now - self._throttled_at < _THROTTLE_S:
            return
        self._throttled_at = now
        for throttling in self._throttling.values():
            throttling.read()

    def read_masks(self, now: float, members: Iterable[JobProcess]) -> None:
        """Read how many cores GPU processes, and their loaders together, may use, if due."""
        if self._masked_at is not None and 0.0 <= now - self._masked_at < _MASKS_AGAIN_S:
            return
        self._masked_at = now
        quotas: dict[CgroupFolders, float | None] = {}
        loaders: list[JobProcess] = []
        for member in members:
            if member.is_gpu:
                folders = member.facts.folders
                if folders not in quotas:
                    quotas[folders] = cpu_quota(folders)
                member.allowed_cores = allowed_cores(self._proc, member.pid, quotas[folders])
            elif member.role == "loader":
                loaders.append(member)
        self._read_masks_of_loaders(loaders)

    def _read_masks_of_loaders(self, loaders: Iterable[JobProcess]) -> None:
        """Read the cores that the loaders of one GPU process may use together."""
        cpus_of_root: dict[int | None, set[int]] = {}
        for loader in loaders:
            cpus = cpus_of_root.setdefault(loader.place.root, set())
            cpus.update(allowed_cpus(self._proc, loader.pid) or ())
        for loader in loaders:
            loader.allowed_cores = float(len(cpus_of_root[loader.place.root])) or None
