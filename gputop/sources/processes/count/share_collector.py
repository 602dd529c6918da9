"""Time shares of loaders, helpers and threads of each GPU process.

Expensive reads happen only while the GPU waits: main threads and workers are sampled closely and followed to their wait
targets, threads are read if no process explains the waiting, and sockets are read if only received bytes can prove a
fetch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager

from gputop.sources.processes.count.job_process import JobProcess
from gputop.sources.processes.count.socket_reader import SocketReader, request_sockets
from gputop.sources.processes.count.time_shares import SocketEvidence, TimeShares, time_shares
from gputop.sources.processes.count.wait_counts import THREAD
from gputop.sources.processes.count.wait_sampler import SamplingPlan, WaitingGpus, WaitSampler
from gputop.sources.processes.look.wait_state import Job, WaitClassifier
from gputop.sources.processes.resolve.socket_tables import PeerLookup
from gputop.sources.processes.resolve.tracked_process import TrackedProcesses
from gputop.sources.processes.resolve.wait_target import WaitResolver
from gputop.sources.processes.tree.process_table import ProcessTable
from gputop.sources.processes.tree.process_tree import HeldBy, OtherEnd, ProcessPlace

EXPLAINS = 0.6
"""A process with at least this useful share needs no other explanation."""
MAIN_EXPLAINS = 0.8
"""Useful share of the idle time from which a main thread needs no other explanation: it may sleep while it waits for
the GPU."""
JOBS_AGAIN_S = 3.0
"""Interval between updates of the jobs' processes."""


def _job(root: JobProcess, members: Collection[JobProcess]) -> Job:
    """Return the processes that may feed a GPU process.

    They are all processes of its tree and those related to it; the loaders are marked.
    """
    kin = [member for member in members if member.place.root == root.pid and member is not root]
    loaders = [member for member in kin if member.role == "loader"]
    torch = frozenset(member.pid for member in loaders if member.place.rule == "R1")
    feeder_tids: Sequence[str] = ()
    backward_tids: Sequence[str] = ()
    if root.threads is not None:
        feeder_tids = tuple(root.threads.feeder_tids)
        backward_tids = tuple(root.threads.backward_tids)
    absent = ""
    if root.rank is not None:
        absent = root.rank.missing(m.rank for m in members if m.rank is not None)
    has_rank_threads = root.seen_threads is not None and root.seen_threads.ranks
    return Job(
        pids=tuple(member.pid for member in kin),
        loaders=torch or frozenset(member.pid for member in loaders),
        threads=feeder_tids,
        rank=root.rank,
        is_rank=has_rank_threads or root.rank is not None,
        torch=torch,
        absent=absent,
        backward=backward_tids,
    )


