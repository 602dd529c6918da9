"""Time shares of loaders, helpers and threads of each GPU process.

Expensive reads happen only while the GPU waits: main threads and workers are sampled between the readings, their
threads are read if no process explains the waiting, and sockets are read if only received bytes can prove a fetch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager

from msgspec.structs import replace

from gputop.sources.processes.feed import CHILD, FeedReading, Track, looks_of, used_s
from gputop.sources.processes.member import Member
from gputop.sources.processes.process_sockets import DENIED_FDS, HeldInodesCache, OtherEnds
from gputop.sources.processes.process_tree import HeldBy, OtherEnd, ProcessPlace, ProcessTable
from gputop.sources.processes.socket_proof import SocketProof
from gputop.sources.processes.wait_graph import INSIDE, Job, SeenWait, WaitGraph
from gputop.sources.processes.wait_look import RAN, WaitLook
from gputop.sources.processes.wait_sampler import LookedAt, WaitingGpus, WaitSampler
from gputop.sources.processes.watched import ProcessReading

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


def _job(pid: int, members: Mapping[int, Member]) -> Job:
    """Return the processes that may feed a GPU process.

    They are all processes of its tree and those related to it; the loaders are marked.
    """
    mine = members[pid]
    kin = {other: m for other, m in members.items() if m.place.root == pid and other != pid}
    loaders = {other for other, m in kin.items() if m.role == "loader"}
    proper = {other for other in loaders if kin[other].place.rule == "R1"}
    tids, backward = ((), ()) if mine.threads is None else (mine.threads.feeder_tids, mine.threads.backward_tids)
    ranks = [m.rank for m in members.values() if m.rank is not None]
    absent = "" if mine.rank is None else mine.rank.missing(ranks)
    has_threads = mine.seen_threads is not None and mine.seen_threads.ranks
    return Job(
        tuple(kin), frozenset(proper or loaders), tuple(tids), rank=mine.rank, absent=absent, backward=tuple(backward),
        torch=frozenset(proper), is_rank=has_threads or mine.rank is not None,
    )  # fmt: skip


def _jobs(pids: Iterable[int], members: Mapping[int, Member]) -> dict[int, Job]:
    """Return, for each process, its possible wait targets."""
    jobs: dict[int, Job] = {}
    of_others: dict[int, Job] = {}
    for pid in pids:
        root = members[pid].place.root
        if root is None or root not in members:
            continue
        job = jobs.get(root)
        if job is None:
            job = jobs[root] = _job(root, members)
            of_others[root] = Job((root, *job.pids), root=root)
        if pid != root:
            jobs[pid] = of_others[root]
    return jobs


class Feeding:
    """Tracks all worker processes of a machine.

    Called from the thread that reads processes.
    """

    def __init__(self, proc: str, *, looks_between: bool = False) -> None:
        """Set up; ``looks_between`` samples waits at random moments between readings."""
        self._look = WaitLook(proc)
        self._others = HeldInodesCache(proc)
        self._ends = OtherEnds()
        self._proof = SocketProof(proc, self._ends)
        self._graph = WaitGraph(proc, self._look, self._others, self._ends)
        self._sampler = WaitSampler(proc, self._look, self._graph, self._proof.look)
        self._between = looks_between
        self._gpus = WaitingGpus()
        self._tracks: dict[int, Track] = {}
        self._starttimes: dict[int, int] = {}
        self._unclear: Collection[int] = ()
        """Processes whose GPU's waiting is explained by neither a loader nor the main thread."""
        self._watched = LookedAt()
        self._jobs_at = float("-inf")

    def read(
        self,
        now: float,
        members: Mapping[int, Member],
        readings: Mapping[int, ProcessReading],
        util: Mapping[int, float | None],
        mains: Set[int] = frozenset(),
    ) -> dict[int, FeedReading]:
        """Return the shares of each process that was read.

        ``util`` is each GPU's utilisation in percent, by index. ``mains`` are the processes whose main threads are
        sampled between the readings, if their GPUs wait. A GPU process whose GPU does not wait is left out.
        """
        starttimes = {pid: reading.stat.starttime for pid, reading in readings.items()}
        if starttimes != self._starttimes:
            self._forget_ended(starttimes)
        self._gpus.observe(now, util)
        waiting = {
            pid
            for pid in readings
            if members[pid].place.role == "gpu" and self._gpus.waits(members[pid].place.gpu or 0, unknown=True)
        }
        close = [pid for pid in readings if (members[pid].place.root or pid) in waiting]
        with self._sampler.lock:
            self._others.begin()
            looks = self._take_looks(now, close, members, readings)
            feeds = {pid: self._feed(now, pid, reading, members[pid]) for pid, reading in readings.items()}
            self._unclear = ()
            if waiting:
                self._look_closely(now, waiting, close, members, readings, looks, feeds)
        self._watched = self._whom(now, close, members, readings, mains)
        if self._between:
            self._sampler.ask(self._watched)
        return {pid: feed for pid, feed in feeds.items() if pid in waiting or members[pid].place.role != "gpu"}

    def close(self) -> None:
        """End the sampling thread."""
        self._sampler.close()
        self._look.close()

    def waits(self, gpu: int | None) -> bool:
        """Return whether a GPU was known to wait at the last reading."""
        return gpu is not None and self._gpus.waits(gpu, unknown=False)

    def services(self, now: float, table: ProcessTable, placed: Mapping[int, ProcessPlace]) -> dict[int, ProcessPlace]:
        """Return places of computing local services with waiting jobs."""
        with self._sampler.lock:
            return self._graph.services.find(now, table, placed, self._ends)

    @contextmanager
    def holds(self, now: float) -> Iterator[tuple[HeldBy, OtherEnd]]:
        """Yield lookups of open inodes and socket peers for discovery.

        The first lookup takes a pid, the second the inode of a socket.
        """
        with self._sampler.lock:
            yield lambda pid: self._others.of(now, pid), lambda inode: self._ends.of(now, inode)

    def _forget_ended(self, starttimes: dict[int, int]) -> None:
        """Forget exited processes, and pids that were reused.

        CPU time of a tracked process is not new when its parent's counter receives it.
        """
        ended = {pid for pid, starttime in self._starttimes.items() if starttimes.get(pid) != starttime}
        for pid in ended:
            stat = self._tracks[pid].stat
            if stat is not None and stat.ppid in self._tracks:
                self._tracks[stat.ppid].owes(used_s(stat))
        self._tracks = {
            pid: Track() if pid in ended or pid not in self._tracks else self._tracks[pid] for pid in starttimes
        }
        self._starttimes = starttimes
        if ended:
            with self._sampler.lock:
                self._graph.forget(ended)
                self._proof.forget(ended)

    def _take_looks(
        self, now: float, close: Collection[int], members: Mapping[int, Member], readings: Mapping[int, ProcessReading]
    ) -> dict[int, list[SeenWait]]:
        """Return samples since the last reading, and add them to tracks.

        Without samples the wait state of the reading itself is used.
        """
        looks = self._sampler.take()
        if not self._between:
            waits = {pid: wait for pid in close if (wait := readings[pid].wait_seen) is not None}
            looks = self._sampler.now(now, waits, self._watched)
        for pid, reading in readings.items():
            track, seen = self._tracks[pid], looks.get(pid, [])
            if self._between:
                for look in seen:
                    if look.wait.wait != RAN:
                        members[pid].watched.saw(now, look.wait)
            track.holds_gpu = members[pid].place.role == "gpu"
            moves = bool(reading.read_bytes_per_s or reading.write_bytes_per_s)
            if seen:
                track.take(now, seen, between=self._between, moves=moves)
            elif reading.wait_seen is not None:
                track.take(now, [SeenWait(reading.wait_seen)], between=False, moves=moves)
            track.stat = reading.stat
        return looks

    def _feed(self, now: float, pid: int, reading: ProcessReading, member: Member) -> FeedReading:
        """Return a process's shares, with its wait target's activity.

        For a GPU process these are the shares of its main thread; the main thread's waits are added separately.
        """
        if reading.run_pct is None:
            return FeedReading()
        run, queued = reading.run_pct, reading.wait_pct or 0.0
        if member.place.role == "gpu" and reading.main_run_pct is not None:
            run, queued = reading.main_run_pct, reading.main_wait_pct or 0.0
        shares, by = self._tracks[pid].account(now, run, queued, reading.children_pct or 0.0)
        threads = reading.stat.threads - 1 if by == "thread" else None
        return FeedReading(shares, by, threads, why_blind=DENIED_FDS if by == "kinship" else None)

    def _look_closely(
        self,
        now: float,
        waiting: Collection[int],
        close: Collection[int],
        members: Mapping[int, Member],
        readings: Mapping[int, ProcessReading],
        looks: Mapping[int, list[SeenWait]],
        feeds: dict[int, FeedReading],
    ) -> None:
        """Complete shares by threads and sockets where the waiting is unexplained."""
        unclear = self._unclear = self._unexplained(close, members)
        for pid in waiting:
            by_threads = self._by_threads(pid, feeds[pid], members[pid], readings[pid])
            feeds[pid] = by_threads if pid in unclear else FeedReading(unread=True)
        parents = {pid: p for pid in waiting if pid in unclear and (p := readings[pid].stat.ppid) in members}
        self._proof.resolve(now, unclear, members, self._tracks, parents, feeds, at_once=not self._between)
        for pid in close:
            track, feed = self._tracks[pid], self._settled(now, pid, feeds[pid])
            seen = looks.get(pid, [])
            if pid in waiting:
                feeds[pid] = self._with_main(now, pid, feed, readings[pid], seen)
            elif ends := track.ended_at(now, seen, LEADS_OUT):
                feeds[pid] = replace(feed, waits_for=ends)
            else:
                feeds[pid] = feed

    def _unexplained(self, close: Collection[int], members: Mapping[int, Member]) -> list[int]:
        explained = {
            members[pid].place.root
            for pid in close
            if (members[pid].role == "loader" and self._tracks[pid].explains)
            or (members[pid].place.role == "gpu" and self._explains_itself(pid, members[pid].place.gpu))
        }
        return [pid for pid in close if members[pid].place.root not in explained]

    def _explains_itself(self, pid: int, gpu: int | None) -> bool:
        """Return whether a main thread works during most GPU idle time.

        It then waits for no other process. A main thread that sleeps may look for its batch in between.
        """
        busy = self._gpus.busy(gpu or 0)
        return self._tracks[pid].own_useful - busy >= MAIN_EXPLAINS * (1.0 - busy)

    def _by_threads(self, pid: int, feed: FeedReading, member: Member, reading: ProcessReading) -> FeedReading:
        """Return shares of a GPU process's children, or of its threads.

        Children are used if they do more than the threads.
        """
        track, threads = self._tracks[pid], member.seen_threads
        # The pool's time does not include a pin_memory thread.
        pool_pct = None if threads is None or threads.pin_memory else threads.pool_run_pct
        if pool_pct is None:
            pool_pct = max(0.0, (reading.run_pct or 0.0) - (reading.main_run_pct or 0.0))
        shares = track.threads_shares(pool_pct)
        if feed.by == CHILD and feed.shares.useful - track.own.cpu > shares.useful:
            return feed
        return FeedReading(shares)

    def _settled(self, now: float, pid: int, feed: FeedReading) -> FeedReading:
        """Return the feed, marked unread until the first samples are complete.

        Pipes, threads and sockets may still explain the waiting during that time.
        """
        track = self._tracks[pid]
        if track.close_at is None:
            track.close_at = now
        if track.mount is not None:
            feed = replace(feed, mount=track.mount)
        watched_s = now - track.close_at
        if watched_s >= UNSEEN_SETTLES_S or feed.by is not None or feed.shares.useful >= 0.5:
            return feed
        unseen = not track.sees_inside and track.waiting_on in INSIDE
        return feed if watched_s >= SETTLES_S and not unseen else replace(feed, unread=True)

    def _with_main(
        self, now: float, pid: int, feed: FeedReading, reading: ProcessReading, looks: list[SeenWait]
    ) -> FeedReading:
        """Return a GPU process's feed with its main thread's waits."""
        if reading.main_run_pct is None:
            return feed
        track = self._tracks[pid]
        rest = max(0.0, 1.0 - (reading.main_run_pct + (reading.main_wait_pct or 0.0)) / 100.0)
        main, saves = track.main_waits(now, rest)
        return replace(
            feed,
            main=main,
            saves=saves,
            main_looks=looks_of(looks) if looks and self._between else None,
            waits_for=track.ended_at(now, looks) if looks else None,
        )

    def _whom(
        self,
        now: float,
        close: Collection[int],
        members: Mapping[int, Member],
        readings: Mapping[int, ProcessReading],
        mains: Set[int],
    ) -> LookedAt:
        """Return the sampling plan until the next reading.

        It contains processes whose wait channel may be readable.
        """
        seen = [pid for pid in close if readings[pid].waiting_on or readings[pid].stat.state == "R"]
        roots = [pid for pid in seen if members[pid].place.role == "gpu"]
        others = [pid for pid in seen if members[pid].place.role != "gpu"]
        inside = {
            pid
            for pid in self._unclear
            if members[pid].place.role == "gpu"
            or (
                members[pid].role == "loader"
                and readings[pid].stat.threads > 1
                and self._tracks[pid].waiting_on in INSIDE
            )
        }
        jobs, apart = self._watched.jobs, self._watched.apart
        if not 0.0 <= now - self._jobs_at < JOBS_AGAIN_S or not jobs.keys() >= {*seen}:
            self._jobs_at, jobs = now, _jobs(seen, members)
            apart = {pid for pid, member in members.items() if member.role == "loader" or not member.place.may_feed}
        return LookedAt([pid for pid in roots if pid in mains], others, inside, apart, jobs)
