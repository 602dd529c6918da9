"""Wait targets of a thread: pipe or socket peers, children, own threads.

Holding an end of a pipe is necessary but no proof: ``fork`` gives every end of every pipe to every child. The feeder of
a pipe is a process that holds its writing end *and* has lately written something outside of disks. A path that leads
back to its start ends there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.feeders import HANDED_OVER, OTHER_RANKS, RANKS_SEEN, WHERE_RANKS_MEET
from gputop.sources.processes.look.process_threads import (
    LEAST_THREADS,
    WORK,
    ThreadSampler,
    rank_of,
)
from gputop.sources.processes.look.system_calls import (
    MOST_POLLED,
    inode_in,
    is_shared_lock,
    link_of,
    polled,
    waited_child,
    waited_link,
)
from gputop.sources.processes.look.wait_state import (
    BLOCKED,
    INSIDE,
    LOCAL,
    RAN,
    STOPPED,
    UNREAD,
    WRITE,
    Job,
    WaitClassifier,
    WaitObservation,
    WaitState,
    WaitTarget,
    waits_for_child,
)
from gputop.sources.processes.resolve.host_services import HostServices
from gputop.sources.processes.resolve.socket_tables import (
    PeerLookup,
    TcpSocket,
    address_words,
    unix_peer,
)
from gputop.sources.processes.resolve.tracked_process import TrackedProcesses
from gputop.sources.processes.tree.loaders import is_pin_memory_thread
from gputop.sources.processes.tree.open_files import DENIED_FDS, HELD_AGAIN_S, HeldInodes
from gputop.sources.procfs import read_small

MOST_STEPS = 4
"""Limit of threads, pipes and children on one path."""
MOST_PIDS = 64
HOLDERS_AGAIN_S = 60.0
"""Lifetime of a list of open files in the search for holders: a process keeps the pipes made for it."""
FRESH_S = 2.0
"""A list without the awaited pipe or socket is read again after this time."""
MOST_GENERATIONS = 3
MOST_READ = 8
"""Limit of processes that are followed in one step of a path."""
MOST_BELOW = 32
_OPENS_A_FIFO = ("fifo_open", "wait_for_partner")

ONE_OF_MANY = "holder not seen"
OUTSIDE = "outside of the job"
LISTENS = "listens at"
_UNSEEN = WaitTarget("unknown", detail="its other end is not seen")
_HOLDER_UNSEEN = WaitTarget("unknown", detail=ONE_OF_MANY)
_OUTSIDE_PIPE = WaitTarget("pipe", detail=OUTSIDE)
_FIXED = {
    RAN: None,
    UNREAD: None,
    STOPPED: WaitTarget("stopped"),
    WRITE: WaitTarget("pipe", detail="its reader is slow"),
    "sleep": WaitTarget("timer"),
    "gpu": WaitTarget("gpu"),
}
"""States without a target in the job."""


class WaitResolver:
    """Follows waits to their targets.

    Used by one thread at a time.
    """

    def __init__(
        self,
        proc: str,
        classifier: WaitClassifier,
        tracked: TrackedProcesses,
        peers: PeerLookup,
    ) -> None:
        """Set up; ``tracked`` remembers the open pipes and sockets of processes."""
        self._proc = proc
        self._classifier = classifier
        self._tracked = tracked
        self._peers = peers
        self._threads = ThreadSampler(proc, classifier)
        self.services = HostServices(proc)
        self._children_at = float("-inf")
        self._known_children: dict[int, list[int]] = {}

    def follow_wait(
        self,
        now: float,
        pid: int,
        state: WaitState,
        job: Job,
        independent: Collection[int],
        most_threads: int = 0,
    ) -> list[WaitObservation]:
        """Return observations of a process's main thread and other threads.

        ``independent`` are the processes that are judged by themselves. ``most_threads`` limits the reads of other
        threads: a GPU process's working threads, or any other process's threads while it waits for something inside
        itself.
        """
        others = self._other_threads(now, pid, state, job, most_threads)
        threads = others
        if state.kind == "lock" and job.backward:
            threads = threads + self._sample_threads(now, pid, job.backward, LEAST_THREADS)
        target = self._target(now, pid, f"{self._proc}/{pid}", state, job, MOST_STEPS, threads)
        if target is not None:
            if job.is_rank and not job.loaders and not _do_any_work(threads):
                target = _rank_target(target, job)
            state = _state_by_target(state, target, job)
            target = self._with_activity(now, pid, state, target, job, independent)
        return [WaitObservation(now, pid, pid, state, target), *others]

    def _other_threads(
        self, now: float, pid: int, state: WaitState, job: Job, most_threads: int
    ) -> list[WaitObservation]:
        """Return the threads that may cause the main thread's wait."""
        is_main = job.root is None
        if is_main and (most_threads or state.kind == "lock"):
            return self._sample_threads(now, pid, job.threads, most_threads or LEAST_THREADS)
        if most_threads and state.kind in INSIDE:
            return self._sample_threads(now, pid, None, most_threads)
        return []

    def _sample_threads(
        self, now: float, pid: int, tids: Sequence[str] | None, limit: int
    ) -> list[WaitObservation]:
        turn = self._tracked.find(now, pid).thread_turn
        return self._threads.sample(now, pid, turn, tids, limit)

    def _with_activity(
        self,
        now: float,
        pid: int,
        state: WaitState,
        target: WaitTarget,
        job: Job,
        independent: Collection[int],
    ) -> WaitTarget:
        """Return the target with its activity, or unchanged.

        For a child, the activity is that of the child or of its own target. If the target is the main process, the
        process has no work. Processes of the job that serve others as well, and all in ``independent``, are judged by
        themselves.
        """
        # The pipe next to a lock identifies the target, but shows no read.
        if state.kind == "lock" or target.via not in ("pipe", "socket", "child"):
            return target
        if target == _OUTSIDE_PIPE:
            return replace(target, activity=WaitState("network"), evidence="pipe")
        idle = WaitState("other")
        if job.root is not None and job.root in target.pids:
            if state.kind == "queue":
                # A polling process may wait for other things as well.
                return target
            return replace(target, activity=idle, evidence="task queue")
        leaves_out = job.root is None and target.via != "child"
        below = self._below(now, pid, independent if leaves_out else ())
        named = [other for other in target.pids[:MOST_READ] if other in below]
        # Short-lived children, unknown to the discovery, may wait for each other.
        job = Job(
            tuple(dict.fromkeys((pid, *job.pids, *below))),
            root=pid if job.root is None else job.root,
        )
        active = self._most_active(now, named, job, MOST_STEPS - 1)
        if active is not None:
            return replace(target, activity=active.state, evidence="child", active_pid=active.pid)
        if target.via == "socket" and target.pids:
            return replace(target, activity=idle, evidence="peer")
        return target

    def _most_active(self, now: float, pids: Sequence[int], job: Job, steps: int) -> _Active | None:
        """Return the most active process, or its target."""
        best: _Active | None = None
        for pid in pids[:MOST_READ]:
            active = self._activity(now, pid, job, steps)
            if active is None:
                continue
            if best is None or rank_of(active.state) < rank_of(best.state):
                best = active
        return best

    def _activity(self, now: float, pid: int, job: Job, steps: int) -> _Active | None:
        """Return what a process or its target does; None once it has ended."""
        folder = f"{self._proc}/{pid}"
        found = self._classifier.classify_thread(now, pid, folder)
        if found is None:
            return None
        _, state = found
        target = self._target(now, pid, folder, state, job, 0) if steps else None
        if target is not None and target.is_only:
            return _Active(WaitState("network", state.channel), pid)
        if target is not None and target.via in ("pipe", "child"):
            others = [other for other in target.pids if other != job.root]
            active = self._most_active(now, others, job, steps - 1)
            if active is not None:
                return active
            if target.detail == OUTSIDE:
                return _Active(WaitState("network"), pid)
        if state.kind in INSIDE:
            state = self._state_inside(now, pid, state)
        return _Active(state, pid)

    def _state_inside(self, now: float, pid: int, state: WaitState) -> WaitState:
        """Return the state of a process's own thread that works, else ``state``.

        A program's main thread often waits for its own threads, which do the work: a decoder, a compressor.
        """
        threads = self._sample_threads(now, pid, None, LEAST_THREADS)
        busiest = min([thread.state for thread in threads], key=rank_of, default=state)
        return busiest if busiest.kind in WORK else state

    def _children(self, now: float, pid: int) -> list[int]:
        """Return a process's children, read once for a sample."""
        if now != self._children_at:
            self._children_at, self._known_children = now, {}
        if pid not in self._known_children:
            self._known_children[pid] = children_of(self._proc, pid)
        return self._known_children[pid]

    def _below(self, now: float, pid: int, independent: Collection[int]) -> tuple[int, ...]:
        """Return the descendants of a process, parents first.

        The subtrees of processes in ``independent`` are left out.
        """
        below, queue = list[int](), [(pid, 0)]
        for member, depth in queue:
            children = [child for child in self._children(now, member) if child not in independent]
            below += children
            if depth < MOST_GENERATIONS and len(below) < MOST_BELOW:
                queue += [(child, depth + 1) for child in children]
        return tuple(below[:MOST_BELOW])

    def _target(
        self,
        now: float,
        pid: int,
        folder: str,
        state: WaitState,
        job: Job,
        steps: int,
        threads: Sequence[WaitObservation] = (),
    ) -> WaitTarget | None:
        """Return the wait target of a thread; None while it runs."""
        kind = state.kind
        if kind in _FIXED:
            return _FIXED[kind]
        if waits_for_child(state.channel):
            child = waited_child(folder)
            # A wait may name one child by number, else it is for all that are no loaders.
            children = [each for each in self._children(now, pid) if each not in job.loaders]
            return WaitTarget("child", tuple(children[:MOST_PIDS]) if child is None else (child,))
        if state.path is not None or kind in ("disk", BLOCKED):
            does = "writes" if state.saves else "reads"
            return WaitTarget("file", detail=f"{does} {state.path or ''}".strip())
        if kind == "pipe":
            link = waited_link(self._proc, pid, folder)
            if link.startswith("/") or state.channel.startswith(_OPENS_A_FIFO):
                return _OUTSIDE_PIPE
            pipe = inode_in(link, "pipe")
            return self._pipes(now, pid, None if pipe is None else (pipe,), job)
        if kind in ("network", "socket", LOCAL):
            is_local = kind == LOCAL
            inode = state.inode
            if is_local:
                inode = inode_in(waited_link(self._proc, pid, folder), "socket")
            return self._socket(now, pid, inode, job, kind)
        if kind == "queue":
            return self._polled(now, pid, folder, job)
        if kind == "lock":
            # A lock shared with other processes belongs to a queue with a pipe.
            return (
                self._pipes(now, pid, None, job)
                if is_shared_lock(folder)
                else self._lock(now, pid, job, steps, threads)
            )
        return WaitTarget("unknown", detail=state.channel)

    def _socket(self, now: float, pid: int, inode: int | None, job: Job, kind: str) -> WaitTarget:
        """Return the job's process at a socket's other end.

        If the job has none there, return the address or the kind of the socket.
        """
        unknown = WaitTarget("network") if kind == "network" else _UNSEEN
        if inode is None:
            return unknown
        tcp = self._peers.tcp(now, inode) if kind != LOCAL else None
        if tcp is not None:
            socket, peer = tcp
            return self._tcp_peer(now, pid, socket, peer, job)
        peer = unix_peer(inode)
        holders = self._holders_of_socket(now, pid, peer, job)
        if holders:
            return WaitTarget("socket", holders[:1], written=True)
        if kind == LOCAL and job.root is None and job.torch:
            # A worker hands over the descriptors of its shared memory by a new connection for each batch, which is too
            # short-lived to be found.
            return WaitTarget("socket", tuple(sorted(job.torch))[:MOST_PIDS], HANDED_OVER)
        return unknown if peer is None else WaitTarget("socket", detail=OUTSIDE)

    def _tcp_peer(
        self, now: float, pid: int, socket: TcpSocket, peer: int | None, job: Job
    ) -> WaitTarget:
        """Return the process at the other end of a TCP connection, or its address."""
        _, there = socket.ends
        address = address_words(there)
        if not socket.listens and _is_meeting_point(socket, job):
            missing = job.absent and f": {job.absent}"
            return WaitTarget("network", detail=address + WHERE_RANKS_MEET + missing)
        holders = self._holders_of_socket(now, pid, peer, job)
        if holders:
            self.services.note_wait_again(now, there)
            return WaitTarget("socket", holders[:1], written=True)
        if socket.listens or self._peers.listener(socket.own_port) is not None:
            # The process accepts or accepted this connection: incoming data are requests.
            return WaitTarget("socket", detail=f"{LISTENS} :{socket.own_port}")
        if peer is not None:
            self.services.note_wait(now, there, peer, pid if job.root is None else job.root)
        return WaitTarget("network", detail=address)

    def _holders_of_socket(
        self, now: float, pid: int, peer: int | None, job: Job
    ) -> tuple[int, ...]:
        """Return the job's processes that hold a socket's other end.

        Both ends were made before the fork: the first holder is the ancestor of the others.
        """
        if peer is None:
            return ()
        return self._holding(now, job.pids, lambda files: peer in files.sockets, but=pid)

    def _polled(self, now: float, pid: int, folder: str, job: Job) -> WaitTarget:
        """Return the wait target of a poll.

        Any of its descriptors may end the poll: a pipe with a writer is preferred to a socket.
        """
        descriptors = polled(self._proc, pid, folder)
        if descriptors is None:
            return self._pipes(now, pid, None, job)
        if not descriptors:
            return WaitTarget("timer")
        pipes: list[int] = []
        targets: list[WaitTarget] = []
        links = [link_of(self._proc, pid, descriptor) for descriptor in descriptors[:MOST_POLLED]]
        for link in links:
            if link.startswith("/dev/nvidia"):
                return WaitTarget("gpu")
            pipe = inode_in(link, "pipe")
            if pipe is not None:
                pipes.append(pipe)
        if pipes:
            return self._pipes(now, pid, pipes, job)
        for link in links:
            socket = inode_in(link, "socket")
            if socket is not None:
                targets.append(self._socket(now, pid, socket, job, "queue"))
        return _of_sockets(targets, is_single=len(descriptors) == 1)

    def _pipes(self, now: float, pid: int, pipes: Iterable[int] | None, job: Job) -> WaitTarget:
        """Return the writers of pipes, or the loaders that hold one.

        ``pipes`` is None if the awaited pipe is unknown: any pipe that the process reads may be awaited.
        """
        unseen = pipes is None
        below = self._below(now, pid, ())
        if pipes is None:
            # A process with children makes new pipes for them.
            mine = self._tracked.held_by(now, pid, FRESH_S if below else HELD_AGAIN_S)
            if mine is None:
                return (
                    _by_name(job.loaders)
                    if job.root is None
                    else WaitTarget("unknown", detail=DENIED_FDS)
                )
            pipes = mine.reads - mine.standard
        wanted = frozenset(pipes)
        if job.root is not None:
            # A child can read all pipes from fork: a pipe that it only writes is its output.
            output = self._holding(
                now, below, lambda files: not wanted.isdisjoint(files.writes - files.reads), but=pid
            )
            root = self._tracked.held_by(now, job.root)
            if output or (root is not None and not wanted.isdisjoint(root.writes)):
                # Otherwise the process waits for work: the main process made the pipe, and all its children hold an end
                # of it.
                return WaitTarget("pipe", output or (job.root,))
        family = [other for other in dict.fromkeys((*job.pids, *below)) if other != pid]
        holders = self._holding(
            now, family, lambda files: not wanted.isdisjoint(files.writes), but=pid
        )
        if not holders:
            is_known = not unseen and all(
                self._tracked.held_by(now, other) is not None for other in family
            )
            return _OUTSIDE_PIPE if is_known else _by_name(job.loaders)
        proven = self._tracked.writers(now, holders)
        if proven:
            # If any of them is named as a loader, the others have written to something else.
            called = tuple(pid for pid in proven if pid in job.loaders)
            return WaitTarget(
                "name" if unseen else "pipe", (called or proven)[:MOST_PIDS], written=True
            )
        if len(holders) == 1 and not unseen:
            mine = self._tracked.held_by(now, pid)
            if mine is not None and wanted.isdisjoint(mine.writes):
                return WaitTarget("pipe", holders)
        return _by_name([holder for holder in holders if holder in job.loaders])

    def _holding(
        self, now: float, pids: Iterable[int], holds: Callable[[HeldInodes], bool], *, but: int
    ) -> tuple[int, ...]:
        """Return the ``pids`` whose open files satisfy ``holds``.

        If there are none, outdated lists are read again.
        """
        for again_s in (HOLDERS_AGAIN_S, FRESH_S):
            files = [(pid, self._tracked.held_by(now, pid, again_s)) for pid in pids if pid != but]
            holders = tuple(pid for pid, held in files if held is not None and holds(held))
            if holders:
                return holders
        return ()

    def _lock(
        self, now: float, pid: int, job: Job, steps: int, threads: Sequence[WaitObservation]
    ) -> WaitTarget:
        """Return the probable owner of a lock.

        A lock does not name its owner. It is held by a thread of the process that waits for no lock, if all such
        threads have the same kind of target.
        """
        owners: list[WaitTarget] = []
        for thread in threads:
            owner = self._held_up_by(now, pid, thread, job, steps - 1)
            if owner is not None and is_pin_memory_thread(thread.name):
                # The pin-memory thread is the only possible owner.
                return owner
            if owner is not None:
                owners.append(owner)
        return _common_owner([owner for owner in owners if owner.written] or owners)

    def _held_up_by(
        self, now: float, pid: int, thread: WaitObservation, job: Job, steps: int
    ) -> WaitTarget | None:
        """Return the target of a thread that may hold a lock.

        None if the thread waits for a lock itself.
        """
        state = thread.state
        if state.kind == RAN:
            return WaitTarget("thread", (pid,), thread.name)
        if state.kind in ("lock", "sleep", UNREAD):
            return None
        target = self._target(now, pid, f"{self._proc}/{pid}/task/{thread.tid}", state, job, steps)
        if (
            target is None
            or target.via in ("unknown", "timer")
            or (target.via == "socket" and not target.pids)
        ):
            return None
        return WaitTarget("thread", (pid,), target.detail) if target.via == "file" else target