def _jobs(followed: Iterable[JobProcess], members: Mapping[int, JobProcess]) -> dict[int, Job]:
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
        self.tracked = TrackedProcesses(proc)
        self._peers = PeerLookup()
        self._sockets = SocketReader(proc, self.tracked, self._peers)
        self._resolver = WaitResolver(proc, self._classifier, self.tracked, self._peers)
        self.sampler = WaitSampler(
            self.tracked, self._classifier, self._resolver, self._sockets.read_due
        )
        self._gpus = WaitingGpus()
        self._plan = SamplingPlan()
        self._jobs_at = float("-inf")

    def set_shares(
        self,
        now: float,
        members: Mapping[int, JobProcess],
        util: Mapping[int, float | None],
        mains: Set[int],
    ) -> None:
        """Set the shares of each process that was read, and plan the samples until the next reading.

        ``util`` is each GPU's utilisation in percent, by index. ``mains`` are the GPU processes that verdicts use:
        their main threads are sampled most, if their GPUs wait. All other GPU processes have no shares.
        """
        self._gpus.add_util(now, util)
        present = [member for member in members.values() if member.reading is not None]
        close = self._close(present, mains)
        close_pids = {member.pid for member in close}
        with self.sampler.lock:
            self.tracked.begin_round(now)
            for member in present:
                member.note_reading(now)
            unclear = self._unexplained(close)
            sockets = request_sockets(self._sockets, now, unclear, members)
        for member in present:
            if member.pid in close_pids:
                member.shares = _close_shares(now, member, sockets.get(member.pid))
            elif member.is_gpu:
                member.shares = None
            else:
                member.shares = member.observations_now.by_activity
        self._plan = self._sampling_plan(now, present, close, unclear, members)
        self.sampler.set_plan(self._plan)

    def _close(self, present: Collection[JobProcess], mains: Set[int]) -> list[JobProcess]:
        """Return the processes of waiting GPUs, which are sampled closely."""
        waiting = set[int]()
        for member in present:
            if member.is_gpu and self._gpus.waits(member.place.gpu or 0, unknown=True):
                waiting.add(member.pid)
        close: list[JobProcess] = []
        for member in present:
            is_waiting = (member.place.root or member.pid) in waiting
            if is_waiting and (member.pid in mains or not member.is_gpu):
                close.append(member)
        return close

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
            return self._resolver.services.computing(now, table, placed, self._peers)

    @contextmanager
    def lookups(self, now: float) -> Iterator[tuple[HeldBy, OtherEnd]]:
        """Yield lookups of open inodes and socket peers for discovery.

        The first lookup takes a pid, the second the inode of a socket.
        """
        with self.sampler.lock:
            yield (
                lambda pid: self.tracked.held_by(now, pid),
                lambda inode: self._peers.peer_of(now, inode),
            )

    def forget(self, pid: int) -> None:
        """Forget an exited process: its pid may be reused soon."""
        with self.sampler.lock:
            self.tracked.forget(pid)

    def set_members(self, members: Mapping[int, JobProcess]) -> None:
        """Set the processes of the trees; those that left them are forgotten."""
        with self.sampler.lock:
            self.tracked.set_members(members)

    def _unexplained(self, close: Collection[JobProcess]) -> list[JobProcess]:
        """Return processes whose GPU's waiting is explained by neither a loader nor the main thread."""
        explained = {member.place.root for member in close if self._explains(member)}
        return [member for member in close if member.place.root not in explained]

    def _explains(self, member: JobProcess) -> bool:
        """Return whether a process does so much that its GPU's waiting needs no other explanation."""
        if member.role == "loader":
            by_itself = member.waits.counts.evidence != THREAD
            if by_itself and member.means.useful >= EXPLAINS:
                return True
        if not member.is_gpu:
            return False
        # A main thread that works during most GPU idle time waits for no other process.
        busy = self._gpus.busy(member.place.gpu or 0)
        return member.means.own - busy >= MAIN_EXPLAINS * (1.0 - busy)

    def _sampling_plan(
        self,
        now: float,
        present: Collection[JobProcess],
        close: Collection[JobProcess],
        unclear: Collection[JobProcess],
        members: Mapping[int, JobProcess],
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
        background: list[int] = []
        for member in present:
            # A process that sleeps on is still in the same wait.
            sleeps_on = member.watched.main_slept and member.waits.latest is not None
            if member.pid not in followed and not member.is_gpu and not sleeps_on:
                background.append(member.pid)
        return SamplingPlan(
            mains=[member.pid for member in close if member.is_gpu],
            workers=[member.pid for member in close if not member.is_gpu],
            background=background,
            threaded={member.pid for member in unclear if _has_threads_to_sample(member)},
            independent=independent,
            jobs=jobs,
        )


def _has_threads_to_sample(member: JobProcess) -> bool:
    """Return whether other threads of a process may cause its wait."""
    return member.is_gpu or (member.role == "loader" and member.may_wait_inside)


def _close_shares(now: float, member: JobProcess, sockets: SocketEvidence | None) -> TimeShares:
    """Return the shares of a process of a waiting GPU."""
    if sockets is not None and _proves_a_fetch(sockets):
        member.note_fetch(now)
    return time_shares(member.counters_now, member.close_observations(now), sockets)


def _proves_a_fetch(sockets: SocketEvidence) -> bool:
    """Return whether the sockets of a process show that data arrived for it."""
    activity = sockets.activity
    if activity is None or not sockets.is_asked or activity.asks_root:
        return False
    return activity.fetches
