"""Whose sockets are read, and when.

The socket table is dumped every few seconds at most, and open files are read in turns: only of processes whose waiting
nothing else explains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from gputop.sources.processes.count.job_process import JobProcess
from gputop.sources.processes.count.time_shares import LEAST_FETCH, SocketEvidence
from gputop.sources.processes.resolve.socket_activity import (
    SocketActivity,
    read_activity,
    sockets_of,
)
from gputop.sources.processes.resolve.socket_tables import DUMP_S, PeerLookup
from gputop.sources.processes.resolve.tracked_process import TrackedProcesses

FIRST_DUMP_S = 1.0
FIRST_LOOKS = 6
"""Number of readings in quick succession at first, so that a verdict need not wait for them."""
KEPT_S = 30.0
"""What was read of a process that is not requested any more counts for so long."""
MOST_ASKED = 16
"""Limit of processes whose open files are read for one dump."""
MOST_LOADERS_ASKED = 4
"""Limit of loaders of one GPU process whose sockets are read."""
LEAST_BARE = 2
"""Readings without any socket after which a GPU process is taken to be served by its parent."""


class SocketReader:
    """Reads the sockets of requested processes.

    ``read_due`` is cheap while no dump is due. Used under the lock of the wait sampler.
    """

    def __init__(self, proc: str, tracked: TrackedProcesses, peers: PeerLookup) -> None:
        self._proc = proc
        self._tracked = tracked
        self._peers = peers
        self._dumped_at = float("-inf")
        self._roots: Mapping[int, int] = {}

    def request(self, now: float, roots: Mapping[int, int]) -> None:
        """Request processes, each with its GPU process, whose sockets its workers inherit."""
        for pid in roots.keys() - self._roots.keys():
            if self.activity(now, pid) is None:
                self._tracked.find(now, pid).sockets = None
        self._roots = roots

    def read_due(self, now: float) -> None:
        """Update some of the requested processes, if a dump is due."""
        roots = self._roots
        if not roots:
            return
        activities = {pid: self.activity(now, pid) for pid in roots}
        pause_s = FIRST_DUMP_S if any(map(_is_new, activities.values())) else DUMP_S
        if 0.0 <= now - self._dumped_at < 0.95 * pause_s:
            return
        self._dumped_at = now
        tables = self._peers.dump(now)
        inherited: dict[int, frozenset[int]] = {}
        longest_ago = sorted(roots, key=lambda pid: _read_at(activities[pid]))
        for pid in longest_ago[:MOST_ASKED]:
            root = roots[pid]
            if root != pid and root not in inherited:
                inherited[root] = sockets_of(self._proc, root)
            self._tracked.find(now, pid).sockets = read_activity(
                now, self._proc, pid, inherited.get(root, frozenset()), tables, activities[pid]
            )

    def activity(self, now: float, pid: int) -> SocketActivity | None:
        """Return the state of a process's sockets; None before the first reading."""
        process = self._tracked.known(pid)
        activity = None if process is None else process.sockets
        if activity is None or pid in self._roots:
            return activity
        return activity if now - activity.t < KEPT_S else None

    def bare_roots(self, now: float, least: int) -> set[int]:
        """Return GPU processes whose sampled loaders have no TCP socket.

        At least so many loaders were sampled; the others are assumed to have none either.
        """
        sampled: dict[int, list[bool]] = {}
        for pid, root in self._roots.items():
            known = self.activity(now, pid)
            if pid != root and known is not None:
                sampled.setdefault(root, []).append(known.is_bare)
        return {root for root, bare in sampled.items() if len(bare) >= least and all(bare)}


def _is_new(activity: SocketActivity | None) -> bool:
    return activity is None or activity.readings < FIRST_LOOKS


def _read_at(activity: SocketActivity | None) -> float:
    return -1.0 if activity is None else activity.t


class _Candidate(Struct, frozen=True, order=True):
    """A loader whose sockets may be read: already read ones first, those with sockets before those without."""

    is_bare: bool
    is_unread: bool
    pid: int


def sockets_to_read(
    reader: SocketReader, now: float, unclear: Sequence[JobProcess]
) -> dict[int, int]:
    """Map each process to the process whose sockets are read.

    The keys are GPU processes, and a few of each one's loaders that may wait for a socket, already read ones first.
    The value is an awaited child, if the process waits for one that polls.
    """
    readers: dict[int, int] = {}
    loaders: dict[int | None, list[_Candidate]] = {}
    for process in unclear:
        child = _polling_child(process)
        asked = child or process.pid
        if process.is_gpu:
            readers[process.pid] = asked
        elif (process.role == "loader" or child is not None) and _may_fetch(process):
            readers[process.pid] = asked
            known = reader.activity(now, asked)
            candidate = _Candidate(known is not None and known.is_bare, known is None, process.pid)
            loaders.setdefault(process.place.root, []).append(candidate)
    for several in loaders.values():
        for candidate in sorted(several)[MOST_LOADERS_ASKED:]:
            del readers[candidate.pid]
    return readers


def _polling_child(process: JobProcess) -> int | None:
    """Return the child for which a process waits, if that child polls."""
    target = None if process.waits.latest is None else process.waits.latest.target
    if target is None or target.activity is None:
        return None
    return target.active_pid if target.activity.kind in ("queue", "socket") else None


def _may_fetch(process: JobProcess) -> bool:
    """Return whether a process spends so much time in polls or sockets that it may fetch."""
    observed = process.observations_now
    shares = observed.by_activity.shares
    outside = shares.poll + shares.network
    if outside >= LEAST_FETCH:
        return True
    if observed.counts.inner_share("queue", "socket") >= LEAST_FETCH:
        return True
    return outside + observed.in_socket(is_main=False) >= LEAST_FETCH


def request_sockets(
    reader: SocketReader,
    now: float,
    unclear: Sequence[JobProcess],
    members: Mapping[int, JobProcess],
) -> dict[int, SocketEvidence]:
    """Return what is known of each process's sockets, by pid, and request the next readings."""
    readers = sockets_to_read(reader, now, unclear)
    roots: dict[int, int] = {}
    for process in unclear:
        if process.pid in readers:
            roots[readers[process.pid]] = process.place.root or process.pid
    bare = reader.bare_roots(now, MOST_LOADERS_ASKED - 1)
    evidence: dict[int, SocketEvidence] = {}
    for process in unclear:
        activity = reader.activity(now, readers.get(process.pid, process.pid))
        is_served = False
        above = process.place.stat.ppid
        if process.is_gpu and activity is not None and activity.bare and above in members:
            # A GPU process without a socket receives its work from a parent that may have one.
            roots.setdefault(above, above)
            is_served = activity.bare >= LEAST_BARE and _takes_requests(reader.activity(now, above))
        evidence[process.pid] = SocketEvidence(
            activity=activity,
            is_asked=process.pid in readers,
            is_loader=process.role == "loader",
            are_siblings_bare=process.place.root in bare,
            is_served_by_parent=is_served,
        )
    reader.request(now, roots)
    return evidence


def _takes_requests(parent: SocketActivity | None) -> bool:
    return parent is not None and parent.listens and not parent.fetches
