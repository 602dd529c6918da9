"""Related feeders outside a GPU process's tree: actors, data servers, the launcher itself.

A shared session, batch job or container is not enough, or any other program of a terminal would be blamed: a pipe or a
socket must connect them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping

from gputop.model.feeders import BESIDE, why_words
from gputop.sources.cgroup import cgroup_text
from gputop.sources.processes.open_files import HeldInodes
from gputop.sources.processes.process_facts import JobIdentity, job_identity
from gputop.sources.processes.process_table import ProcessTable, has_own_pids
from gputop.sources.processes.process_tree import ProcessPlace
from gputop.sources.procfs import Stat

MOST_READ = 512
"""Limit of files that one discovery reads for groups; further processes wait their turn."""
_NOTHING = JobIdentity()


class CgroupCache:
    """Cache of jobs and containers, by pid and start time.

    A container starts its programs in sessions of their own (a supervisor, `docker exec`), so a helper and the GPU
    process that it feeds often share nothing else that is visible.
    """

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._group_of_pid: dict[int, tuple[int, str | None]] = {}
        self._reads_left = MOST_READ
        self._own_pid = os.getpid()
        self._inside = has_own_pids(proc)

    def begin(self, present: Collection[int]) -> None:
        """Begin a new discovery and forget exited processes."""
        self._reads_left = MOST_READ
        self._group_of_pid = {pid: group for pid, group in self._group_of_pid.items() if pid in present}

    def group_of(self, pid: int, stat: Stat) -> str | None:
        """Return the job and container of a process.

        None if it has neither, or was not read yet.
        """
        cached = self._group_of_pid.get(pid)
        if cached is None or cached[0] != stat.starttime:
            if self._reads_left <= 0 or pid == self._own_pid:
                return None
            self._reads_left -= 1
            cached = self._group_of_pid[pid] = stat.starttime, self._read(pid)
        return cached[1]

    def _read(self, pid: int) -> str | None:
        try:
            identity = job_identity(cgroup_text(f"{self._proc}/{pid}"))
        except OSError:
            return None
        if identity != _NOTHING:
            return f"{identity.job and identity.job.words} {identity.container and identity.container.words}"
        # Inside a container its own group has no name; all visible processes belong to it.
        return "this container" if self._inside else None


MOST_CANDIDATES = 24
"""Limit of processes beside one GPU process whose open files are read: those with most CPU time."""
HeldBy = Callable[[int], HeldInodes | None]
GroupOf = Callable[[int, Stat], str | None]
OtherEnd = Callable[[int], int | None]
"""The inode of the other end of a socket."""


def connected(feeder: HeldInodes, root: HeldInodes, peers: Collection[int]) -> bool:
    """Return whether data can pass from a feeder to a root.

    Their open pipes and sockets decide; ``peers`` are the other ends of the root's sockets.
    """
    pipes = feeder.writes & root.reads
    # Children of one parent share both ends of a queue; a pipeline connects stdout and stdin. A single end is no
    # evidence: multiprocessing leaves one with every child, to detect the parent's death.
    is_piped = pipes & feeder.reads - feeder.standard or pipes & feeder.standard & root.standard
    return bool(is_piped) or not feeder.sockets.isdisjoint(peers)


def find_related(
    table: ProcessTable,
    trees: Mapping[int, ProcessPlace],
    roots: Iterable[int],
    holds: HeldBy,
    other_end: OtherEnd,
    group_of: GroupOf = lambda pid, stat: None,
) -> dict[int, ProcessPlace]:
    """Return processes outside all trees that feed one of ``roots``.

    Each is connected to its root and shares a session, job or container with it. ``group_of`` returns a text that
    processes of one job or container share, and None for all others.
    """
    places: dict[int, ProcessPlace] = {}
    beside: dict[tuple[int, str | None], list[tuple[int, Stat]]] = {}
    for root in roots:
        place, mine = trees.get(root), holds(root)
        if place is None or mine is None or not (mine.reads or mine.sockets):
            continue
        session, group = place.stat.session, group_of(root, place.stat)
        # Ranks of one launcher have the same processes beside them.
        if (session, group) not in beside:
            beside[session, group] = _beside(table, trees, session, group, group_of)
        peers = {peer for inode in mine.sockets if (peer := other_end(inode)) is not None}
        for pid, stat in beside[session, group]:
            theirs = None if pid in places else holds(pid)
            if theirs is not None and connected(theirs, mine, peers):
                shared = "session" if stat.session == session else "job or container"
                why = why_words(BESIDE, f"same {shared}, connected by a pipe or a socket")
                places[pid] = ProcessPlace(stat, root, place.gpu, "helper", None, why, may_feed=True, rule=BESIDE)
    return places


def _beside(
    table: ProcessTable, trees: Mapping[int, ProcessPlace], session: int, group: str | None, group_of: GroupOf
) -> list[tuple[int, Stat]]:
    """Return processes of a session or group that are in no tree.

    Of very many, those with the most CPU time.
    """
    candidates = [
        (pid, stat)
        for pid, stat in table.items()
        if pid not in trees and (stat.session == session or (group is not None and group_of(pid, stat) == group))
    ]
    return sorted(candidates, key=lambda candidate: -candidate[1].cpu_ticks)[:MOST_CANDIDATES]