class _Active(Struct, frozen=True):
    """What a process at the end of a path does; its pid is None if it is not on this machine."""

    state: WaitState
    pid: int | None


def _do_any_work(threads: Iterable[WaitObservation]) -> bool:
    return any(thread.state.kind in WORK for thread in threads)


def _is_meeting_point(socket: TcpSocket, job: Job) -> bool:
    """Return whether the ranks of a job meet at either end of a connection."""
    if job.rank is None:
        return False
    return job.rank.meets_at in (socket.own_port, socket.peer_port)


def _state_by_target(state: WaitState, target: WaitTarget, job: Job) -> WaitState:
    """Return a main thread's state, corrected by whom it waits for."""
    if state.kind == "queue" and target.is_only:
        return WaitState("network", state.channel)
    is_in_the_job = target.via == "socket" and bool(target.pids)
    if state.kind == "network" and job.root is None and is_in_the_job:
        # A connection to a process of the same job is no network wait.
        return WaitState("other", state.channel)
    return state


def _of_sockets(targets: Sequence[WaitTarget], *, is_single: bool) -> WaitTarget:
    """Return the target of a poll of sockets alone.

    ``is_single``: the poll covers one descriptor. A process that listens is responsible for data from its other
    sockets.
    """
    if not targets:
        return WaitTarget("unknown", detail="poll")
    connections = [target for target in targets if target.via == "network"]
    if is_single and len(connections) == 1:
        return replace(connections.pop(), is_only=True)
    for target in targets:
        if target.detail.startswith(LISTENS):
            return target
    for target in targets:
        if target.pids:
            return target
    return next(iter(connections), _UNSEEN)


