"""Whom a thread waits for: who holds the other end of its pipe or socket, its child, or a thread of its own.

Holding an end is necessary and proves nothing: ``fork`` hands every end of every pipe to every child. Who feeds a pipe
is who holds its writing end *and* has lately written something that went to no disk. A way that leads back to where it
began ends there. Formats: proc(5), poll(2), select(2), and the tables of system calls of asm/unistd.h.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.feeders import HANDED_OVER, OTHER_RANKS, RANKS_SEEN, WHERE_RANKS_MEET, Via
from gputop.sources.processes.host_services import HostServices
from gputop.sources.processes.loaders import is_pin_memory_thread
from gputop.sources.processes.process_facts import RunRank
from gputop.sources.processes.process_sockets import (
    DENIED_FDS,
    HELD_AGAIN_S,
    HeldInodes,
    HeldInodesCache,
    OtherEnds,
    address_words,
    unix_peer,
)
from gputop.sources.processes.process_threads import LEAST_THREADS, WORK, InnerThread, InnerThreads, rank_of
from gputop.sources.processes.wait_look import (
    BLOCKED,
    LOCAL,
    RAN,
    SAVING,
    STOPPED,
    UNREAD,
    WRITE,
    ThreadWait,
    WaitLook,
    call_of,
    inode_in,
    target_of,
    waited_call,
    waits_for_child,
)
from gputop.sources.procfs import read_small

MOST_STEPS = 4
"""Threads, pipes and children that one way leads over."""
MOST_POLLED = 64
"""Descriptors of one poll that are looked at."""
MOST_PIDS = 64
WROTE_S = 60.0
"""For so long after it last wrote something a process is one that feeds a pipe it holds: a batch may take that long
[judged]."""
COUNTED_AGAIN_S = 2.0
HOLDERS_AGAIN_S = 60.0
"""For so long a process is taken to hold what it was seen to hold: whom it was made for it keeps."""
FRESH_S = 2.0
"""A list of open files that lacks what its process waits for is made again after this time."""
MOST_KNOWN = 4096
_PRIVATE = 128
"""FUTEX_PRIVATE_FLAG of futex(2): no other process can know the lock."""
_POLL, _SELECT, _EPOLL, _WAIT, _FUTEX = (
    {
        "x86_64": numbers[0],
        "aarch64": numbers[1],
    }.get(os.uname().machine, frozenset())
    for numbers in (
        (frozenset((7, 271)), frozenset((73,))),
        (frozenset((23, 270)), frozenset((72,))),
        (frozenset((232, 281, 441)), frozenset((22, 441))),
        (frozenset((61,)), frozenset((260,))),
        (frozenset((202,)), frozenset((98,))),
    )
)
"""poll, ppoll; select, pselect6; epoll_wait, epoll_pwait, epoll_pwait2; wait4; futex."""


class End(Struct, frozen=True):
    """What one look found a thread waiting for: see ``WaitEnd``. ``written``: who is named was seen to write."""

    via: Via
    pids: tuple[int, ...] = ()
    detail: str = ""
    written: bool = False
    is_only: bool = False
    """One connection is all that a poll is for, as with a timeout on a socket: it can be for nothing else."""


ONE_OF_MANY = "holder not seen"
OUTSIDE = "outside of the job"
LISTENS = "listens at"
NO_OTHER_END = "its other end is not seen"
IS_FULL = "its reader is slow"
ITS_CHILDREN = "its children"


_PLAIN = {
    RAN: None,
    STOPPED: End("stopped"),
    WRITE: End("pipe", detail=IS_FULL),
    "sleep": End("timer"),
    "gpu": End("gpu"),
}
"""Waits that lead to nobody of the job."""


class _Counted(Struct):
    """Bytes that a process has written to anything but disks, less what its pages on disks are larger than what it
    wrote there; when they were counted, and when they last grew."""

    at: float
    elsewhere: int
    grown_at: float = float("-inf")


class Writers:
    """Which processes write to pipes, by the counters of /proc/PID/io.

    ``wchar`` counts what a process hands to write(2), ``write_bytes`` what of it goes to a disk, in whole pages: what
    the first exceeds the second by went to pipes, terminals or file systems without a disk. ``send`` counts in neither.
    """

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._counted: dict[int, _Counted | None] = {}

    def of(self, now: float, pids: Iterable[int]) -> tuple[int, ...]:
        """Those that were seen writing within the last minute; where none was, those that ever have.

        ``now`` is monotonic s.
        """
        counted = {pid: self._count(now, pid) for pid in pids}
        seen = tuple(pid for pid, c in counted.items() if c is not None and now - c.grown_at <= WROTE_S)
        return seen or tuple(pid for pid, c in counted.items() if c is not None and c.elsewhere > 0)

    def forget(self, pid: int) -> None:
        """Forget a process that has ended."""
        self._counted.pop(pid, None)

    def _count(self, now: float, pid: int) -> _Counted | None:
        """None where its counters may not be seen."""
        before = self._counted.get(pid)
        if pid in self._counted and (before is None or 0.0 <= now - before.at < COUNTED_AGAIN_S):
            return before
        try:
            fields = read_small(f"{self._proc}/{pid}/io").split()
            counted = _Counted(now, int(fields[3]) - int(fields[11]))
        except (OSError, ValueError, IndexError):
            counted = None
        if counted is not None and before is not None:
            counted.grown_at = now if counted.elsewhere > before.elsewhere else before.grown_at
        if len(self._counted) >= MOST_KNOWN:
            self._counted.clear()
        self._counted[pid] = counted
        return counted


class Job(Struct, frozen=True):
    """Who may be at the other end of a wait: the processes of one GPU process by rank, loaders proper first.

    ``loaders`` are those that are called so; of these only ``torch``'s where there are any. ``threads`` are the tids
    of the GPU process that could hold something up.
    """

    pids: tuple[int, ...] = ()
    loaders: frozenset[int] = frozenset()
    threads: Sequence[str] = ()
    root: int | None = None
    """The GPU process, where the wait of another one is followed."""
    rank: RunRank | None = None
    """Which rank of a run it is, if it is one."""
    is_rank: bool = False
    """Its threads or its environment show that it is one of several ranks."""
    torch: frozenset[int] = frozenset()
    """Workers of PyTorch's DataLoader."""
    absent: str = ""
    """Which other ranks were not seen, in words."""
    backward: Sequence[str] = ()
    """The tids in which the GPU process computes gradients: its main thread waits for them by a lock."""


