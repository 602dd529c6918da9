"""Time shares of loaders, helpers and threads of each GPU process.

Expensive reads happen only while the GPU waits: main threads and workers are sampled closely and followed to their wait
targets, threads are read if no process explains the waiting, and sockets are read if only received bytes can prove a
fetch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager

from msgspec.structs import replace

from gputop.sources.processes.count.member import Member
from gputop.sources.processes.count.process_tracker import FETCHED_S, ProcessTracker
from gputop.sources.processes.count.socket_evidence import add_socket_evidence
from gputop.sources.processes.count.wait_sampler import SamplingPlan, WaitingGpus, WaitSampler
from gputop.sources.processes.count.wait_shares import TimeShares, looks_of, main_waits, targets_of
from gputop.sources.processes.look.wait_observation import INSIDE, Job
from gputop.sources.processes.look.wait_state import WaitClassifier
from gputop.sources.processes.resolve.open_files import HeldInodesCache
from gputop.sources.processes.resolve.related_processes import HeldBy, OtherEnd
from gputop.sources.processes.resolve.socket_activity import SocketReader
from gputop.sources.processes.resolve.socket_tables import PeerLookup
from gputop.sources.processes.resolve.wait_target import WaitResolver
from gputop.sources.processes.tree.process_table import ProcessTable
from gputop.sources.processes.tree.process_tree import ProcessPlace

EXPLAINS = 0.6
"""A process with at least this useful share needs no other explanation."""
MAIN_EXPLAINS = 0.8
"""Useful share of the idle time from which a main thread needs no other explanation: it may sleep while it waits for
the GPU."""
SETTLES_S = 3.5
UNSEEN_SETTLES_S = 15.0
"""Settling time, in seconds, if threads that may explain a wait were not read yet."""
JOBS_AGAIN_S = 3.0
"""Interval between updates of the jobs' processes."""
LEADS_OUT = ("network", "file", "socket")
"""Kinds of wait targets that are reported for a worker; those within the job are already part of its shares."""


def _job(root: Member, members: Collection[Member]) -> Job:
    """Return the processes that may feed a GPU process.

    They are all processes of its tree and those related to it; the loaders are marked.
    """
    kin = [member for member in members if member.place.root == root.pid and member is not root]
    loaders = frozenset(member.pid for member in kin if member.role == "loader")
    torch = frozenset(
        member.pid for member in kin if member.pid in loaders and member.place.rule == "R1"
    )
    tids, backward = (
        ((), ()) if root.threads is None else (root.threads.feeder_tids, root.threads.backward_tids)
    )
    absent = (
        ""
        if root.rank is None
        else root.rank.missing(m.rank for m in members if m.rank is not None)
    )
    has_threads = root.seen_threads is not None and root.seen_threads.ranks
    return Job(
        tuple(member.pid for member in kin),
        torch or loaders,
        tuple(tids),
        rank=root.rank,
        absent=absent,
        torch=torch,
        backward=tuple(backward),
        is_rank=has_threads or root.rank is not None,
    )


def _jobs(followed: Iterable[Member], members: Mapping[int, Member]) -> dict[int, Job]:
    """Return, for each process, its possible wait targets."""
    jobs: dict[int, Job] = {}
    for member in followed:
        root = members.get(member.place.root or 0)
        if root is None:
            continue
        if root.pid not in jobs:
            jobs[root.pid] = _job(root, members.values())
        if member is not root:
            jobs[member.pid] = Job((root.pid, *jobs[root.pid].pids), root=root.pid)
    return jobs


