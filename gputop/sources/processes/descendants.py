"""What the children alive at one look do, for a process that waits for them: most live for too short a time for more.

A shell that pipes a download into a decoder is waited for as one: whoever of them computes, reads a disk or waits for
the network is what the wait is for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gputop.sources.processes.process_sockets import held
from gputop.sources.processes.wait_channel import waits_for_child
from gputop.sources.processes.wait_look import RAN, Seen, WaitLook
from gputop.sources.procfs import parse_stat, read_small

MOST_GENERATIONS = 3
MOST_READ = 8
"""Descendants of one process that one look reads."""
_RANKS = (RAN, "disk", "blocked", "network", "socket", "queue", "sleep", "lock", "other")
"""What one of them does counts before what another does, in this order."""


class Descendant(Seen, frozen=True):
    """A descendant at one look, with its pid. ``instead_of`` is the wait of the process that waits for it."""

    pid: int = 0
    instead_of: str = "child"


class Descendants:
    """Looks at the descendants of processes that wait. Used by one thread at a time."""

    def __init__(self, proc: str, look: WaitLook) -> None:
        self._proc = proc
        self._look = look

    def doing(self, now: float, pid: int, seen: Seen, apart: Collection[int]) -> Descendant | None:
        """What a process is waiting for that was ``seen`` waiting for a child or a pipe; None where it is for no child.

        ``apart`` are processes that are judged by themselves. Only children that write the pipe count; where the
        pipes cannot be seen, all.
        """
        children = [child for child in self._children(pid) if child not in apart]
        if not children or seen.fifo:
            return None
        for_child = waits_for_child(seen.channel)
        wanted: frozenset[int] | None = None
        if not for_child:
            wanted = frozenset((seen.pipe,)) if seen.pipe is not None else self._read_by(pid)
            if wanted is not None and not wanted:
                return None
        best: Descendant | None = None
        left = MOST_READ
        for child in children:
            family = list(self._family(child, apart, left))
            left -= len(family)
            if for_child or wanted is None or any(self._writes(one, wanted) for one in family):
                for one in family:
                    found = self._at(now, one, "child" if for_child else seen.wait)
                    if found is not None and (best is None or _rank(found) < _rank(best)):
                        best = found
            if left <= 0:
                break
        return best

    def _children(self, pid: int) -> list[int]:
        try:
            return [int(child) for child in read_small(f"{self._proc}/{pid}/task/{pid}/children").split()]
        except (OSError, ValueError):
            return []

    def _family(self, pid: int, apart: Collection[int], most: int) -> Iterator[int]:
        """A child and its own descendants, parents first."""
        queue = [(pid, 0)]
        for one, depth in queue:
            try:
                stat = parse_stat(read_small(f"{self._proc}/{one}/stat"))
            except OSError:
                continue
            if stat is None or stat.state in "ZX" or most <= 0:
                continue
            most -= 1
            yield one
            if depth < MOST_GENERATIONS:
                queue += [(child, depth + 1) for child in self._children(one) if child not in apart]

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
        seen = self._look.at(now, pid, folder, channel)
        if seen.wait == RAN:
            # Asleep, and the kernel names no function.
            return Descendant("disk" if stat.state == "D" else "other", pid=pid, instead_of=instead_of)
        return Descendant(
            seen.wait, seen.channel, seen.pipe, seen.fifo, seen.mount, seen.socket, seen.saves, pid, instead_of
        )  # fmt: skip

    def _read_by(self, pid: int) -> frozenset[int] | None:
        """The pipes that a process reads, without those that it also writes; None where they cannot be seen."""
        mine = held(self._proc, pid)
        return None if mine is None else mine.reads - mine.writes

    def _writes(self, pid: int, wanted: frozenset[int]) -> bool:
        """Whether a process writes one of these pipes; taken for granted where that cannot be seen."""
        its = held(self._proc, pid)
        # A forked worker inherits both ends of every queue: a pipe that it also reads is not its output.
        return its is None or bool(wanted & (its.writes - its.reads))


def _rank(seen: Seen) -> int:
    return _RANKS.index(seen.wait) if seen.wait in _RANKS else len(_RANKS)
