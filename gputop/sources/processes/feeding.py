"""What feeds each GPU process: loaders, helpers and threads with their shares of time, and what their waits mean.

Anything expensive is done only while the GPU waits: open files tell whose pipe a worker reads, threads are read in
turns where no process explains the waiting, sockets are asked for where only bytes can prove a fetch.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set

from msgspec.structs import replace

from gputop.model.feeders import FeederShares, WaitEnd, main_looks
from gputop.sources.processes.between_readings import RandomLooks, WaitingGpus
from gputop.sources.processes.feed import MEAN_S, FeedReading, Recent, main_waits_of, partly, shares_of
from gputop.sources.processes.feeder_threads import FeederThreads
from gputop.sources.processes.member import Member
from gputop.sources.processes.process_sockets import DENIED_FDS, HeldInodes, HeldInodesCache, OtherEnds
from gputop.sources.processes.socket_proof import SocketProof
from gputop.sources.processes.wait_channel import waits_for_child
from gputop.sources.processes.wait_graph import ITS_CHILDREN, NO_JOB, End, Job, SeenWait, WaitGraph
from gputop.sources.processes.wait_look import BLOCKED, LOCAL, RAN, ThreadWait, WaitLook
from gputop.sources.processes.watched import ProcessReading
from gputop.sources.procfs import Stat

CHILD = "child"
"""The wait for a child to end, among the classes of ``wait_look``."""
EXPLAINS = 0.6
"""A loader with this useful share explains itself; its threads and sockets are not read."""
MAIN_EXPLAINS = 0.8
"""The same for a main thread, as a share of the idle time: it may sleep while it waits for the GPU."""
THREADS_A_TICK = 24
SETTLES_S = 3.5
UNSEEN_SETTLES_S = 15.0
"""The same where threads that may explain a wait were not read yet."""
_LOOKS_INSIDE = ("lock", "queue", "sleep", "other", LOCAL)
LEAST_PART = 0.05
"""CPU time of children that have ended counts from this share of the time on."""
RESOLVED_S = 10.0
"""For so long what resolved a wait of a process is said of it: of many, each is looked at every few seconds."""
FETCHED_S = 30.0
"""For so long after data came in a wait in a socket that may not be seen is one for the network."""
JOBS_AGAIN_S = 3.0
"""How often processes are discovered, and threads listed."""
LINE_S = 30.0
"""Children for which a process has waited within this time are one feeder, if it waited for several."""
MOST_ENDS = 8
LEADS_OUT = ("network", "file", "socket")
"""Of a process that feeds, only those ends are told: whom it waits for within the job, its shares say already."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MOST_OWED_S, MOST_CARRIED_S = 600.0, 10.0
"""CPU time of children: what looks have already counted, and what their end has left to count, at most."""


