"""What happens between two readings: looks at random moments, what short-lived children do, and which GPUs wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from gputop.sources.processes.process_sockets import held
from gputop.sources.processes.wait_channel import waits_for_child
from gputop.sources.processes.wait_graph import End, Job, WaitGraph, waited_child
from gputop.sources.processes.wait_look import RAN, ThreadWait, WaitLook
from gputop.sources.procfs import Descriptors, ProcessFiles, parse_stat, read_small
from gputop.system.worker import Worker

if TYPE_CHECKING:
    from random import Random

# What the children alive at one look do, for a process that waits for them: most live for too short a time for more.
#
# A shell that pipes a download into a decoder is waited for as one: the one among them that computes, reads a disk or
# waits for the network is what the wait is for.

MOST_GENERATIONS = 3
MOST_READ = 8
"""Descendants of one process that one look reads."""
_RANKS = (RAN, "disk", "blocked", "network", "socket", "queue", "sleep", "lock", "other")
"""What one of them does counts before what another does, in this order."""


class Descendant(ThreadWait, frozen=True):
    """A descendant at one look, with its pid. ``instead_of`` is the wait of the process that waits for it."""

    pid: int = 0
    instead_of: str = "child"


class Descendants:
    """Looks at the descendants of processes that wait. Used by one thread at a time."""

    def __init__(self, proc: str, look: WaitLook) -> None:
        self._proc = proc
        self._look = look

    def doing(self, now: float, pid: int, wait: ThreadWait, apart: Collection[int]) -> Descendant | None:
        """What a process is waiting for that was ``wait`` waiting for a child or a pipe; None where it is for no child.

        ``apart`` are processes that are judged by themselves. Only children that write the pipe count; where the
        pipes cannot be seen, all.
        """
        for_child = waits_for_child(wait.channel)
        named = waited_child(f"{self._proc}/{pid}") if for_child else None
        children = [named] if named is not None else [child for child in self._children(pid) if child not in apart]
        if not children or wait.fifo:
            return None
        pipes: frozenset[int] | None = None
        if not for_child:
            pipes = frozenset((wait.pipe,)) if wait.pipe is not None else self._read_by(pid)
            if pipes is not None and not pipes:
                return None
        best: Descendant | None = None
        budget = MOST_READ
        for child in children:
            family = list(self._family(child, apart, budget))
            budget -= len(family)
            if for_child or pipes is None or any(self._writes(member, pipes) for member in family):
                for member in family:
                    descendant = self._at(now, member, "child" if for_child else wait.wait)
                    if descendant is not None and (best is None or _rank(descendant) < _rank(best)):
                        best = descendant
            if budget <= 0:
                break
        return best

    def _children(self, pid: int) -> list[int]:
        try:
            return [int(child) for child in read_small(f"{self._proc}/{pid}/task/{pid}/children").split()]
        except (OSError, ValueError):
            return []

    def _family(self, pid: int, apart: Collection[int], limit: int) -> Iterator[int]:
        """A child and its own descendants, parents first."""
        queue = [(pid, 0)]
        for member, depth in queue:
            try:
                stat = parse_stat(read_small(f"{self._proc}/{member}/stat"))
            except OSError:
                continue
            if stat is None or stat.state in "ZX" or limit <= 0:
                continue
            limit -= 1
            yield member
            if depth < MOST_GENERATIONS:
                queue += [(child, depth + 1) for child in self._children(member) if child not in apart]

    def _at(self, now: float, pid: int, instead_of: str) -> Descendant | None:
        folder = f"{self._proc}/{pid}"
        try:
            stat = parse_stat(read_small(f"{folder}/stat"))
            channel = read_small(f"{folder}/wchan").decode("ascii", "replace")
        except OSError:
            return None
        if stat is None or stat.state in "ZX":
            return None
        if stat.state == "R":
            return Descendant(RAN, pid=pid, instead_of=instead_of)
        wait = self._look.at(now, pid, folder, channel)
        if wait.wait == RAN:
            # Asleep, and the kernel names no function.
            return Descendant("disk" if stat.state == "D" else "other", pid=pid, instead_of=instead_of)
        return Descendant(
            wait.wait, wait.channel, wait.pipe, wait.fifo, wait.mount, wait.socket, wait.saves, pid, instead_of
        )  # fmt: skip

    def _read_by(self, pid: int) -> frozenset[int] | None:
        """The pipes that a process reads, without those that it also writes; None where they cannot be seen."""
        mine = held(self._proc, pid)
        return None if mine is None else mine.reads - mine.writes

    def _writes(self, pid: int, pipes: frozenset[int]) -> bool:
        """Whether a process writes one of these pipes; taken for granted where that cannot be seen."""
        ends = held(self._proc, pid)
        # A forked worker inherits both ends of every queue: a pipe that it also reads is not its output.
        return ends is None or bool(pipes & (ends.writes - ends.reads))


def _rank(wait: ThreadWait) -> int:
    return _RANKS.index(wait.wait) if wait.wait in _RANKS else len(_RANKS)


# Looks between two readings, at random moments: a job whose step time divides the interval would otherwise always be
# seen at the same point of its step, and seem to wait only for what it waits for there.

LEAST_LOOKS, MOST_LOOKS = 2, 6
"""Looks between two readings, each at a random moment of its share of the time: over half a minute 180 looks tell a
share to within three points."""
READ_OF_MAINS = 20
"""Main threads that all looks between two readings may read, where that is more than the least takes."""
LEAST_OTHERS = 4
LONGEST_S = 5.0
WORKS = ("run", "disk", "blocked", "network")
OF_A_START = 2
"""The first readings follow each other at once, so their distance does not predict the next one."""
MOST_AT_ONCE = 16
"""Processes of each kind that one look covers; more take turns. Of others than GPU processes, one look in two does."""
MOST_OPEN = 64
"""Wait channels that stay open between looks: reading one again costs a third of opening it."""


NO_JOBS: Mapping[int, Job] = MappingProxyType({})


class _Turns:
    """Picks some of many items, all in turn."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, pids: Sequence[int], limit: int = MOST_AT_ONCE) -> Sequence[int]:
        if len(pids) <= limit:
            return pids
        begin = self._next % len(pids)
        self._next = begin + limit
        return [*pids[begin:], *pids[:begin]][:limit]


