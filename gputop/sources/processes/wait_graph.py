"""Wait targets of a thread: pipe or socket peers, children, own threads.

Holding an end of a pipe is necessary but no proof: ``fork`` gives every end of every pipe to every child. The feeder of
a pipe is a process that holds its writing end *and* has lately written something outside of disks. A path that leads
back to its start ends there. Formats: proc(5), poll(2), select(2), and the tables of system calls of asm/unistd.h.
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
"""Limit of threads, pipes and children on one path."""
MOST_POLLED = 64
"""Limit of descriptors of one poll that are resolved."""
MOST_PIDS = 64
WROTE_S = 60.0
"""A process counts as a writer of its pipes for this long after its last write: a batch may take that long [judged]."""
COUNTED_AGAIN_S = 2.0
HOLDERS_AGAIN_S = 60.0
"""Lifetime of a list of open files in the search for holders: a process keeps the pipes made for it."""
FRESH_S = 2.0
"""A list without the awaited pipe or socket is read again after this time."""
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
    """Wait target of a thread in one sample, see ``WaitEnd``.

    ``written``: the named processes were seen to write.
    """

    via: Via
    pids: tuple[int, ...] = ()
    detail: str = ""
    written: bool = False
    is_only: bool = False
    """The poll covers a single connection, as with a timeout on a socket: nothing else can end the wait."""


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
"""Waits without a target in the job."""


class _Counted(Struct):
    """Bytes that a process wrote to anything but disks.

    Disk writes count in whole pages, so the difference may be too low. ``at`` is the time of the count, ``grown_at``
    the time of its last growth.
    """

    at: float
    elsewhere: int
    grown_at: float = float("-inf")


class Writers:
    """Finds processes that write to pipes, by /proc/PID/io.

    ``wchar`` counts bytes given to write(2), ``write_bytes`` those written to a disk, in whole pages. The difference
    went to pipes, terminals or file systems without a disk. ``send`` counts in neither.
    """

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._counted: dict[int, _Counted | None] = {}

    def of(self, now: float, pids: Iterable[int]) -> tuple[int, ...]:
        """Return the processes that wrote within the last minute.

        If there are none, return those that ever did. ``now`` is monotonic s.
        """
        counted = {pid: self._count(now, pid) for pid in pids}
        seen = tuple(pid for pid, c in counted.items() if c is not None and now - c.grown_at <= WROTE_S)
        return seen or tuple(pid for pid, c in counted.items() if c is not None and c.elsewhere > 0)

    def forget(self, pid: int) -> None:
        """Forget an exited process."""
        self._counted.pop(pid, None)

    def _count(self, now: float, pid: int) -> _Counted | None:
        """Return a process's counters; None if they are not readable."""
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
    """Possible wait targets: the other processes of one GPU process.

    ``loaders`` are named as loaders; if PyTorch's workers are among them, only these. ``threads`` are the tids of the
    GPU process that could delay its main thread.
    """

    pids: tuple[int, ...] = ()
    loaders: frozenset[int] = frozenset()
    threads: Sequence[str] = ()
    root: int | None = None
    """The GPU process, if the wait of another process is followed."""
    rank: RunRank | None = None
    """The GPU process's rank in a run of several."""
    is_rank: bool = False
    """Whether its threads or its environment show that it is one of several ranks."""
    torch: frozenset[int] = frozenset()
    """Worker processes of PyTorch's DataLoader."""
    absent: str = ""
    """Missing ranks, in words."""
    backward: Sequence[str] = ()
    """Threads in which the GPU process computes gradients: its main thread waits for them by a lock."""


NO_JOB = Job()
OPENS_A_FIFO = ("fifo_open", "wait_for_partner")
MOST_GENERATIONS = 3
MOST_READ = 8
"""Limit of processes that are followed in one step of a path."""
INSIDE = ("lock", "queue", "sleep", "other", LOCAL)
"""Waits of a main thread that its own process's threads may cause."""


class Followed(ThreadWait, frozen=True):
    """Activity of the process at the other end of a wait.

    ``instead_of`` is the class of the wait, ``by`` the evidence that resolved it. ``pid`` is the active process; None
    if it is not on this machine or not known.
    """

    pid: int | None = None
    instead_of: str = "child"
    by: str = "child"


class Inside(Struct, frozen=True):
    """Most active of a process's sampled threads, and the running count."""

    wait: ThreadWait
    running: int


class SeenWait(Struct, frozen=True):
    """One observation: the thread's wait state, target and target's activity.

    ``inside`` is the activity of its other threads; None if they were not sampled.
    """

    wait: ThreadWait
    end: End | None = None
    instead: Followed | None = None
    inside: Inside | None = None


