"""What feeds each GPU process: loaders, helpers and threads with their shares of time, and what their waits mean.

Anything expensive is done only while the GPU waits: open files tell whose pipe a worker reads, threads are read in
turns where no process explains the waiting, sockets are asked for where only bytes can prove a fetch.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence, Set

from msgspec.structs import replace

from gputop.model.feeders import NO_SHARES, FeederShares, WaitEnd, main_looks
from gputop.sources.processes.between_readings import Descendant, RandomLooks, WaitingGpus
from gputop.sources.processes.feed import MEAN_S, FeedReading, Recent, main_waits_of, shares_of
from gputop.sources.processes.feeder_threads import FeederThreads
from gputop.sources.processes.member import Member
from gputop.sources.processes.pointers import CHILD, Pointers, SocketProof, Waiter
from gputop.sources.processes.process_sockets import HELD_AGAIN_S, HeldInodes, HeldInodesCache, OtherEnds, held
from gputop.sources.processes.wait_channel import waits_for_child
from gputop.sources.processes.wait_graph import ITS_CHILDREN, End, Job, WaitGraph
from gputop.sources.processes.wait_look import BLOCKED, LOCAL, RAN, ThreadWait, WaitLook
from gputop.sources.processes.watched import ProcessReading
from gputop.sources.procfs import Stat

EXPLAINS = 0.6
"""A loader with this useful share explains itself; its threads and sockets are not read."""
MAIN_EXPLAINS = 0.8
"""The same for a main thread, as a share of the idle time: it may sleep while it waits for the GPU."""
THREADS_A_TICK = 24
HELD_A_TICK = 2
SETTLES_S = 3.5
UNSEEN_SETTLES_S = 15.0
"""The same where threads that may explain a wait were not read yet."""
_LOOKS_INSIDE = ("lock", "queue", "sleep", "other", LOCAL)
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
        "carried_s",
        "close_at",
        "doing",
        "held",
        "held_at",
        "looked",
        "mount",
        "owed_s",
        "own_useful",
        "recent",
        "saves",
        "stat",
        "threads",
        "useful",
        "wait_seen",
    )  # fmt: skip

    def __init__(self) -> None:
        self.close_at: float | None = None
        """Since when it is watched closely."""
        self.looked = False
        """Whether it is looked at between readings; then the readings, in step with the job, no longer count."""
        self.wait_seen: ThreadWait | None = None
        """Its latest wait."""
        self.recent = Recent()
        """Its own waits at the latest looks, ``child`` among them."""
        self.doing: Recent | None = None
        """The same, with what its children did where it waited for them; None where it never did."""
        self.awaited: dict[int, float] = {}
        """The children for which it waited, with the time at which it was last seen doing so."""
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
        self.held: HeldInodes | None = None
        self.held_at: float | None = None
        self.stat: Stat | None = None
        """Its latest counters: what it and its ended children used, its end adds to its parent."""
        self.owed_s = self.carried_s = 0.0

    @property
    def waiting_on(self) -> str | None:
        """The class of its latest wait."""
        return None if self.wait_seen is None else self.wait_seen.wait

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

    def ended_at(self, now: float, looks: int, ends: Sequence[End]) -> tuple[WaitEnd, ...]:
        """Whom it waited for at so many looks; children that came one after the other are one feeder."""
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
            WaitEnd(end.via, 100.0 * count / looks, end.pids, end.detail)
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


def _job_of_other(member: Member, jobs: Mapping[int, Job]) -> Job | None:
    """The same for another process of that job, which may wait for any of them; None where main is not looked at."""
    root = member.place.root
    job = None if root is None else jobs.get(root)
    return None if job is None or root is None else replace(job, pids=(root, *job.pids), threads=(), root=root)


class Feeding:
    """One per machine. Called from the thread that reads processes."""

    def __init__(self, proc: str, *, looks_between: bool = False) -> None:
        """``looks_between``: look at waits at random moments between the readings, not at them."""
        self._proc = proc
        self._look = WaitLook(proc)
        self._looks: dict[int, list[ThreadWait]] = {}
        self._ends: dict[int, list[End]] = {}
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
        self._held_left = 0

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
        self._looks, self._ends = self._looks_between.take()
        with self._looks_between.lock:
            feeds = self._feeds(now, members, readings, util)
        looked = [pid for pid in self._watched if pid in mains]
        for pid in self._looked_mains.difference(looked) & self._watches.keys():
            # From now on it is seen only at the readings.
            self._watches[pid].looked = False
        self._looked_mains = frozenset(looked)
        others = [pid for pid in self._watched if members[pid].place.role != "gpu"]
        apart = {pid for pid in readings if members[pid].role == "loader" or not members[pid].place.may_feed}
        parents = {reading.stat.ppid for reading in readings.values()}
        parents.update(pid for pid, reading in readings.items() if reading.stat.children_ticks)
        jobs = {pid: _job(pid, members) for pid in looked}
        jobs.update((pid, job) for pid in others if (job := _job_of_other(members[pid], jobs)) is not None)
        self._looks_between.ask(looked, others, apart, parents, jobs)
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
        self._held_left = HELD_A_TICK
        self._others.begin()
        self._inside = []
        self._watched = []
        self._gpus.observe(now, util)
        waiting = {
            pid
            for pid in readings
            if members[pid].place.role == "gpu" and self._gpus.waits(members[pid].place.gpu or 0, unknown=True)
        }
        waiters = {pid: self._waiter(now, pid, reading, members[pid]) for pid, reading in readings.items()}
        feeds = {pid: FeedReading(w.shares) for pid, w in waiters.items() if members[pid].place.role != "gpu"}
        if not waiting:
            return feeds
        close = {pid for pid in readings if (members[pid].place.root or pid) in waiting}
        explained = {
            members[pid].place.root
            for pid in close
            if (members[pid].role == "loader" and self._watches[pid].useful >= EXPLAINS)
            or (members[pid].place.role == "gpu" and self._explains_itself(pid, members[pid].place.gpu))
        }
        pointers = Pointers(
            {pid: waiters[pid] for pid in close},
            lambda pid: self.held(now, pid),
            lambda inode: self._peers.local(now, inode),
            lambda pid: self._others.of(now, pid),
        )
        for pid in close:
            if pid in feeds and pointers.points(pid):
                feeds[pid] = pointers.resolved(pid)
        for pid, waiter in waiters.items():
            if "socket" in waiter.waits and pid in feeds:
                waits_of_process = self._watches[pid].recent.waits(now)
                feeds[pid] = replace(feeds[pid], in_socket=waiter.rest * waits_of_process.get("socket", 0.0))
        unclear = [pid for pid in close if members[pid].place.root not in explained]
        self._look_inside(now, unclear, members, readings, feeds, waiters)
        asks = {pid: self._watches[pid].asks for pid in unclear}
        waits = {pid: self._watches[pid].waiting_on for pid in unclear}
        roots = {pid: waiters[pid].parent for pid in unclear if members[pid].place.role == "gpu"}
        parents = {pid: parent for pid, parent in roots.items() if parent in members}
        self._proof.resolve(now, unclear, members, waits, asks, parents, feeds)
        for pid in close:
            feed = self._settled(now, pid, feeds.get(pid) or FeedReading(unread=True))
            ends = [end for end in self._ends.get(pid, ()) if end.via in LEADS_OUT]
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
        main = main_waits_of(rest, {} if hidden else watch.recent.waits(now))
        main_seen = main_looks((_word(look), 1) for look in looks) if looks else None
        ends = None if not looks or hidden else watch.ended_at(now, len(looks), self._ends.get(pid, ()))
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

    def held(self, now: float, pid: int) -> HeldInodes | None:
        """The pipes and sockets of a process, at most ten seconds old; None where they may not be seen."""
        watch = self._watches.get(pid)
        if watch is None:
            watch = self._watches[pid] = _Watch()
        if watch.held_at is None or now - watch.held_at >= HELD_AGAIN_S:
            if self._held_left <= 0:
                return watch.held
            self._held_left -= 1
            watch.held_at = now
            watch.held = held(self._proc, pid)
        return watch.held

    def _waiter(self, now: float, pid: int, reading: ProcessReading, member: Member) -> Waiter:
        """A process by itself, with what it waits for unresolved."""
        watch = self._watches[pid]
        self._take_looks(now, pid, watch, reading)
        watch.stat = stat = reading.stat
        root = member.place.root
        if reading.run_pct is None:
            return Waiter(NO_SHARES, stat.ppid, root)
        run, queued = reading.run_pct, reading.wait_pct or 0.0
        if member.place.role == "gpu":
            # Of a GPU process only what its children do counts as feeding; its main thread is looked at by itself.
            run, queued = reading.main_run_pct or run, reading.main_wait_pct or 0.0
        elapsed = 0.0 if watch.at is None else max(0.0, now - watch.at)
        watch.at = now
        own_waits = doing = watch.recent.waits(now)
        own_shares = shares = shares_of(run, queued, own_waits)
        rest = max(0.0, 1.0 - own_shares.cpu)
        by_children = ended = 0.0
        if watch.doing is not None:
            doing = watch.doing.waits(now)
            shares = shares_of(run, queued, doing)
            by_children = max(0.0, shares.run - own_shares.run)
            watch.owed_s = min(MOST_OWED_S, watch.owed_s + by_children * elapsed)
        if reading.children_pct or watch.carried_s:
            ended = watch.ended_share(elapsed, max(0.0, rest - by_children), reading.children_pct or 0.0)
        weight = min(1.0, elapsed / MEAN_S) if elapsed else 1.0
        watch.useful += weight * (shares.useful - watch.useful)
        watch.own_useful += weight * (own_shares.useful - watch.own_useful)
        by_child = own_waits is not doing and own_waits != doing
        return Waiter(shares, stat.ppid, root, rest, doing, watch.wait_seen, ended, by_child, own_shares.cpu)

    def _take_looks(self, now: float, pid: int, watch: _Watch, reading: ProcessReading) -> None:
        """Add what was seen since the last reading; without looks between them, what the reading itself saw."""
        looks = self._looks.get(pid)
        moves = bool(reading.read_bytes_per_s or reading.write_bytes_per_s)
        if watch.threads is not None:
            watch.threads.reads_or_writes = moves
        if looks:
            # A process whose channel may be read: none means that it ran.
            watch.looked = True
            for look in looks:
                if isinstance(look, Descendant):
                    if watch.doing is None:
                        watch.doing = Recent(watch.recent)
                    watch.asks = look.pid if look.wait in ("queue", "socket") else watch.asks
                    watch.recent.add(now, look.instead_of)
                    watch.doing.add(now, _class_of(look, moves=moves))
                elif look.wait != RAN:
                    wait = _class_of(look, moves=moves)
                    watch.wait_seen, watch.mount = look, look.mount
                    watch.recent.add(now, wait)
                    if watch.doing is not None:
                        watch.doing.add(now, wait)
                    watch.saves.add(now, "saves" if look.saves else "")
        elif reading.stat.state != "R" and not (self._looks and watch.looked) and reading.wait_seen is not None:
            wait = _class_of(reading.wait_seen, moves=moves)
            watch.wait_seen, watch.mount = reading.wait_seen, reading.wait_seen.mount
            watch.recent.only(now, wait)
            watch.doing = None
            watch.saves.only(now, "saves" if reading.wait_seen.saves else "")

    def _look_inside(
        self,
        now: float,
        unclear: list[int],
        members: Mapping[int, Member],
        readings: Mapping[int, ProcessReading],
        feeds: dict[int, FeedReading],
        waiters: Mapping[int, Waiter],
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
                    self._take_threads(pid, threads, feeds, waiters[pid] if group is roots else None)

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
        self, pid: int, threads: FeederThreads, feeds: dict[int, FeedReading], main: Waiter | None
    ) -> None:
        """Put what threads do into the feed; ``main`` is the GPU process itself, whose children count as well."""
        best = threads.busiest()
        if main is not None:
            children = Pointers({pid: main}, lambda _: None).resolved(pid).shares if main.waits_for_children else None
            if children is not None and children.useful - main.own_cpu > best.useful:
                feeds[pid] = FeedReading(children, "child", len(threads), feeds_itself=True)
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


def _word(looked: ThreadWait) -> str:
    """What a look saw, see ``LookState``."""
    wait = looked.instead_of if isinstance(looked, Descendant) else looked.wait
    return "other" if wait in (BLOCKED, "socket", CHILD, LOCAL) else wait


def _names_channels(reading: ProcessReading) -> bool:
    """Whether its wait channel may be known: one that may not reads as if it ran."""
    return bool(reading.waiting_on) or reading.stat.state == "R"