class RandomLooks:
    """Looks at what some processes wait for after each reading, on a thread of its own.

    ``also`` is called once between two readings, under ``lock``, for other reads that must not be in step with them.
    ``look`` is used by that thread under the lock as well.
    """

    def __init__(self, proc: str, look: WaitLook, graph: WaitGraph, also: Callable[[float], None]) -> None:
        self._proc = proc
        self._graph = graph
        self._look_inside = also
        self._at = look
        self._descendants = Descendants(proc, look)
        self._random: Random | None = None
        """Created, and imported, with the thread: most starts need neither."""
        self._worker = Worker("looks", self._look_now_and_then, close=lambda: self._forget(list(self._files)))
        self._mains: Sequence[int] = ()
        self._others: Sequence[int] = ()
        self._apart: Collection[int] = ()
        self._jobs: Mapping[int, Job] = {}
        self._ends: dict[int, list[End]] = {}
        self._parents: Collection[int] = ()
        self._main_turns, self._other_turns = _Turns(), _Turns()
        self._descriptors = Descriptors(MOST_OPEN)
        self._files: dict[int, ProcessFiles] = {}
        """By pid. An open file belongs to the process, not to its pid: reading it fails once the process has ended."""
        self._due: list[float] = []
        self._last: float | None = None
        self._readings = 0
        self._waits: dict[int, list[ThreadWait]] = {}
        self.lock = threading.Lock()

    def take(self) -> tuple[dict[int, list[ThreadWait]], dict[int, list[End]]]:
        """What each process was seen doing at the looks since the last call; a ``Descendant`` where that is for it.

        Beside it whom each main thread waited for, once for each look that did not find it running."""
        with self.lock:
            waits, self._waits = self._waits, {}
            ends, self._ends = self._ends, {}
        return waits, ends

    def ask(
        self,
        mains: Sequence[int],
        others: Sequence[int] = (),
        apart: Collection[int] = (),
        parents: Collection[int] = (),
        jobs: Mapping[int, Job] = NO_JOBS,
    ) -> None:
        """Look at ``mains`` each time, and at ``others`` as often as fits, if the next reading comes about on time.

        ``apart`` are processes that do not count as children, because they are judged by themselves; ``parents`` have
        or had children: others that poll do so for something else. ``jobs`` are those of the main threads.
        """
        now = time.monotonic()
        last, self._last = self._last, now
        self._mains, self._others, self._apart = mains, others, apart
        self._parents, self._jobs = parents, jobs
        # The time of the next reading is predicted by the last two; until then there are no looks and no thread.
        self._readings += 1
        if last is None or self._readings <= OF_A_START or not (mains or others):
            return
        span = min(LONGEST_S, now - last)
        if self._random is None:
            from random import Random

            self._random = Random()
        looks = max(LEAST_LOOKS, min(MOST_LOOKS, READ_OF_MAINS // max(1, len(mains))))
        self._due = [now + span * (part + self._random.random()) / looks for part in range(looks)]
        self._worker.ask()

    def close(self) -> None:
        """End the thread."""
        self._worker.stop()

    def _look_now_and_then(self) -> None:
        """Look at each moment that is due, until new ones are."""
        assert self._random is not None
        due = self._due
        first, other_limit = self._random.randrange(len(due)), max(LEAST_OTHERS, MOST_AT_ONCE // len(due))
        for number, moment in enumerate(due):
            if self._worker.stopping.wait(max(0.0, moment - time.monotonic())) or due is not self._due:
                break
            with self.lock:
                now = time.monotonic()
                self._look(now, self._main_turns.take(self._mains))
                self._look(now, self._other_turns.take(self._others, other_limit))
                if number == first:
                    self._look_inside(now)
        self._forget(self._files.keys() - {*self._mains, *self._others})

    def _look(self, now: float, pids: Sequence[int]) -> None:
        for pid in pids:
            files = self._files.get(pid)
            if files is None:
                files = self._files[pid] = ProcessFiles(f"{self._proc}/{pid}", self._descriptors)
            try:
                channel = files.read("wchan").decode("ascii", "replace")
            except OSError:
                self._forget((pid,))
                continue
            wait = self._at.at(now, pid, f"{self._proc}/{pid}", channel, files)
            job = self._jobs.get(pid)
            end = None if job is None else self._graph.end_of(now, pid, wait, job)
            if end is not None:
                self._ends.setdefault(pid, []).append(end)
            self._waits.setdefault(pid, []).append(self._for_whom(now, pid, wait))

    def _for_whom(self, now: float, pid: int, wait: ThreadWait) -> ThreadWait:
        """What its children do, where a process waits for them."""
        is_for_another = wait.wait == "pipe" or (wait.wait == "queue" and pid in self._parents)
        if is_for_another or waits_for_child(wait.channel):
            doing = self._descendants.doing(now, pid, wait, self._apart)
            if doing is None and wait.pipe is not None and pid in self._parents:
                wait = self._at.pipe_now(now, pid, f"{self._proc}/{pid}", wait.channel)
                doing = self._descendants.doing(now, pid, wait, self._apart)
            # A poll is for any of many things: it is for a child that does something.
            if doing is not None and (wait.wait != "queue" or doing.wait in WORKS):
                return doing
        return wait

    def _forget(self, pids: Iterable[int]) -> None:
        for pid in pids:
            self._files.pop(pid).close()


# Which GPUs wait: their mean utilisation over some seconds, so that one quiet sample does not cost a close look.

WAITS_BELOW_UTIL = 85.0
"""Below this mean utilisation a GPU's feeders are watched closely: starvation begins at 80."""
MEAN_S = 10.0


class WaitingGpus:
    """The means by the GPUs' indices."""

    def __init__(self) -> None:
        self._means: dict[int, float] = {}
        self.at: float | None = None
        """Monotonic time of the latest values."""

    def observe(self, now: float, util: Mapping[int, float | None]) -> None:
        """Add the utilisation of each GPU, percent."""
        weight = 1.0 if self.at is None else min(1.0, max(0.0, (now - self.at) / MEAN_S))
        self.at = now
        for gpu, value in util.items():
            if value is not None:
                before = self._means.get(gpu, value)
                self._means[gpu] = before + weight * (value - before)

    def waits(self, gpu: int, *, unknown: bool) -> bool:
        """Whether a GPU waits; ``unknown`` where its utilisation has never been known."""
        mean = self._means.get(gpu)
        return unknown if mean is None else mean < WAITS_BELOW_UTIL

    def busy(self, gpu: int) -> float:
        """Mean utilisation as a share; 0 where it is unknown."""
        return self._means.get(gpu, 0.0) / 100.0