class _Watch:
    """What is remembered of one process between two readings."""

    __slots__ = (
        "asks",
        "at",
        "awaited",
        "by",
        "by_at",
        "carried_s",
        "close_at",
        "doing",
        "fetched_at",
        "looked",
        "mount",
        "owed_s",
        "own_useful",
        "recent",
        "saves",
        "stat",
        "threads",
        "useful",
        "waiting_on",
    )  # fmt: skip

    def __init__(self) -> None:
        self.close_at: float | None = None
        """Since when it is watched closely."""
        self.looked = False
        """Whether it is looked at between readings; then the readings, in step with the job, no longer count."""
        self.waiting_on: str | None = None
        """The class of its latest wait."""
        self.recent = Recent()
        """Its own waits at the latest looks, ``child`` among them."""
        self.doing: Recent | None = None
        """The same, with what its children did where it waited for them; None where it never did."""
        self.awaited: dict[int, float] = {}
        """The children for which it waited, with the time at which it was last seen doing so."""
        self.fetched_at = float("-inf")
        """When data were last seen to come in over sockets of its own."""
        self.asks: int | None = None
        """A child that polls, for which it waits: its sockets tell what for."""
        self.mount: str | None = None
        self.saves = Recent()
        """Of the waits of the main thread those for a file to be written, and the rest."""
        self.at: float | None = None
        self.useful = 0.0
        """Mean useful share over ten seconds or so, waits unresolved."""
        self.own_useful = 0.0
        """The same plus sleep: what a main thread does other than wait for others."""
        self.threads: FeederThreads | None = None
        self.by: str | None = None
        self.by_at = float("-inf")
        """What resolved its latest wait for another process, and when."""
        self.stat: Stat | None = None
        """Its latest counters: what it and its ended children used, its end adds to its parent."""
        self.owed_s = self.carried_s = 0.0

    def forget_looks(self) -> None:
        """Forget all waits that were seen."""
        self.recent, self.doing, self.saves = Recent(), None, Recent()

    def ended_share(self, elapsed: float, rest: float, children_pct: float) -> float:
        """The share of the time in which children ran that have ended: their time comes in one jump, at their end.

        ``rest`` is the share of the time that is not accounted for.
        """
        came = children_pct / 100.0 * elapsed
        new = max(0.0, came - self.owed_s)
        self.owed_s = max(0.0, self.owed_s - came)
        self.carried_s = min(MOST_CARRIED_S, self.carried_s + new)
        share = min(rest, self.carried_s / elapsed) if elapsed > 0.0 else 0.0
        self.carried_s -= share * elapsed
        return share

    def ended_at(self, now: float, count_of_looks: int, looks: Sequence[SeenWait]) -> tuple[WaitEnd, ...]:
        """Whom it waited for at these of so many looks; children that came one after the other are one feeder."""
        ends = [look.end for look in looks if look.end is not None]
        for end in ends:
            if end.via == "child":
                self.awaited.update(dict.fromkeys(end.pids, now))
        self.awaited = {child: at for child, at in self.awaited.items() if now - at <= LINE_S}
        is_a_line = len(self.awaited) > 1
        counts = Counter(
            End("child", detail=ITS_CHILDREN) if is_a_line and end.via == "child" else replace(end, written=False)
            for end in ends
        )
        return tuple(
            WaitEnd(end.via, 100.0 * count / count_of_looks, end.pids, end.detail)
            for end, count in counts.most_common(MOST_ENDS)
        )


def _job(pid: int, members: Mapping[int, Member]) -> Job:
    """Who may feed a GPU process: all of its tree and beside it, and those of them that are called loaders."""
    mine = members[pid]
    kin = {other: m for other, m in members.items() if m.place.root == pid and other != pid}
    loaders = {other for other, m in kin.items() if m.role == "loader"}
    proper = {other for other in loaders if kin[other].place.rule == "R1"}
    return Job(
        tuple(kin), frozenset(proper or loaders), () if mine.threads is None else tuple(mine.threads.feeder_tids)
    )


def _jobs(pids: Iterable[int], members: Mapping[int, Member]) -> dict[int, Job]:
    """Who may be at the other end of what each process waits for."""
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


def _apart(members: Mapping[int, Member]) -> set[int]:
    """Processes that are judged by themselves, not as children of whoever waits for them."""
    return {pid for pid, member in members.items() if member.role == "loader" or not member.place.may_feed}