class WaitGraph:
    """Follows waits to their targets.

    Used by one thread at a time.
    """

    def __init__(self, proc: str, look: WaitLook, cache: HeldInodesCache, other_ends: OtherEnds) -> None:
        """Set up; ``cache`` contains the open pipes and sockets of processes."""
        self._proc = proc
        self._look = look
        self._cache = cache
        self._other_ends = other_ends
        self._writers = Writers(proc)
        self._inner = InnerThreads(proc, look)
        self.services = HostServices(proc)

    def forget(self, pids: Collection[int]) -> None:
        """Forget exited processes: their pids may be reused soon."""
        for pid in pids:
            self._writers.forget(pid)
            self._cache.forget(pid)
            self._inner.forget(pid)
        self._look.forget(pids)

    def look(
        self, now: float, pid: int, wait: ThreadWait, job: Job, apart: Collection[int], most_threads: int = 0
    ) -> SeenWait:
        """Return the full observation of a process in a wait.

        ``apart`` are the processes that are judged by themselves. ``most_threads`` limits the reads of other threads: a
        GPU process's working threads, or any other process's threads while it waits for something inside itself.
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
            # A connection to a process of the same job is no network wait.
            wait = ThreadWait("other", wait.channel)
        return SeenWait(wait, end, self._followed(now, pid, wait, end, job, apart), inside)

    @staticmethod
    def _of_rank(end: End | None, job: Job) -> End | None:
        """Return the wait target of a rank without loaders.

        gloo waits in a lock, and a store polls by a timer. A main thread may also wait for its GPU by a timer: that
        target is replaced only if ranks are missing.
        """
        if end is None or (end.via, end.detail) not in (("lock", ONE_OF_MANY), ("timer", "")):
            return end
        if end.via == "timer" and RANKS_SEEN not in job.absent:
            return end
        return End(end.via, detail=OTHER_RANKS + (job.absent and f": {job.absent}"))

    def _followed(
        self, now: float, pid: int, wait: ThreadWait, end: End | None, job: Job, apart: Collection[int]
    ) -> Followed | None:
        """Return the activity of the wait target, or None.

        None if the wait belongs to the process itself. For a child, the result is the activity of the child or of its
        own target. If the target is the main process, the process has no work. Processes of the job that serve others
        as well, and all in ``apart``, are judged by themselves.
        """
        if end is None or (end.via not in ("pipe", "socket", "child") and end.detail != DENIED_FDS):
            return None
        if wait.wait == "lock":
            # The pipe next to a lock identifies the target, but shows no read.
            return None
        instead_of = "child" if end.via == "child" else wait.wait
        if end.via == "pipe" and end.detail == OUTSIDE:
            return Followed("network", by="pipe", instead_of=instead_of)
        if job.root is not None and job.root in end.pids:
            # A polling process may wait for other things as well.
            return None if wait.wait == "queue" else Followed("other", by="task queue", instead_of=instead_of)
        below = self._below(pid, apart if job.root is None and end.via != "child" else ())
        kin = below if end.detail == DENIED_FDS else end.pids
        # Short-lived children, unknown to the discovery, may wait for each other.
        job = Job(tuple(dict.fromkeys((pid, *job.pids, *below))), root=pid if job.root is None else job.root)
        done = [self._done(now, other, job, MOST_STEPS - 1) for other in kin[:MOST_READ] if other in below]
        best = min(filter(None, done), key=rank_of, default=None)
        if best is None:
            return Followed("other", by="peer", instead_of=instead_of) if end.via == "socket" and end.pids else None
        by = "kinship" if end.detail == DENIED_FDS else "child"
        return replace(best, instead_of=instead_of, by=by)

    def _done(self, now: float, pid: int, job: Job, steps: int) -> Followed | None:
        """Return the activity of one wait target; None once it has ended."""
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
        """Return the descendants of a process, parents first.

        The subtrees of processes in ``apart`` are left out.
        """
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
        """Return the wait target of a thread; None while it runs."""
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
        """Return the awaited child, or all children that are no loaders.

        A wait may name one child by number.
        """
        child = waited_child(folder)
        if child is not None:
            return End("child", (child,))
        others = tuple(child for child in children_of(self._proc, pid) if child not in job.loaders)
        return End("child", others[:MOST_PIDS])

    def _file(self, pid: int, folder: str) -> str:
        """Return the link of the descriptor in a thread's system call.

        Empty if it is not readable.
        """
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
        """Return the job's process at a socket's other end.

        If the job has none there, return the address or the kind of the socket.
        """
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
            # Both ends were made before the fork: the first holder is the ancestor of the others.
            return End("socket", holders[:1], written=True)
        if found is not None:
            if self._other_ends.listener(here[1]) is not None:
                # The process accepted this connection: incoming data are requests.
                return End("socket", detail=f"{LISTENS} :{here[1]}")
            if peer is not None:
                self.services.note(now, there, peer, pid if job.root is None else job.root)
            return End("network", detail=address_words(there))
        if is_local and job.root is None and job.torch:
            # A worker hands over the descriptors of its shared memory by a new connection for each batch, which is too
            # short-lived to be found.
            return End("socket", tuple(sorted(job.torch))[:MOST_PIDS], HANDED_OVER)
        if peer is not None:
            return End("socket", detail=OUTSIDE)
        return End("network") if is_network else End("unknown", detail=NO_OTHER_END)

    def _polled(self, now: float, pid: int, folder: str, job: Job) -> End:
        """Return the wait target of a poll.

        Any of its descriptors may end the poll: a pipe with a writer is preferred to a socket.
        """
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
        # A process that listens is responsible for data from its other sockets.
        return (
            found
            or serves
            or next((end for end in ends if end.pids), None)
            or next(iter(connections), End("unknown", detail=NO_OTHER_END if ends else "poll"))
        )

    def _pipes(self, now: float, pid: int, pipes: Iterable[int] | None, job: Job, *, named: bool = False) -> End:
        """Return the writers of pipes, or the loaders that hold one.

        ``pipes`` is None if the awaited pipe is unknown: any pipe that the process reads may be awaited. ``named``: the
        pipe has a name in the file system.
        """
        if named:
            return End("pipe", detail=OUTSIDE)
        unseen = pipes is None
        below = self._below(pid, ())
        if pipes is None:
            # A process with children makes new pipes for them.
            mine = self._cache.of(now, pid, FRESH_S if below else HELD_AGAIN_S)
            if mine is None:
                return self._by_name(job.loaders) if job.root is None else End("unknown", detail=DENIED_FDS)
            pipes = mine.reads - mine.standard
        wanted = frozenset(pipes)
        if job.root is not None:
            # A child can read all pipes from fork: a pipe that it only writes is its output.
            fed = lambda ends: not wanted.isdisjoint(ends.writes - ends.reads)  # noqa: E731
            output = self._holding(now, below, fed, but=pid) if below else ()
            root = self._cache.of(now, job.root)
            if output or (root is not None and not wanted.isdisjoint(root.writes)):
                # Otherwise the process waits for work: the main process made the pipe, and all its children hold an end
                # of it.
                return End("pipe", output or (job.root,))
        family = tuple(dict.fromkeys((*job.pids, *below)))
        holders = self._holding(now, family, lambda ends: not wanted.isdisjoint(ends.writes), but=pid)
        if not holders:
            is_known = not unseen and all(self._cache.of(now, other) is not None for other in family if other != pid)
            return End("pipe", detail=OUTSIDE) if is_known else self._by_name(job.loaders)
        proven = self._writers.of(now, holders)
        if proven:
            # If any of them is named as a loader, the others have written to something else.
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
        """Return the ``pids`` whose open files satisfy ``holds``.

        If there are none, outdated lists are read again.
        """
        for again_s in (HOLDERS_AGAIN_S, FRESH_S):
            asked = ((pid, self._cache.of(now, pid, again_s)) for pid in pids if pid != but)
            found = tuple(pid for pid, ends in asked if ends is not None and holds(ends))
            if found:
                return found
        return ()

    def _lock(self, now: float, pid: int, folder: str, job: Job, steps: int, threads: Sequence[InnerThread]) -> End:
        """Return the probable owner of a lock.

        A lock does not name its owner. A lock shared with other processes belongs to a queue with a pipe. Any other
        lock is held by a thread of the process that waits for no lock, if all such threads have the same kind of
        target.
        """
        call = call_of(folder)
        if call is not None and call[0] in _FUTEX and not call[2] & _PRIVATE:
            return self._pipes(now, pid, None, job)
        ends: list[End] = []
        for thread in threads:
            end = self._held_up_by(now, pid, thread, job, steps - 1)
            if end is not None and is_pin_memory_thread(thread.name):
                # The pin-memory thread is the only possible owner.
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
        """Return the target of a thread that may hold a lock.

        None if the thread waits for a lock itself.
        """
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
    """Return whether none of the sampled threads does any work."""
    return not any(thread.wait.wait in WORK for thread in threads)


def children_of(proc: str, pid: int) -> list[int]:
    """Return the children of a process's main thread.

    Empty if the kernel does not list them.
    """
    with suppress(OSError, ValueError):
        return [int(child) for child in read_small(f"{proc}/{pid}/task/{pid}/children").split()]
    return []


def waited_child(folder: str) -> int | None:
    """Return the child that a thread waits for by number.

    None if there is none, or if the system call is not readable.
    """
    call = call_of(folder)
    return call[1] if call is not None and call[0] in _WAIT and 0 < call[1] < 1 << 31 else None


def polled(proc: str, pid: int, folder: str) -> list[int] | None:
    """Return the descriptors that a thread polls for reading.

    None if they are not readable. Only the array that the call names is read from the process's memory.
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
    # accept(2) waits for one descriptor.
    return [first] if number >= 0 and first < 1 << 20 else None


def _memory(proc: str, pid: int, address: int, size: int) -> bytes:
    """Read a few bytes of a process's memory. Raises OSError."""
    if not address or not size:
        return b""
    descriptor = os.open(f"{proc}/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, size, address)
    finally:
        os.close(descriptor)