NO_JOB = Job()
OPENS_A_FIFO = ("fifo_open", "wait_for_partner")
MOST_GENERATIONS = 3
MOST_READ = 8
"""Processes that one step of one way leads to."""
INSIDE = ("lock", "queue", "sleep", "other", LOCAL)
"""The waits of a main thread in which threads of its own process may be what it waits for."""


class Followed(ThreadWait, frozen=True):
    """What is done at the end of the way of one look, in place of the wait ``instead_of`` that began it.

    ``by`` is what resolved it, ``pid`` who does it; None where that is nobody of this machine.
    """

    pid: int | None = None
    instead_of: str = "child"
    by: str = "child"


class Inside(Struct, frozen=True):
    """What those threads of a process do that one look reads: the one that does most, and how many can run."""

    wait: ThreadWait
    running: int


class SeenWait(Struct, frozen=True):
    """One process at one look: what it did or waited for, whom for, and what those did in whose place it waits.

    ``inside`` is what its other threads did; None where they were not looked at.
    """

    wait: ThreadWait
    end: End | None = None
    instead: Followed | None = None
    inside: Inside | None = None


class WaitGraph:
    """Follows waits. Used by one thread at a time."""

    def __init__(self, proc: str, look: WaitLook, cache: HeldInodesCache, other_ends: OtherEnds) -> None:
        """``cache`` has what processes hold."""
        self._proc = proc
        self._look = look
        self._cache = cache
        self._other_ends = other_ends
        self._writers = Writers(proc)
        self._inner = InnerThreads(proc, look)
        self.services = HostServices(proc)

    def forget(self, pids: Collection[int]) -> None:
        """Forget processes that have ended: their pids may belong to others soon."""
        for pid in pids:
            self._writers.forget(pid)
            self._cache.forget(pid)
            self._inner.forget(pid)
        self._look.forget(pids)

    def look(
        self, now: float, pid: int, wait: ThreadWait, job: Job, apart: Collection[int], most_threads: int = 0
    ) -> SeenWait:
        """All that a look tells which found a process in this wait. ``apart`` are those judged by themselves.

        Of the other threads of the process ``most_threads`` may be read: all that work in a GPU process, those of
        another one while it waits for something inside itself.
        """
        threads: list[InnerThread] = []
        if job.root is None and (most_threads or wait.wait == "lock"):
            threads = self._inner.look(now, pid, job.threads, most_threads or LEAST_THREADS)
        elif most_threads and wait.wait in INSIDE:
            threads = self._inner.look(now, pid, None, most_threads)
        best = min((thread.wait for thread in threads), key=rank_of, default=None)
        running = sum(thread.wait.wait == RAN for thread in threads)
        inside = None if best is None or not most_threads else Inside(best, running)
        if wait.wait == "lock" and job.backward:
            threads += self._inner.look(now, pid, job.backward, LEAST_THREADS)
        end = self._of(now, pid, f"{self._proc}/{pid}", wait, job, MOST_STEPS, threads)
        if job.is_rank and not job.loaders and inside_rests(threads):
            end = self._of_rank(end, job)
        if wait.wait == "queue" and end is not None and end.is_only:
            wait = ThreadWait("network", wait.channel)
        elif wait.wait == "network" and job.root is None and end is not None and end.via == "socket" and end.pids:
            # A connection to a process of its own job is no network.
            wait = ThreadWait("other", wait.channel)
        return SeenWait(wait, end, self._followed(now, pid, wait, end, job, apart), inside)

    @staticmethod
    def _of_rank(end: End | None, job: Job) -> End | None:
        """What a rank waits for that has no loaders: gloo holds it in a lock, and a store asks again by a timer.

        By a timer a main thread may wait for its GPU as well: there it is told only that ranks are missing.
        """
        if end is None or (end.via, end.detail) not in (("lock", ONE_OF_MANY), ("timer", "")):
            return end
        if end.via == "timer" and RANKS_SEEN not in job.absent:
            return end
        return End(end.via, detail=OTHER_RANKS + (job.absent and f": {job.absent}"))

    def _followed(
        self, now: float, pid: int, wait: ThreadWait, end: End | None, job: Job, apart: Collection[int]
    ) -> Followed | None:
        """What is done for a process that waits for others; None where its wait is its own.

        For its child: what that does, or whom that waits for. Main, or an ancestor: it has no work. Somebody of the
        job who serves others as well, and those ``apart``, are judged by themselves.
        """
        if end is None or (end.via not in ("pipe", "socket", "child") and end.detail != DENIED_FDS):
            return None
        if wait.wait == "lock":
            # The pipe beside a lock tells who is waited for, not that anything is read.
            return None
        instead_of = "child" if end.via == "child" else wait.wait
        if end.via == "pipe" and end.detail == OUTSIDE:
            return Followed("network", by="pipe", instead_of=instead_of)
        if job.root is not None and job.root in end.pids:
            # One that polls may do so for other things as well.
            return None if wait.wait == "queue" else Followed("other", by="task queue", instead_of=instead_of)
        below = self._below(pid, apart if job.root is None and end.via != "child" else ())
        kin = below if end.detail == DENIED_FDS else end.pids
        # Those that lived too short for a look at the whole tree may wait for each other.
        job = Job(tuple(dict.fromkeys((pid, *job.pids, *below))), root=pid if job.root is None else job.root)
        done = [self._done(now, other, job, MOST_STEPS - 1) for other in kin[:MOST_READ] if other in below]
        best = min(filter(None, done), key=rank_of, default=None)
        if best is None:
            return Followed("other", by="peer", instead_of=instead_of) if end.via == "socket" and end.pids else None
        by = "kinship" if end.detail == DENIED_FDS else "child"
        return replace(best, instead_of=instead_of, by=by)

    def _done(self, now: float, pid: int, job: Job, steps: int) -> Followed | None:
        """What one process at the other end does; None once it has ended."""
        folder = f"{self._proc}/{pid}"
        found = self._look.thread(now, pid, folder)
        if found is None:
            return None
        wait = found[1]
        if wait.wait == RAN:
            return Followed(RAN, pid=pid)
        end = self._of(now, pid, folder, wait, job, 0) if steps else None
        if end is not None and end.is_only:
            return Followed("network", wait.channel, pid=pid)
        if end is not None and end.via in ("pipe", "child"):
            done = [self._done(now, other, job, steps - 1) for other in end.pids[:MOST_READ] if other != job.root]
            best = min(filter(None, done), key=rank_of, default=None)
            if best is not None:
                return best
            if end.detail == OUTSIDE:
                return Followed("network", pid=pid)
        if wait.wait in INSIDE:
            # A program's main thread often waits for its own threads, which do the work: a decoder, a compressor.
            threads = self._inner.look(now, pid, None, LEAST_THREADS)
            inner = min((thread.wait for thread in threads), key=rank_of, default=None)
            if inner is not None and inner.wait in WORK:
                wait = inner
        return Followed(wait.wait, wait.channel, wait.mount, wait.saves, pid)

    def _below(self, pid: int, apart: Collection[int]) -> tuple[int, ...]:
        """The descendants of a process, parents first, without those apart and what is below them."""
        found, queue = [], [(pid, 0)]
        for member, depth in queue:
            children = [child for child in children_of(self._proc, member) if child not in apart]
            found += children
            if depth < MOST_GENERATIONS and len(found) < 4 * MOST_READ:
                queue += [(child, depth + 1) for child in children]
        return tuple(found[: 4 * MOST_READ])

    def _of(
        self,
        now: float,
        pid: int,
        folder: str,
        wait: ThreadWait,
        job: Job,
        steps: int,
        threads: Sequence[InnerThread] = (),
    ) -> End | None:
        """What a thread waits for that was found waiting like this; None while it runs."""
        kind = wait.wait
        if kind in _PLAIN:
            return _PLAIN[kind]
        if waits_for_child(wait.channel):
            return self._child(pid, folder, job)
        if kind == "pipe":
            target = self._file(pid, folder)
            pipe = inode_in(target, "pipe")
            named = target.startswith("/") or wait.channel.startswith(OPENS_A_FIFO)
            return self._pipes(now, pid, None if pipe is None else (pipe,), job, named=named)
        if kind in ("network", "socket", LOCAL) and wait.mount is None:
            inode = inode_in(self._file(pid, folder), "socket")
            return self._socket(now, pid, inode, job, is_network=kind == "network", is_local=kind == LOCAL)
        if wait.mount is not None or kind in ("disk", BLOCKED):
            return self._disk(now, pid, folder, wait)
        if kind == "queue":
            return self._polled(now, pid, folder, job)
        if kind == "lock":
            return self._lock(now, pid, folder, job, steps, threads)
        return End("unknown", detail=wait.channel)

    def _child(self, pid: int, folder: str, job: Job) -> End:
        """The child that it waits for by number, else those alive now that are no loaders."""
        child = waited_child(folder)
        if child is not None:
            return End("child", (child,))
        others = tuple(child for child in children_of(self._proc, pid) if child not in job.loaders)
        return End("child", others[:MOST_PIDS])

    def _file(self, pid: int, folder: str) -> str:
        """Where the descriptor leads that a thread's call is for; empty where that may not be seen."""
        call = waited_call(folder)
        return "" if call is None else target_of(self._proc, pid, call[1])

    def _disk(self, now: float, pid: int, folder: str, wait: ThreadWait) -> End:
        call = waited_call(folder)
        found = None if call is None or wait.mount is not None else self._look.mounts.of(now, pid, call[1])
        mount = wait.mount if found is None else found.path
        does = "writes" if wait.saves or (call is not None and call[0] in SAVING) else "reads"
        return End("file", detail=f"{does} {mount}" if mount else does)

    def _socket(
        self, now: float, pid: int, inode: int | None, job: Job, *, is_network: bool, is_local: bool = False
    ) -> End:
        """The one of the job that holds the other end, else where it leads."""
        if inode is None:
            return End("network") if is_network else End("unknown", detail=NO_OTHER_END)
        peer = self._other_ends.local(now, inode)
        if peer is None and is_local:
            peer = unix_peer(inode)
        found = self._other_ends.tcp(now, inode) if peer is None else None
        if found is not None:
            if found[0].listens:
                return End("socket", detail=f"{LISTENS} :{found[0].ends[0][1]}")
            peer = found[1]
            here, there = found[0].ends
            if job.rank is not None and job.rank.meets_at in (here[1], there[1]):
                return End(
                    "network", detail=address_words(there) + WHERE_RANKS_MEET + (job.absent and f": {job.absent}")
                )
        holders = () if peer is None else self._holding(now, job.pids, lambda ends: peer in ends.sockets, but=pid)
        if holders:
            if found is not None:
                self.services.keep(now, found[0].ends[1])
            # Both ends were made before the fork: the first is the one that is above the others.
            return End("socket", holders[:1], written=True)
        if found is not None:
            if self._other_ends.listener(here[1]) is not None:
                # It has taken this connection: what comes in is a request.
                return End("socket", detail=f"{LISTENS} :{here[1]}")
            if peer is not None:
                self.services.note(now, there, peer, pid if job.root is None else job.root)
            return End("network", detail=address_words(there))
        if is_local and job.root is None and job.torch:
            # By a connection for each batch, which lives too short to be found, a worker hands over the descriptors of
            # its shared memory.
            return End("socket", tuple(sorted(job.torch))[:MOST_PIDS], HANDED_OVER)
        if peer is not None:
            return End("socket", detail=OUTSIDE)
        return End("network") if is_network else End("unknown", detail=NO_OTHER_END)

    def _polled(self, now: float, pid: int, folder: str, job: Job) -> End:
        """A poll is for any of its descriptors: for a pipe that somebody writes, else for a socket."""
        descriptors = polled(self._proc, pid, folder)
        if descriptors is None:
            return self._pipes(now, pid, None, job)
        if not descriptors:
            return End("timer")
        pipes: list[int] = []
        sockets: list[int] = []
        for descriptor in descriptors[:MOST_POLLED]:
            target = target_of(self._proc, pid, descriptor)
            pipe, socket = inode_in(target, "pipe"), inode_in(target, "socket")
            if pipe is not None:
                pipes.append(pipe)
            elif socket is not None:
                sockets.append(socket)
            elif target.startswith("/dev/nvidia"):
                return End("gpu")
        found = self._pipes(now, pid, pipes, job) if pipes else None
        ends = [self._socket(now, pid, inode, job, is_network=False) for inode in sockets]
        connections = [end for end in ends if end.via == "network"]
        if len(descriptors) == len(connections) == 1:
            return replace(connections[0], is_only=True)
        serves = next((end for end in ends if end.detail.startswith(LISTENS)), None)
        # What comes in over other sockets of one that listens is for it to do.
        return (
            found
            or serves
            or next((end for end in ends if end.pids), None)
            or next(iter(connections), End("unknown", detail=NO_OTHER_END if ends else "poll"))
        )

    def _pipes(self, now: float, pid: int, pipes: Iterable[int] | None, job: Job, *, named: bool = False) -> End:
        """Who was seen writing one of these pipes, else who is called a loader and holds one of them.

        ``pipes`` is None where it may not be seen which it is: then it is any that the process reads. ``named``: it is
        one of the file system.
        """
        if named:
            return End("pipe", detail=OUTSIDE)
        unseen = pipes is None
        below = self._below(pid, ())
        if pipes is None:
            # One with children makes new pipes for them.
            mine = self._cache.of(now, pid, FRESH_S if below else HELD_AGAIN_S)
            if mine is None:
                return self._by_name(job.loaders) if job.root is None else End("unknown", detail=DENIED_FDS)
            pipes = mine.reads - mine.standard
        wanted = frozenset(pipes)
        if job.root is not None:
            # What fork gave to a child it can read as well: a pipe that it only writes is its output.
            fed = lambda ends: not wanted.isdisjoint(ends.writes - ends.reads)  # noqa: E731
            output = self._holding(now, below, fed, but=pid) if below else ()
            root = self._cache.of(now, job.root)
            if output or (root is not None and not wanted.isdisjoint(root.writes)):
                # Else it waits for work: main has made that pipe, and all children of main hold an end of it.
                return End("pipe", output or (job.root,))
        family = tuple(dict.fromkeys((*job.pids, *below)))
        holders = self._holding(now, family, lambda ends: not wanted.isdisjoint(ends.writes), but=pid)
        if not holders:
            is_known = not unseen and all(self._cache.of(now, other) is not None for other in family if other != pid)
            return End("pipe", detail=OUTSIDE) if is_known else self._by_name(job.loaders)
        proven = self._writers.of(now, holders)
        if proven:
            # Where any of them is called a loader, others have written to something else.
            called = tuple(pid for pid in proven if pid in job.loaders)
            return End("name" if unseen else "pipe", (called or proven)[:MOST_PIDS], written=True)
        if len(holders) == 1 and not unseen and not self._writes_itself(now, pid, wanted):
            return End("pipe", holders)
        return self._by_name([holder for holder in holders if holder in job.loaders])

    def _by_name(self, loaders: Collection[int]) -> End:
        return End("name", tuple(sorted(loaders))[:MOST_PIDS]) if loaders else End("unknown", detail=ONE_OF_MANY)

    def _writes_itself(self, now: float, pid: int, pipes: frozenset[int]) -> bool:
        mine = self._cache.of(now, pid)
        return mine is None or not pipes.isdisjoint(mine.writes)

    def _holding(
        self, now: float, pids: Iterable[int], holds: Callable[[HeldInodes], bool], *, but: int
    ) -> tuple[int, ...]:
        """Those of ``pids`` that hold something. Where none does, lists from before it was made are made again."""
        for again_s in (HOLDERS_AGAIN_S, FRESH_S):
            asked = ((pid, self._cache.of(now, pid, again_s)) for pid in pids if pid != but)
            found = tuple(pid for pid, ends in asked if ends is not None and holds(ends))
            if found:
                return found
        return ()

    def _lock(self, now: float, pid: int, folder: str, job: Job, steps: int, threads: Sequence[InnerThread]) -> End:
        """A lock does not name its owner. One that other processes know belongs to a queue, whose pipe lies beside it;
        any other is held by one of the own threads that wait for no lock, if all of these do one kind of thing."""
        call = call_of(folder)
        if call is not None and call[0] in _FUTEX and not call[2] & _PRIVATE:
            return self._pipes(now, pid, None, job)
        ends: list[End] = []
        for thread in threads:
            end = self._held_up_by(now, pid, thread, job, steps - 1)
            if end is not None and is_pin_memory_thread(thread.name):
                # Where there is one, it can only be that.
                return end
            if end is not None:
                ends.append(end)
        written = [end for end in ends if end.written]
        several = written or ends
        if several and all(end.via == several[0].via for end in several):
            pids = tuple(dict.fromkeys(pid for end in several for pid in end.pids))
            details = {end.detail for end in several}
            detail = details.pop() if len(details) == 1 else ""
            return End(several[0].via, pids[:MOST_PIDS], detail, bool(written))
        return End("lock", detail=ONE_OF_MANY)

    def _held_up_by(self, now: float, pid: int, thread: InnerThread, job: Job, steps: int) -> End | None:
        """What one of the own threads does that may hold a lock; None where it waits for one itself."""
        wait = thread.wait
        if wait.wait == RAN:
            return End("thread", (pid,), thread.name)
        if wait.wait in ("lock", "sleep", UNREAD):
            return None
        end = self._of(now, pid, f"{self._proc}/{pid}/task/{thread.tid}", wait, job, steps)
        if end is None or end.via in ("unknown", "timer") or (end.via == "socket" and not end.pids):
            return None
        return End("thread", (pid,), end.detail) if end.via == "file" else end