class Feeding:
    """One per machine. Called from the thread that reads processes."""

    def __init__(self, proc: str, *, looks_between: bool = False) -> None:
        """``looks_between``: look at waits at random moments between the readings, not at them."""
        self._proc = proc
        self._look = WaitLook(proc)
        self._looks: dict[int, list[SeenWait]] = {}
        self._inside: list[tuple[FeederThreads, list[str] | None]] = []
        self._watches: dict[int, _Watch] = {}
        self._gpus = WaitingGpus()
        self._proof = SocketProof(proc, looks_between=looks_between)
        self._others = HeldInodesCache(proc)
        self._peers = OtherEnds()
        self._graph = WaitGraph(proc, self._look, self._others, self._peers)
        self._looks_between = RandomLooks(proc, self._look, self._graph, self._look_between) if looks_between else None
        self._watched: list[int] = []
        """Processes to look at between this reading and the next."""
        self._looked_mains: frozenset[int] = frozenset()
        self._turn = 0
        self._jobs_at = float("-inf")
        self._jobs: Mapping[int, Job] = {}
        self._apart: Collection[int] = ()

    def read(
        self,
        now: float,
        members: Mapping[int, Member],
        readings: Mapping[int, ProcessReading],
        util: Mapping[int, float | None],
        mains: Set[int] = frozenset(),
    ) -> dict[int, FeedReading]:
        """The feed of each process that was read. ``util`` is each GPU's utilisation in percent, by index.

        ``mains`` are the processes whose main threads are looked at between the readings, if their GPUs wait.
        """
        if self._looks_between is None:
            return self._feeds(now, members, readings, util)
        self._looks = self._looks_between.take()
        with self._looks_between.lock:
            feeds = self._feeds(now, members, readings, util)
        looked = [pid for pid in self._watched if pid in mains]
        for pid in self._looked_mains.difference(looked) & self._watches.keys():
            # From now on it is seen only at the readings.
            self._watches[pid].looked = False
        self._looked_mains = frozenset(looked)
        others = [pid for pid in self._watched if members[pid].place.role != "gpu"]
        if not 0.0 <= now - self._jobs_at < JOBS_AGAIN_S or not self._jobs.keys() >= {*looked, *others}:
            self._jobs_at, self._jobs, self._apart = now, _jobs([*looked, *others], members), _apart(members)
        self._looks_between.ask(looked, others, self._apart, self._jobs)
        return feeds

    def close(self) -> None:
        """End the thread that looks between the readings."""
        if self._looks_between is not None:
            self._looks_between.close()
        self._look.close()

    def _feeds(
        self,
        now: float,
        members: Mapping[int, Member],
        readings: Mapping[int, ProcessReading],
        util: Mapping[int, float | None],
    ) -> dict[int, FeedReading]:
        if self._watches.keys() != readings.keys():
            self._forget_ended(readings)
        self._others.begin()
        self._inside = []
        self._watched = []
        self._gpus.observe(now, util)
        waiting = {
            pid
            for pid in readings
            if members[pid].place.role == "gpu" and self._gpus.waits(members[pid].place.gpu or 0, unknown=True)
        }
        close = {pid for pid in readings if (members[pid].place.root or pid) in waiting}
        if self._looks_between is None:
            self._look_at_once(now, close, members, readings)
        own = {pid: self._own_feed(now, pid, reading, members[pid]) for pid, reading in readings.items()}
        feeds = {pid: feed for pid, feed in own.items() if members[pid].place.role != "gpu"}
        if not waiting:
            return feeds
        explained = {
            members[pid].place.root
            for pid in close
            if (members[pid].role == "loader" and self._watches[pid].useful >= EXPLAINS)
            or (members[pid].place.role == "gpu" and self._explains_itself(pid, members[pid].place.gpu))
        }
        unclear = [pid for pid in close if members[pid].place.root not in explained]
        self._look_inside(now, unclear, members, readings, feeds, own)
        asks = {pid: self._watches[pid].asks for pid in unclear}
        waits = {pid: self._watches[pid].waiting_on for pid in unclear}
        roots = {pid: readings[pid].stat.ppid for pid in unclear if members[pid].place.role == "gpu"}
        parents = {pid: parent for pid, parent in roots.items() if parent in members}
        self._proof.resolve(now, unclear, members, waits, asks, parents, feeds)
        for pid in close:
            feed = self._settled(now, pid, feeds.get(pid) or FeedReading(unread=True))
            ends = [look for look in self._looks.get(pid, ()) if look.end is not None and look.end.via in LEADS_OUT]
            if ends and pid not in waiting:
                feed = replace(feed, waits_for=self._watches[pid].ended_at(now, len(self._looks[pid]), ends))
            feeds[pid] = feed
        self._watched = [pid for pid in close if _names_channels(readings[pid])]
        for pid in waiting:
            feeds[pid] = self._with_main(now, pid, feeds[pid], readings[pid])
        return feeds

    def _forget_ended(self, readings: Mapping[int, ProcessReading]) -> None:
        """What a process used that was followed itself is no news when its parent is told of its end."""
        for pid, watch in self._watches.items():
            if pid in readings or watch.stat is None:
                continue
            parent = self._watches.get(watch.stat.ppid)
            if parent is not None:
                used_s = (watch.stat.cpu_ticks + watch.stat.children_ticks) / TICKS_PER_S
                parent.owed_s = min(MOST_OWED_S, parent.owed_s + used_s)
        self._watches = {pid: self._watches.get(pid) or _Watch() for pid in readings}

    def _settled(self, now: float, pid: int, feed: FeedReading) -> FeedReading:
        """The feed, without shares while the first looks at pipes, threads and sockets may still explain them."""
        watch = self._watches[pid]
        if watch.close_at is None:
            watch.close_at = now
        if watch.mount is not None:
            feed = replace(feed, mount=watch.mount)
        watched_s = now - watch.close_at
        if watched_s >= UNSEEN_SETTLES_S or feed.by is not None or feed.shares.useful >= 0.5:
            return feed
        unseen = watch.threads is None and watch.waiting_on in _LOOKS_INSIDE
        return feed if watched_s >= SETTLES_S and not unseen else replace(feed, unread=True)

    def _with_main(self, now: float, pid: int, feed: FeedReading, reading: ProcessReading) -> FeedReading:
        """The feed of a GPU process with what its main thread was seen doing."""
        if reading.main_run_pct is None:
            return feed
        watch, looks = self._watches[pid], self._looks.get(pid)
        rest = max(0.0, 1.0 - (reading.main_run_pct + (reading.main_wait_pct or 0.0)) / 100.0)
        hidden = not _names_channels(reading) and not watch.looked
        waits = {} if hidden else dict(watch.recent.waits(now))
        if feed.by == "main socket":
            watch.fetched_at = now
        if now - watch.fetched_at <= FETCHED_S:
            waits["network"] = waits.get("network", 0.0) + waits.pop("socket", 0.0)
        main = main_waits_of(rest, waits)
        between = () if self._looks_between is None else looks
        main_seen = main_looks((_word(look.wait.wait), 1) for look in between) if between else None
        ends = None if not looks or hidden else watch.ended_at(now, len(looks), looks)
        return replace(
            feed,
            main_looks=main_seen,
            waits_for=ends,
            main=main,
            saves=rest * watch.saves.waits(now).get("saves", 0.0),
        )

    def waits(self, gpu: int | None) -> bool:
        """Whether a GPU was known to wait at the last reading."""
        return gpu is not None and self._gpus.waits(gpu, unknown=False)

    def held_now(self, pid: int) -> HeldInodes | None:
        """As ``held``, for the discovery of trees, which asks about more processes, and less often."""
        return self._others.of(self._gpus.at or 0.0, pid)

    def _look_at_once(
        self, now: float, close: Set[int], members: Mapping[int, Member], readings: Mapping[int, ProcessReading]
    ) -> None:
        """Without a thread that looks between the readings, what these saw stands for all that lies between."""
        apart, jobs = _apart(members), _jobs(close, members)
        self._looks = {
            pid: [self._graph.look(now, pid, seen, jobs.get(pid, NO_JOB), apart)]
            for pid in close
            if (seen := readings[pid].wait_seen) is not None
        }

    def _own_feed(self, now: float, pid: int, reading: ProcessReading, member: Member) -> FeedReading:
        """What a process did, and whom it waits for in whose place; of a GPU process what its children did."""
        watch = self._watches[pid]
        self._take_looks(now, pid, watch, reading, member)
        watch.stat = reading.stat
        if reading.run_pct is None:
            return FeedReading()
        run, queued = reading.run_pct, reading.wait_pct or 0.0
        if member.place.role == "gpu":
            # Of a GPU process only what its children do counts as feeding; its main thread is looked at by itself.
            run, queued = reading.main_run_pct or run, reading.main_wait_pct or 0.0
        elapsed = 0.0 if watch.at is None else max(0.0, now - watch.at)
        watch.at = now
        own_waits = watch.recent.waits(now)
        own_shares = shares = shares_of(run, queued, own_waits)
        rest = max(0.0, 1.0 - own_shares.cpu)
        by_children = ended = 0.0
        if watch.doing is not None:
            shares = shares_of(run, queued, watch.doing.waits(now))
            by_children = max(0.0, shares.run - own_shares.run)
            watch.owed_s = min(MOST_OWED_S, watch.owed_s + by_children * elapsed)
        if reading.children_pct or watch.carried_s:
            ended = watch.ended_share(elapsed, max(0.0, rest - by_children), reading.children_pct or 0.0)
        weight = min(1.0, elapsed / MEAN_S) if elapsed else 1.0
        watch.useful += weight * (shares.useful - watch.useful)
        watch.own_useful += weight * (own_shares.useful - watch.own_useful)
        by = watch.by if now - watch.by_at <= RESOLVED_S else None
        if ended >= LEAST_PART:
            shares, by = partly(shares, ended, FeederShares(run=1.0)), "child"
        blind = DENIED_FDS if by == "kinship" else None
        in_socket = rest * own_waits.get("socket", 0.0)
        return FeedReading(shares, by, why_blind=blind, in_socket=in_socket, own_cpu=own_shares.cpu)

    def _take_looks(self, now: float, pid: int, watch: _Watch, reading: ProcessReading, member: Member) -> None:
        """Add what was seen since the last reading; without looks between them, what the reading itself saw."""
        looks = self._looks.get(pid, [])
        moves = bool(reading.read_bytes_per_s or reading.write_bytes_per_s)
        if watch.threads is not None:
            watch.threads.reads_or_writes = moves
        alone = self._looks_between is None or not looks
        if looks and not alone:
            # A process whose channel may be read: none means that it ran.
            watch.looked = True
        elif not looks and not (self._looks and watch.looked) and reading.wait_seen is not None:
            looks = [SeenWait(reading.wait_seen)]
        if alone and looks:
            # A look in step with the readings stands for itself.
            watch.forget_looks()
        for look in looks:
            wait, instead = look.wait, look.instead
            if instead is not None:
                if watch.doing is None:
                    watch.doing = Recent(watch.recent)
                watch.asks = instead.pid if instead.wait in ("queue", "socket") else watch.asks
                watch.by, watch.by_at = instead.by, now
                watch.recent.add(now, instead.instead_of)
                watch.doing.add(now, _class_of(instead, moves=moves))
            elif wait.wait != RAN:
                kind = _class_of(wait, moves=moves)
                watch.mount = wait.mount
                watch.recent.add(now, kind)
                if watch.doing is not None:
                    watch.doing.add(now, kind)
                watch.saves.add(now, "saves" if wait.saves else "")
            if wait.wait != RAN:
                watch.waiting_on = wait.wait
                if not alone:
                    member.watched.saw(now, wait)

    def _look_inside(
        self,
        now: float,
        unclear: list[int],
        members: Mapping[int, Member],
        readings: Mapping[int, ProcessReading],
        feeds: dict[int, FeedReading],
        own: Mapping[int, FeedReading],
    ) -> None:
        """Threads in turns: of GPU processes first, then of loaders that wait for something inside themselves."""
        roots = [pid for pid in unclear if members[pid].place.role == "gpu"]
        inner = [
            pid
            for pid in unclear
            if members[pid].role == "loader"
            and readings[pid].stat.threads > 1
            and self._watches[pid].waiting_on in _LOOKS_INSIDE
        ]
        self._turn += 1
        for group in (roots, inner):
            if not group:
                continue
            begin = self._turn % len(group)
            for pid in group[begin:] + group[:begin]:
                watch, member = self._watches[pid], members[pid]
                if watch.threads is None:
                    watch.threads = FeederThreads(self._proc, pid, self._look)
                self._inside.append((watch.threads, member.threads.feeder_tids if member.threads is not None else None))
        if self._looks_between is None:
            self._read_threads(now)
        for group in (roots, inner):
            for pid in group:
                threads = self._watches[pid].threads
                if threads is not None:
                    self._take_threads(pid, threads, feeds, own[pid] if group is roots else None)

    def _look_between(self, now: float) -> None:
        self._proof.look(now)
        self._read_threads(now)

    def _read_threads(self, now: float) -> None:
        """Read as many threads as one look allows, in the order of the requests."""
        budget = THREADS_A_TICK
        for threads, tids in self._inside:
            budget -= threads.read(now, budget, tids)
            if budget <= 0:
                return

    def _take_threads(
        self, pid: int, threads: FeederThreads, feeds: dict[int, FeedReading], main: FeedReading | None
    ) -> None:
        """Put what threads do into the feed; ``main`` is the GPU process itself, whose children count as well."""
        best = threads.busiest()
        if main is not None:
            if main.by == "child" and main.shares.useful - main.own_cpu > best.useful:
                feeds[pid] = FeedReading(main.shares, "child", len(threads), feeds_itself=True)
            else:
                feeds[pid] = FeedReading(best, None, len(threads))
            return
        feed = feeds[pid]
        if feed.by not in (None, "task queue", "peer"):
            return
        # A thread replaces its process's own wait only by doing something: what it waits for says nothing.
        if best.cpu + best.disk + best.network >= DOES:
            feeds[pid] = FeedReading(_with_thread(feed.shares, best), "thread", len(threads), in_socket=feed.in_socket)
        elif best.poll >= DOES:
            feeds[pid] = replace(feed, threads=len(threads), inside=best)

    def _explains_itself(self, pid: int, gpu: int | None) -> bool:
        """Whether a main thread runs or reads for most of the GPU's idle time: then it waits for no other process.

        One that sleeps may look for its batch between."""
        busy = self._gpus.busy(gpu or 0)
        return self._watches[pid].own_useful - busy >= MAIN_EXPLAINS * (1.0 - busy)