class ShareCollector:
    """Sets the time shares of all processes of the GPUs' trees.

    Called from the thread that reads processes.
    """

    def __init__(self, proc: str) -> None:
        self._classifier = WaitClassifier(proc)
        self._files = HeldInodesCache(proc)
        self._peers = PeerLookup()
        self._sockets = SocketReader(proc, self._peers)
        self._resolver = WaitResolver(proc, self._classifier, self._files, self._peers)
        self.sampler = WaitSampler(proc, self._classifier, self._resolver, self._sockets.read)
        self._gpus = WaitingGpus()
        self._plan = SamplingPlan()
        self._jobs_at = float("-inf")

    def read(
        self,
        now: float,
        members: Mapping[int, Member],
        util: Mapping[int, float | None],
        mains: Set[int],
    ) -> None:
        """Set the shares of each process that was read.

        ``util`` is each GPU's utilisation in percent, by index. ``mains`` are the GPU processes that verdicts use:
        their main threads are sampled most, if their GPUs wait. All other GPU processes have no shares.
        """
        self._gpus.observe(now, util)
        present = [member for member in members.values() if member.reading is not None]
        waiting = {
            m.pid for m in present if m.is_gpu and self._gpus.waits(m.place.gpu or 0, unknown=True)
        }
        close = [
            m
            for m in present
            if (m.place.root or m.pid) in waiting and (m.pid in mains or not m.is_gpu)
        ]
        with self.sampler.lock:
            self._files.begin()
            observations = self.sampler.take()
            for member in present:
                member.take(now, observations.get(member.pid, []))
            unclear = self._unexplained(close)
            for member in close:
                if member.is_gpu:
                    member.shares = (
                        member.thread_shares() if member in unclear else TimeShares(unread=True)
                    )
            add_socket_evidence(self._sockets, now, unclear, members)
            for member in close:
                _complete(now, member)
        for member in present:
            if member.is_gpu and not (member.pid in waiting and member.pid in mains):
                member.shares = None
        self._plan = self._sampling_plan(now, present, close, unclear, members)
        self.sampler.plan(self._plan)

    def close(self) -> None:
        """End the sampling thread."""
        self.sampler.close()
        self._classifier.close()

    def waits(self, gpu: int | None) -> bool:
        """Return whether a GPU was known to wait at the last reading."""
        return gpu is not None and self._gpus.waits(gpu, unknown=False)

    def services(
        self, now: float, table: ProcessTable, placed: Mapping[int, ProcessPlace]
    ) -> dict[int, ProcessPlace]:
        """Return places of computing local services with waiting jobs."""
        with self.sampler.lock:
            return self._resolver.services.find(now, table, placed, self._peers)

    @contextmanager
    def lookups(self, now: float) -> Iterator[tuple[HeldBy, OtherEnd]]:
        """Yield lookups of open inodes and socket peers for discovery.

        The first lookup takes a pid, the second the inode of a socket.
        """
        with self.sampler.lock:
            yield (
                lambda pid: self._files.held_by(now, pid),
                lambda inode: self._peers.peer_of(now, inode),
            )

    def forget(self, member: Member) -> None:
        """Forget an exited process: its pid may be reused soon."""
        member.waits = ProcessTracker()
        with self.sampler.lock:
            self._resolver.forget(member.pid)
            self._sockets.forget(member.pid)
            self.sampler.forget(member.pid)

    def _unexplained(self, close: Collection[Member]) -> list[Member]:
        """Return processes whose GPU's waiting is explained by neither a loader nor the main thread."""
        explained = set()
        for member in close:
            waits, busy = member.waits, self._gpus.busy(member.place.gpu or 0)
            # A main thread that works during most GPU idle time waits for no other process.
            if (
                member.role == "loader"
                and waits.useful >= EXPLAINS
                and waits.counts.evidence != "thread"
            ) or (member.is_gpu and waits.own_useful - busy >= MAIN_EXPLAINS * (1.0 - busy)):
                explained.add(member.place.root)
        return [member for member in close if member.place.root not in explained]

    def _sampling_plan(
        self,
        now: float,
        present: Collection[Member],
        close: Collection[Member],
        unclear: Collection[Member],
        members: Mapping[int, Member],
    ) -> SamplingPlan:
        """Return which processes are sampled until the next reading."""
        followed = {member.pid: member for member in close}
        jobs, independent = self._plan.jobs, self._plan.independent
        if not followed:
            jobs = {}
        elif not 0.0 <= now - self._jobs_at < JOBS_AGAIN_S or not jobs.keys() >= followed.keys():
            self._jobs_at, jobs = now, _jobs(close, members)
            independent = {
                pid
                for pid, member in members.items()
                if member.role == "loader" or not member.place.may_feed
            }
        # A process that sleeps on is still in the same wait.
        background = [
            m
            for m in present
            if m.pid not in followed and not (m.watched.main_slept and m.waits.latest)
        ]
        return SamplingPlan(
            [member.pid for member in close if member.is_gpu],
            [member.pid for member in close if not member.is_gpu],
            [member.pid for member in background if not member.is_gpu],
            {
                member.pid
                for member in unclear
                if member.is_gpu or (member.role == "loader" and member.may_wait_inside)
            },
            independent,
            jobs,
        )


def _complete(now: float, member: Member) -> None:
    """Add wait targets and a main thread's waits to the shares of a process.

    The shares are unread until the first samples are complete: pipes, threads and sockets may still explain the waiting
    until then.
    """
    waits, reading, shares = member.waits, member.reading, member.shares or TimeShares()
    if waits.close_at is None:
        waits.close_at = now
    if waits.latest is not None and waits.latest.state.mount is not None:
        shares = replace(shares, mount=waits.latest.state.mount)
    watched_s = now - waits.close_at
    if watched_s < UNSEEN_SETTLES_S and shares.evidence is None and shares.shares.useful < 0.5:
        unseen = (
            not waits.counts.inner
            and waits.latest is not None
            and waits.latest.state.kind in INSIDE
        )
        if (watched_s < SETTLES_S or unseen) and not shares.unread:
            shares = replace(shares, unread=True)
    fresh = waits.fresh
    if not member.is_gpu:
        # Unchanged shares keep their sample.
        if fresh and (targets := targets_of(fresh, LEADS_OUT)):
            shares = replace(shares, waits_for=targets)
    elif reading is not None and reading.main_run_pct is not None:
        rest = max(0.0, 1.0 - (reading.main_run_pct + (reading.main_wait_pct or 0.0)) / 100.0)
        main, saves = main_waits(waits.counts, rest, fetches=now - waits.fetched_at <= FETCHED_S)
        shares = replace(shares, main=main, saves=saves)
        if fresh:
            targets = targets_of(fresh, in_line=waits.has_line(now))
            shares = replace(shares, main_looks=looks_of(fresh), waits_for=targets)
    member.shares = shares
