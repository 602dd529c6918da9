"""What feeds each GPU process: loaders, helpers and threads with their shares of time, and what their waits mean.

Anything expensive is done only while the GPU waits: open files tell whose pipe a worker reads, threads are read in
turns where no process explains the waiting, sockets are asked for where only bytes can prove a fetch.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from msgspec.structs import replace

from gputop.model.feeders import NO_SHARES, RAN, FeederShares, waits_text
from gputop.sources.processes.between import LooksBetween, WaitingGpus
from gputop.sources.processes.feed import MEAN_S, Feed, inherited, shares_of
from gputop.sources.processes.feeder_threads import FeederThreads
from gputop.sources.processes.member import Member
from gputop.sources.processes.pointers import Pointers, SocketProof, Waiter, without_waits
from gputop.sources.processes.process_sockets import HELD_AGAIN_S, Held, HeldByMany, held
from gputop.sources.processes.wait_channel import wait_class
from gputop.sources.processes.watched import Reading

EXPLAINS = 0.6
"""A loader with this useful share explains itself; its threads and sockets are not read."""
MAIN_EXPLAINS = 0.8
"""The same for a main thread, as a share of the idle time: it may sleep while it waits for the GPU."""
THREADS_A_TICK = 24
HELD_A_TICK = 2
SETTLES_S = 3.5
UNSEEN_SETTLES_S = 15.0
"""The same where threads that may explain a wait were not read yet."""
_LOOKS_INSIDE = ("lock", "queue", "sleep")


class _Watch:
    """What is remembered of one process between two readings."""

    __slots__ = ("at", "channel", "close_at", "held", "held_at", "looked", "own", "threads", "useful", "waiting_on")

    def __init__(self) -> None:
        self.channel = ""
        self.close_at: float | None = None
        """Since when it is watched closely."""
        self.looked = False
        """Whether it is looked at between readings; then the readings, in step with the job, no longer count."""
        self.waiting_on: str | None = None
        self.at: float | None = None
        self.useful = 0.0
        """Mean useful share over ten seconds or so, waits unresolved."""
        self.own = 0.0
        """The same plus sleep: what a main thread does other than wait for others."""
        self.threads: FeederThreads | None = None
        self.held: Held | None = None
        self.held_at: float | None = None


class Feeding:
    """One per machine. Called from the thread that reads processes."""

    def __init__(self, proc: str, *, between: bool = False) -> None:
        """``between``: look at waits at random moments between the readings, not at them."""
        self._proc = proc
        self._between = LooksBetween(proc, self._look_between) if between else None
        self._looks: dict[int, list[str]] = {}
        self._inside: list[tuple[FeederThreads, list[str] | None]] = []
        self._watches: dict[int, _Watch] = {}
        self._gpus = WaitingGpus()
        self._proof = SocketProof(proc, between=between)
        self._others = HeldByMany(proc)
        self._watched: list[int] = []
        """Processes to look at between this reading and the next."""
        self._looked_mains: frozenset[int] = frozenset()
        self._turn = 0
        self._held_left = 0

    def read(
        self,
        now: float,
        members: Mapping[int, Member],
        readings: Mapping[int, Reading],
        util: Mapping[int, float | None],
        mains: Set[int] = frozenset(),
    ) -> dict[int, Feed]:
        """The feed of each process that was read. ``util`` is each GPU's utilisation in percent, by index.

        ``mains`` are the processes whose main threads are looked at between the readings, if their GPUs wait.
        """
        if self._between is None:
            return self._feeds(now, members, readings, util)
        self._looks = self._between.take()
        with self._between.lock:
            feeds = self._feeds(now, members, readings, util)
        looked = [pid for pid in self._watched if pid in mains]
        for pid in self._looked_mains.difference(looked) & self._watches.keys():
            # From now on it is seen only at the readings.
            self._watches[pid].looked = False
        self._looked_mains = frozenset(looked)
        self._between.ask(looked, [pid for pid in self._watched if members[pid].place.role != "gpu"])
        return feeds

    def close(self) -> None:
        """End the thread that looks between the readings."""
        if self._between is not None:
            self._between.close()

    def _feeds(
        self,
        now: float,
        members: Mapping[int, Member],
        readings: Mapping[int, Reading],
        util: Mapping[int, float | None],
    ) -> dict[int, Feed]:
        if self._watches.keys() != readings.keys():
            self._watches = {pid: self._watches.get(pid) or _Watch() for pid in readings}
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
        base = {pid: self._base(now, pid, reading) for pid, reading in readings.items()}
        feeds = {pid: Feed(shares) for pid, shares in base.items() if members[pid].place.role != "gpu"}
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
            self._proc,
            {pid: self._waiter(pid, base[pid], readings[pid], members[pid]) for pid in close},
            lambda pid: self.held(now, pid),
        )
        for pid in close:
            if pid in feeds and pointers.points(pid):
                feeds[pid] = pointers.resolved(pid)
        unclear = [pid for pid in close if members[pid].place.root not in explained]
        self._look_inside(now, unclear, members, readings, feeds, pointers)
        self._proof.resolve(now, unclear, members, {pid: self._watches[pid].waiting_on for pid in unclear}, feeds)
        for pid in close:
            feeds[pid] = self._settled(now, pid, feeds.get(pid) or Feed(unread=True))
        self._watched = [pid for pid in close if _names_channels(readings[pid])]
        for pid in waiting:
            feeds[pid] = self._with_main(pid, feeds[pid])
        return feeds

    def _settled(self, now: float, pid: int, feed: Feed) -> Feed:
        """The feed, without shares while the first looks at pipes, threads and sockets may still explain them."""
        watch = self._watches[pid]
        if watch.close_at is None:
            watch.close_at = now
        is_clear = feed.by is not None or feed.shares.useful >= 0.5
        unseen = watch.threads is None and watch.waiting_on in _LOOKS_INSIDE
        settles_s = UNSEEN_SETTLES_S if unseen else SETTLES_S
        return feed if is_clear or now - watch.close_at >= settles_s else replace(feed, unread=True)

    def _with_main(self, pid: int, feed: Feed) -> Feed:
        """The feed of a GPU process with what its main thread was seen doing between the readings."""
        looks = self._looks.get(pid)
        return replace(feed, main_waits=waits_text([wait_class(look) or RAN for look in looks])) if looks else feed

    def waits(self, gpu: int | None) -> bool:
        """Whether a GPU was known to wait at the last reading."""
        return gpu is not None and self._gpus.waits(gpu, unknown=False)

    def held_now(self, pid: int) -> Held | None:
        """As ``held``, for the discovery of trees, which asks about more processes, and less often."""
        return self._others.of(self._gpus.at or 0.0, pid)

    def held(self, now: float, pid: int) -> Held | None:
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

    def _waiter(self, pid: int, shares: FeederShares, reading: Reading, member: Member) -> Waiter:
        watch = self._watches[pid]
        children = reading.children_pct or 0.0
        return Waiter(shares, watch.waiting_on, watch.channel, reading.stat.ppid, member.place.root, children)

    def _base(self, now: float, pid: int, reading: Reading) -> FeederShares:
        """A process by itself, pipes unresolved."""
        watch = self._watches[pid]
        looks = self._looks.get(pid)
        looked_at = bool(self._looks)
        if looks:
            # A process whose channel may be read: none means that it ran.
            watch.channel = looks[-1]
            watch.waiting_on = wait_class(looks[-1]) or watch.waiting_on
            watch.looked = True
        elif reading.stat.state != "R" and not (looked_at and watch.looked):
            watch.channel = reading.channel
            watch.waiting_on = "disk" if reading.stat.state == "D" else reading.waiting_on
        run = reading.run_pct
        if run is None:
            return NO_SHARES
        shares = shares_of(run, reading.wait_pct or 0.0, watch.waiting_on)
        weight = 1.0 if watch.at is None else min(1.0, max(0.0, (now - watch.at) / MEAN_S))
        watch.at = now
        useful = shares.useful
        watch.useful += weight * (useful - watch.useful)
        watch.own += weight * (useful + shares.sleep - watch.own)
        return shares

    def _look_inside(
        self,
        now: float,
        unclear: list[int],
        members: Mapping[int, Member],
        readings: Mapping[int, Reading],
        feeds: dict[int, Feed],
        pointers: Pointers,
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
                    watch.threads = FeederThreads(self._proc, pid)
                self._inside.append((watch.threads, member.threads.feeder_tids if member.threads is not None else None))
        if self._between is None:
            self._read_threads(now)
        for group in (roots, inner):
            for pid in group:
                threads = self._watches[pid].threads
                if threads is not None:
                    self._take_threads(pid, threads, feeds, pointers if group is roots else None)

    def _look_between(self, now: float) -> None:
        self._proof.look(now)
        self._read_threads(now)

    def _read_threads(self, now: float) -> None:
        """Read as many threads as one look allows, in the order of the requests."""
        left = THREADS_A_TICK
        for threads, tids in self._inside:
            left -= threads.read(now, left, tids)
            if left <= 0:
                return

    def _take_threads(
        self, pid: int, threads: FeederThreads, feeds: dict[int, Feed], pointers: Pointers | None
    ) -> None:
        """Put what threads do into the feed; ``pointers`` for those of a GPU process, whose children count as well."""
        best = threads.busiest()
        if pointers is not None:
            ended = pointers.short_lived(pid)
            if ended is not None and ended.useful > best.useful:
                feeds[pid] = Feed(ended, "child", len(threads))
            else:
                feeds[pid] = Feed(best, None, len(threads))
            return
        own = feeds[pid]
        if best.useful + best.poll >= 0.1 and own.by is None:
            feeds[pid] = Feed(inherited(without_waits(own.shares), best), "thread", len(threads))

    def _explains_itself(self, pid: int, gpu: int | None) -> bool:
        """Whether a main thread runs, sleeps or reads for most of the GPU's idle time: then it waits for nobody."""
        busy = self._gpus.busy(gpu or 0)
        return self._watches[pid].own - busy >= MAIN_EXPLAINS * (1.0 - busy)


def _names_channels(reading: Reading) -> bool:
    """Whether its wait channel may be known: one that may not reads as if it ran."""
    return bool(reading.waiting_on) or reading.stat.state == "R"
