"""Feeders that run beside a GPU process, not below it: actors, data servers, the launcher itself.

Sharing a session, batch job or container is not enough, or whatever else a terminal runs would be blamed: a pipe or
a socket must connect them. Pure but for what is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from gputop.model.feeders import BESIDE
from gputop.sources.processes.process_sockets import HeldInodes, SocketTables, TcpSocket
from gputop.sources.processes.process_tree import CommandOf, ProcessPlace, ProcessTable
from gputop.sources.procfs import Stat

MOST_CANDIDATES = 24
"""The most relatives of one GPU process whose open files are read."""
MOST_GENERATIONS = 8
_SHELLS = (b"bash", b"zsh", b"fish", b"sh", b"dash", b"ksh", b"tcsh")
HeldBy = Callable[[int], HeldInodes | None]
GroupOf = Callable[[int, Stat], str | None]


class Links:
    """What connects two processes: their open files and the kernel's socket tables, read when needed."""

    def __init__(
        self, held: HeldBy, tcp: Callable[[], SocketTables], unix_peers: Callable[[], Mapping[int, int]]
    ) -> None:
        self._ask_held = held
        self._held: dict[int, HeldInodes | None] = {}
        self._ask_unix, self._ask_tcp = unix_peers, tcp
        self._unix: Mapping[int, int] | None = None
        self._tcp: Mapping[int, TcpSocket] = {}

    def can_be_fed(self, root: int) -> bool:
        """Whether data can come to ``root`` at all, by what it has open."""
        mine = self._of(root)
        return mine is not None and bool(mine.reads or mine.sockets)

    def connected(self, feeder: int, root: int) -> bool:
        """Whether data can go from ``feeder`` to ``root``."""
        its, mine = self._of(feeder), self._of(root)
        if its is None or mine is None:
            return False
        if not its.writes.isdisjoint(mine.reads):
            pipes = its.writes & mine.reads
            # Forked by one parent, they share both ends of a queue; a pipeline is stdout and stdin. An end by itself
            # is what multiprocessing leaves with every child, to learn of its parent's death.
            if pipes & its.reads - its.standard or pipes & its.standard & mine.standard:
                return True
        if not its.sockets or not mine.sockets:
            return False
        if self._unix is None:
            self._unix, self._tcp = self._ask_unix(), self._ask_tcp().tcp
        if any(self._unix.get(inode) in mine.sockets for inode in its.sockets):
            return True
        ends = {self._tcp[inode].ends for inode in mine.sockets if inode in self._tcp}
        return any(self._tcp[inode].ends[::-1] in ends for inode in its.sockets if inode in self._tcp)

    def _of(self, pid: int) -> HeldInodes | None:
        if pid not in self._held:
            self._held[pid] = self._ask_held(pid)
        return self._held[pid]


def find_beside(
    table: ProcessTable,
    trees: Mapping[int, ProcessPlace],
    roots: Iterable[int],
    links: Links,
    command_of: CommandOf,
    group_of: GroupOf = lambda pid, stat: None,
) -> dict[int, ProcessPlace]:
    """Processes in no GPU process's tree, but related to one of ``roots`` or in its container, and connected to it.

    ``group_of`` gives a text that processes of one job or container have in common, None for those of neither.
    """
    places: dict[int, ProcessPlace] = {}
    families: dict[tuple[int, int], list[tuple[int, Stat]]] = {}
    members: dict[str, list[tuple[int, Stat]]] = {}
    for root in roots:
        place = trees.get(root)
        if place is None or not links.can_be_fed(root):
            continue
        # The ranks of one launcher have the same relatives.
        family = place.stat.ppid, place.stat.session
        if family not in families:
            families[family] = list(_relatives(table, trees, place, command_of))
        for pid, stat in families[family]:
            if pid not in places and links.connected(pid, root):
                places[pid] = _beside(stat, root, place, "session")
        group = group_of(root, place.stat)
        if group is None:
            continue
        if group not in members:
            members[group] = _members(table, trees, group, group_of)
        for pid, stat in members[group]:
            if pid not in places and links.connected(pid, root):
                places[pid] = _beside(stat, root, place, "job or container")
    return places


def _beside(stat: Stat, root: int, place: ProcessPlace, shared: str) -> ProcessPlace:
    why = f"{BESIDE}same {shared}, connected by a pipe or a socket"
    return ProcessPlace(stat, root, place.gpu, "helper", None, why, may_feed=True)


def _members(
    table: ProcessTable, trees: Mapping[int, ProcessPlace], group: str, group_of: GroupOf
) -> list[tuple[int, Stat]]:
    """Processes of a group that are in no tree; if there are very many, those with the most CPU time."""
    found = [(pid, stat) for pid, stat in table.items() if pid not in trees and group_of(pid, stat) == group]
    return sorted(found, key=lambda member: -member[1].cpu_ticks)[:MOST_CANDIDATES]


def _relatives(
    table: ProcessTable, trees: Mapping[int, ProcessPlace], root: ProcessPlace, command_of: CommandOf
) -> Iterator[tuple[int, Stat]]:
    top, session = root.stat.ppid, root.stat.session
    ancestor: int | None = None
    for _ in range(MOST_GENERATIONS):
        stat = table.get(top)
        if stat is None or top <= 1 or stat.session != session or _is_interactive(stat, command_of(top, stat)):
            break
        ancestor, top = top, stat.ppid
    if ancestor is None:
        return
    queue, found = [ancestor], 0
    for pid in queue:
        stat = table.get(pid)
        if stat is None or pid in trees:
            continue
        queue.extend(table.children(pid))
        yield pid, stat
        found += 1
        if found >= MOST_CANDIDATES:
            return


def _is_interactive(stat: Stat, command: bytes) -> bool:
    """Whether a process is an interactive shell: its children have nothing in common."""
    words = command.rstrip(b"\0").split(b"\0")
    name = words[0].rsplit(b"/", 1)[-1].lstrip(b"-") or stat.comm
    return name in _SHELLS and all(word.startswith(b"-") and b"c" not in word for word in words[1:])
