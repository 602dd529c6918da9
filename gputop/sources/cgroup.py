"""Reads a cgroup's limits: CPU quota, memory, throttling (v1, v2, hybrid).

Limits hold for all descendants, so each question is asked of the process's group and of every ancestor.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from gputop.sources.procfs import number_of, read_file, read_small

# cgroup v1 writes "no limit" as the largest page-aligned 63-bit number.
_UNLIMITED = 1 << 62


class CgroupFolders(Struct, frozen=True):
    """Folders of one process's cgroups, its own first, the root last.

    Empty where not visible from here.
    """

    cpu: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()


class MemoryLimit(Struct, frozen=True):
    """Limit and use of a cgroup in bytes, without reclaimable file cache."""

    limit_bytes: int
    used_bytes: int | None


def cgroup_text(process: str) -> str:
    """Return /proc/PID/cgroup from a process's /proc folder. Raises OSError."""
    return read_file(f"{process}/cgroup").decode("utf-8", "replace")


def cgroup_folders(text: str, sys: str = "/sys") -> CgroupFolders:
    """Find the folders of the cgroups that /proc/PID/cgroup names."""
    paths: dict[str, str] = {}
    mounts: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        for controller in controllers.split(","):
            paths[controller] = path
            mounts[controller] = controllers
    root = f"{sys}/fs/cgroup"

    def folders(controller: str) -> tuple[str, ...]:
        if controller in paths:
            for mount in (f"{root}/{mounts[controller]}", f"{root}/{controller}"):
                ancestors = _ancestors(mount, paths[controller])
                if ancestors:
                    return ancestors
            return ()
        if "" in paths:
            return _ancestors(root, paths[""]) or _ancestors(f"{root}/unified", paths[""])
        return ()

    return CgroupFolders(folders("cpu"), folders("memory"))


def _ancestors(mount: str, path: str) -> tuple[str, ...]:
    parts = [part for part in path.split("/") if part]
    if not _is_cgroup(mount):
        return ()
    # ".." is how the kernel writes a group outside of the reader's cgroup namespace.
    if ".." in parts:
        return ()
    leaf = "/".join([mount, *parts])
    if not _is_cgroup(leaf):
        # A container without a cgroup namespace: the path is the host's, the mount holds only the container's group.
        return (mount,)
    return tuple("/".join([mount, *parts[:depth]]) for depth in range(len(parts), -1, -1))


def _is_cgroup(folder: str) -> bool:
    try:
        read_small(f"{folder}/cgroup.procs")
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def _quota(folder: str) -> float | None:
    try:
        fields = read_small(f"{folder}/cpu.max").split()
        return int(fields[0]) / int(fields[1])
    except (OSError, ValueError, IndexError, ZeroDivisionError):
        quota = number_of(f"{folder}/cpu.cfs_quota_us")
        period = number_of(f"{folder}/cpu.cfs_period_us")
        return quota / period if quota is not None and quota > 0 and period else None


def cpu_quota(folders: CgroupFolders) -> float | None:
    """Return the tightest CPU limit of all ancestors in cores, if any."""
    return min((quota for quota in map(_quota, folders.cpu) if quota is not None), default=None)


def memory_limit(folders: CgroupFolders) -> MemoryLimit | None:
    """Return the tightest memory limit of all ancestors, if any."""
    tightest_bytes, tightest_folder = _UNLIMITED, ""
    for folder in folders.memory:
        limit = number_of(f"{folder}/memory.max")
        if limit is None:
            limit = number_of(f"{folder}/memory.limit_in_bytes")
        if limit is not None and limit < tightest_bytes:
            tightest_bytes, tightest_folder = limit, folder
    if not tightest_folder:
        return None
    return MemoryLimit(tightest_bytes, _memory_used(tightest_folder))


def _memory_used(folder: str) -> int | None:
    """Return usage minus inactive file pages.

    This is the "working set" that container engines and Kubernetes count.
    """
    usage = number_of(f"{folder}/memory.current")
    cache = "inactive_file"
    if usage is None:
        usage, cache = number_of(f"{folder}/memory.usage_in_bytes"), "total_inactive_file"
    if usage is None:
        return None
    return max(0, usage - _keyed(f"{folder}/memory.stat").get(cache, 0))


def _keyed(path: str) -> dict[str, int]:
    try:
        lines = read_file(path).decode("ascii", "replace").splitlines()
    except OSError:
        return {}
    values: dict[str, int] = {}
    for line in lines:
        key, _, value = line.partition(" ")
        if value.isdigit():
            values[key] = int(value)
    return values


class _Periods(NamedTuple):
    """Scheduling periods of a limited cgroup so far, and how many were cut short."""

    all: int
    throttled: int

    def throttled_pct_since(self, before: _Periods) -> float:
        """Return the share of periods that was cut short since then, in percent.

        0 where no period passed: the limited group did not run.
        """
        passed = self.all - before.all
        if passed <= 0:
            return 0.0
        throttled = max(0, self.throttled - before.throttled)
        return min(100.0, 100.0 * throttled / passed)


class Throttling:
    """Measures how often CPU limits cut a cgroup's processes short."""

    def __init__(self, folders: CgroupFolders) -> None:
        self._folders = folders.cpu
        self._last: dict[str, _Periods] = {}
        self.throttled_pct: float | None = None
        self.reason: str | None = "needs two readings"

    def read(self) -> None:
        """Measure since the last call, in percent of the scheduling periods.

        The worst of all ancestors counts.
        """
        if not self._folders:
            self.throttled_pct, self.reason = None, "its cgroup is not visible from here"
            return
        counts: dict[str, _Periods] = {}
        for folder in self._folders:
            if _quota(folder) is not None:
                stat = _keyed(f"{folder}/cpu.stat")
                if "nr_periods" in stat and "nr_throttled" in stat:
                    counts[folder] = _Periods(stat["nr_periods"], stat["nr_throttled"])
        last, self._last = self._last, counts
        shares = [
            counts[folder].throttled_pct_since(last[folder]) for folder in counts if folder in last
        ]
        self.throttled_pct = max(shares, default=None)
        if not counts:
            self.reason = "no CPU limit"
        else:
            self.reason = None if shares else "needs two readings"