DOES = 0.1
"""A thread that runs, is queued, or waits for a disk or a proven network for less of the time does nothing [judged]."""


def _with_thread(process: FeederShares, best: FeederShares) -> FeederShares:
    """A process whose main thread waits for its busiest thread, and is queued for a core as that one is.

    The kernel counts running time for all threads of a process, and queued time for each.
    """
    cpu = min(1.0, max(process.cpu, best.cpu))
    run = min(cpu, max(process.run, best.run))
    rest = max(0.0, 1.0 - cpu)
    waits = 1.0 - best.cpu
    part = rest / waits if waits > 0.0 else 0.0
    return FeederShares(
        run, cpu - run, best.disk * part, best.network * part, best.lock * part, best.sleep * part, best.poll * part,
        best.other * part, best.unread * part,
    )  # fmt: skip


def _class_of(wait: ThreadWait, *, moves: bool) -> str:
    """The class of a wait; ``moves``: the process reads from or writes to a disk, which settles what state D is."""
    if wait.wait == BLOCKED:
        return "disk" if moves else "other"
    return CHILD if waits_for_child(wait.channel) else wait.wait


def _word(wait: str) -> str:
    """What a look saw, see ``LookState``."""
    return "other" if wait in (BLOCKED, "socket", LOCAL) else wait


def _names_channels(reading: ProcessReading) -> bool:
    """Whether its wait channel may be known: one that may not reads as if it ran."""
    return bool(reading.waiting_on) or reading.stat.state == "R"