def inside_rests(threads: Sequence[InnerThread]) -> bool:
    """Whether none of a process's threads that were looked at does any work."""
    return not any(thread.wait.wait in WORK for thread in threads)


def children_of(proc: str, pid: int) -> list[int]:
    """The children of a process that its main thread has made; empty where the kernel does not list them."""
    with suppress(OSError, ValueError):
        return [int(child) for child in read_small(f"{proc}/{pid}/task/{pid}/children").split()]
    return []


def waited_child(folder: str) -> int | None:
    """The child for whose end a thread waits, where it waits for one by number and that may be seen."""
    call = call_of(folder)
    return call[1] if call is not None and call[0] in _WAIT and 0 < call[1] < 1 << 31 else None


def polled(proc: str, pid: int, folder: str) -> list[int] | None:
    """The descriptors for which a thread polls to read them; None where that may not be seen.

    Only the array that the call names is read of the memory of the process.
    """
    call = call_of(folder)
    if call is None:
        return None
    number, first, second, *_ = call
    try:
        if number in _POLL:
            data = _memory(proc, pid, first, 8 * min(second, MOST_POLLED))
            return [fd for fd, events, _ in struct.iter_unpack("=ihh", data) if fd >= 0 and events & 0x41]
        if number in _SELECT:
            bits = int.from_bytes(_memory(proc, pid, second, (min(first, 1024) + 63) // 64 * 8), "little")
            return [fd for fd in range(min(first, 1024)) if bits >> fd & 1]
        if number in _EPOLL:
            lines = read_small(f"{proc}/{pid}/fdinfo/{first}").splitlines()
            return [int(line.split()[1]) for line in lines if line.startswith(b"tfd:")]
    except (OSError, ValueError, IndexError, OverflowError):
        return None
    # accept, of one descriptor.
    return [first] if number >= 0 and first < 1 << 20 else None


def _memory(proc: str, pid: int, address: int, size: int) -> bytes:
    """A few bytes of the memory of a process. Raises OSError where it may not be read."""
    if not address or not size:
        return b""
    descriptor = os.open(f"{proc}/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, size, address)
    finally:
        os.close(descriptor)
