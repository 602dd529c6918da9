"""All that is remembered of a process between two looks, by its identity (pid, start time).

A ``TrackedProcess`` owns the lists, counts and samples of one process; whoever drops it has forgotten the process.
There is no other memory by pid: a pid that the kernel gives to another process begins with nothing.

``TrackedProcesses`` finds them by pid. Processes of the GPUs' trees are ``members``, whose identity each reading
checks. All others, such as children that live for a moment, are strangers: their start time is compared at each use,
and they are dropped when nobody has asked for them for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gputop.sources.processes.look.process_threads import ThreadTurn
from gputop.sources.processes.look.wait_state import WaitObservation
from gputop.sources.processes.resolve.socket_activity import SocketActivity
from gputop.sources.processes.tree.open_files import (
    HELD_AGAIN_S,
    HeldInodes,
    OpenFiles,
    PipeOutput,
)
from gputop.sources.procfs import Descriptors, ProcessFiles, stat_of

READ_AT_ONCE = 64
"""Limit of processes whose open files are read in one round; the rest waits for the next."""
UNUSED_S = 10.0
"""A stranger that nobody has asked for in this time is dropped: whoever waits for it is looked at every second."""


class TrackedProcess:
    """Owner of all that is remembered of one process::

    process = tracked.find(now, 4711)
    process.open_files.held  # its pipes and sockets, as last read
    process.sockets  # what its TCP sockets did, or None
    """

    def __init__(self, proc: str, pid: int, starttime: int) -> None:
        """Begin with nothing known; ``starttime`` counts clock ticks from boot."""
        self.pid = pid
        self.starttime = starttime
        self.folder = f"{proc}/{pid}"
        self.open_files = OpenFiles(proc, pid)
        self.output = PipeOutput(proc, pid)
        self.thread_turn = ThreadTurn()
        self.sockets: SocketActivity | None = None
        """What its TCP sockets did at their last reading; None before."""
        self.observations: list[WaitObservation] = []
        """What the sampler saw since the last reading."""
        self._channel: ProcessFiles | None = None
        self._used_at = float("-inf")

    def read_channel(self, descriptors: Descriptors) -> str:
        """Return the wait channel of the main thread. Raises OSError once it has ended.

        The file stays open while ``descriptors`` last. It belongs to the process, not to its pid.
        """
        if self._channel is None:
            self._channel = ProcessFiles(self.folder, descriptors)
        return self._channel.read("wchan").decode("ascii", "replace")

    @property
    def has_channel(self) -> bool:
        """Whether the wait channel may be open."""
        return self._channel is not None

    def close_channel(self) -> None:
        """Close the wait channel; the next read opens it again."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def pop_observations(self) -> list[WaitObservation]:
        """Return what was seen since the last call."""
        observations, self.observations = self.observations, []
        return observations

    def is_unused(self, now: float) -> bool:
        """Return whether nobody has asked for this stranger lately."""
        return not 0.0 <= now - self._used_at < UNUSED_S

    def note_use(self, now: float) -> bool:
        """Note a use; return whether it is the first at this moment."""
        is_first = now != self._used_at
        self._used_at = now
        return is_first


class TrackedProcesses:
    """Tracked processes by pid. Used under the lock of the wait sampler."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._members: Mapping[int, TrackedProcess] = {}
        self._strangers: dict[int, TrackedProcess] = {}
        self._reads_left = READ_AT_ONCE

    def __len__(self) -> int:
        """Return the number of processes of which something is remembered."""
        return len(self._members) + len(self._strangers)

    def begin_round(self, now: float) -> None:
        """Begin a new round of reads, and drop strangers that nobody asks for."""
        self._reads_left = READ_AT_ONCE
        unused = [pid for pid, stranger in self._strangers.items() if stranger.is_unused(now)]
        for pid in unused:
            del self._strangers[pid]

    def set_members(self, members: Mapping[int, TrackedProcess]) -> None:
        """Set the processes of the trees; all former ones are forgotten."""
        for pid, former in self._members.items():
            if members.get(pid) is not former:
                former.close_channel()
        self._members = dict(members)
        for pid in members:
            self._strangers.pop(pid, None)

    def forget(self, pid: int) -> None:
        """Forget a process of the trees: it has ended, and its pid may be reused soon."""
        former = self._members.get(pid)
        if former is None:
            return
        former.close_channel()
        self._members = {other: kept for other, kept in self._members.items() if other != pid}

    def member(self, pid: int) -> TrackedProcess | None:
        """Return a process of the trees, or None."""
        return self._members.get(pid)

    def members(self) -> Iterable[TrackedProcess]:
        """Return the processes of the trees."""
        return self._members.values()

    def known(self, pid: int) -> TrackedProcess | None:
        """Return a process if anything is remembered of it."""
        return self._members.get(pid) or self._strangers.get(pid)

    def find(self, now: float, pid: int) -> TrackedProcess:
        """Return the process that has this pid now; ``now`` is monotonic s."""
        member = self._members.get(pid)
        if member is not None:
            return member
        stranger = self._strangers.get(pid)
        if stranger is not None and not stranger.note_use(now):
            return stranger
        stat = stat_of(f"{self._proc}/{pid}")
        starttime = 0 if stat is None else stat.starttime
        if stranger is None or stranger.starttime != starttime:
            stranger = self._strangers[pid] = TrackedProcess(self._proc, pid, starttime)
            stranger.note_use(now)
        return stranger

    def held_by(self, now: float, pid: int, again_s: float = HELD_AGAIN_S) -> HeldInodes | None:
        """Return a process's pipes and sockets, as last read.

        None if they were not read yet or are not readable. A list older than ``again_s`` is read again, a few in a
        round.
        """
        files = self.find(now, pid).open_files
        if self._reads_left > 0 and files.are_older_than(now, again_s):
            self._reads_left -= 1
            files.read_again(now)
        return files.held

    def writers(self, now: float, pids: Iterable[int]) -> tuple[int, ...]:
        """Return the processes that wrote to pipes within the last minute.

        If there are none, return those that ever did.
        """
        ever: list[int] = []
        lately: list[int] = []
        for pid in pids:
            output = self.find(now, pid).output
            output.count(now)
            if output.wrote_lately(now):
                lately.append(pid)
            if output.elsewhere > 0:
                ever.append(pid)
        return tuple(lately or ever)