def _common_owner(owners: Sequence[WaitTarget]) -> WaitTarget:
    """Return the probable owner of a lock: all that may hold it must wait for the same kind of target."""
    vias = {owner.via for owner in owners}
    if len(vias) != 1:
        return WaitTarget("lock", detail=ONE_OF_MANY)
    pids: dict[int, None] = {}
    for owner in owners:
        pids.update(dict.fromkeys(owner.pids))
    details = {owner.detail for owner in owners}
    return WaitTarget(
        via=vias.pop(),
        pids=tuple(pids)[:MOST_PIDS],
        detail=details.pop() if len(details) == 1 else "",
        written=any(owner.written for owner in owners),
    )


def _by_name(loaders: Collection[int]) -> WaitTarget:
    return WaitTarget("name", tuple(sorted(loaders))[:MOST_PIDS]) if loaders else _HOLDER_UNSEEN


def _rank_target(target: WaitTarget, job: Job) -> WaitTarget:
    """Return the wait target of a rank without loaders.

    gloo waits in a lock, and a store polls by a timer. A main thread may also wait for its GPU by a timer: that target
    is replaced only if ranks are missing.
    """
    by_timer = target == _FIXED["sleep"] and RANKS_SEEN in job.absent
    if by_timer or target == WaitTarget("lock", detail=ONE_OF_MANY):
        return WaitTarget(target.via, detail=OTHER_RANKS + (job.absent and f": {job.absent}"))
    return target


def children_of(proc: str, pid: int) -> list[int]:
    """Return the children of a process's main thread.

    Empty if the kernel does not list them.
    """
    with suppress(OSError, ValueError):
        return [int(child) for child in read_small(f"{proc}/{pid}/task/{pid}/children").split()]
    return []
