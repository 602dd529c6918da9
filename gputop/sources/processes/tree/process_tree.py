"""Process trees of GPU processes, with Ray tasks and parents that hand out their work.

Pure, but for the command lines that are passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct

from gputop.model.command_facts import BESIDE, Rule, why_words
from gputop.model.snapshot import Role
from gputop.sources.processes.tree.loaders import identify, is_working_ray_task
from gputop.sources.processes.tree.open_files import HeldInodes
from gputop.sources.processes.tree.process_table import ProcessTable
from gputop.sources.procfs import Stat

CommandOf = Callable[[int, Stat], bytes]
HeldBy = Callable[[int], HeldInodes | None]
OtherEnd = Callable[[int], int | None]
"""The inode of the other end of a socket."""
_GPU_PROCESS = "holds a GPU context"


class ProcessPlace(Struct, frozen=True):
    """Place of a process in a tree.

    ``root`` is the pid of its nearest GPU ancestor (itself for a GPU process), or None.
    """

    stat: Stat
    root: int | None
    gpu: int | None
    role: Role
    loader: str | None
    reason: str
    may_feed: bool = False
    rule: Rule | None = None


def find_trees(
    table: ProcessTable, roots: Mapping[int, int], command_of: CommandOf
) -> dict[int, ProcessPlace]:
    """Return each GPU process and its descendants, parents before children.

    ``roots`` maps the pid of each GPU process to the index of its GPU; a GPU process below another one roots its own
    tree.
    """
    places: dict[int, ProcessPlace] = {}
    for root, gpu in roots.items():
        stat = table.get(root)
        if stat is None:
            continue
        places[root] = ProcessPlace(stat, root, gpu, "gpu", None, _GPU_PROCESS)
        queue = [root]
        for parent in queue:
            children = table.children(parent)
            if not children:
                continue
            above = places[parent]
            parent_command = command_of(parent, above.stat)
            for pid in children:
                stat = table.get(pid)
                if stat is None or pid in roots or pid in places:
                    continue
                found = identify(
                    stat.comm,
                    command_of(pid, stat),
                    parent_command,
                    above.role in ("gpu", "loader"),
                )
                places[pid] = ProcessPlace(
                    stat,
                    root,
                    gpu,
                    found.role,
                    found.loader,
                    found.reason,
                    found.may_feed,
                    found.rule,
                )
                queue.append(pid)
    return places


def find_ray_tasks(
    table: ProcessTable, trees: Mapping[int, ProcessPlace], command_of: CommandOf
) -> dict[int, ProcessPlace]:
    """Return working Ray tasks with a GPU process's raylet (rule R4).

    Both are children of one raylet, and so share its session, user and cgroup. If the raylet serves several GPUs, the
    task's GPU cannot be known; ``gpu`` is then None.
    """
    users: dict[int, set[int]] = {}
    for place in trees.values():
        parent = table.get(place.stat.ppid)
        if (
            place.role == "gpu"
            and parent is not None
            and parent.comm == b"raylet"
            and place.gpu is not None
        ):
            users.setdefault(place.stat.ppid, set()).add(place.gpu)
    places: dict[int, ProcessPlace] = {}
    for raylet, gpus in users.items():
        for pid in table.children(raylet):
            stat = table.get(pid)
            if stat is None or pid in trees or not is_working_ray_task(command_of(pid, stat)):
                continue
            several = "" if len(gpus) == 1 else f", which serves {len(gpus)} GPUs"
            why = why_words("R4", f"ray task of the same raylet{several}")
            gpu = min(gpus) if len(gpus) == 1 else None
            places[pid] = ProcessPlace(stat, None, gpu, "loader", "ray", why, rule="R4")
    return places


def connected(feeder: HeldInodes, root: HeldInodes, peers: Collection[int]) -> bool:
    """Return whether data can pass from a feeder to a root.

    Their open pipes and sockets decide; ``peers`` are the other ends of the root's sockets.
    """
    pipes = feeder.writes & root.reads
    # Children of one parent share both ends of a queue; a pipeline connects stdout and stdin. A single end is no
    # evidence: multiprocessing leaves one with every child, to detect the parent's death.
    is_piped = pipes & feeder.reads - feeder.standard or pipes & feeder.standard & root.standard
    return bool(is_piped) or not feeder.sockets.isdisjoint(peers)


MOST_SIBLINGS = 64
"""Limit of the processes beside one GPU process that are looked at: a shell may have started hundreds."""


def find_parents(
    table: ProcessTable,
    trees: Mapping[int, ProcessPlace],
    roots: Iterable[int],
    holds: HeldBy,
    other_end: OtherEnd,
) -> dict[int, ProcessPlace]:
    """Return parents and siblings, outside all trees, that are connected with one of ``roots``.

    A parent of a pipeline is a shell, and one of actors a launcher: its other children do the work.
    """
    places: dict[int, ProcessPlace] = {}
    for root in roots:
        candidates = [pid for pid in _pids_beside(table, trees, root) if pid not in places]
        mine = holds(root) if candidates else None
        if mine is None:
            continue
        peers = {peer for inode in mine.sockets if (peer := other_end(inode)) is not None}
        for pid in candidates:
            its = holds(pid)
            if its is not None and connected(its, mine, peers):
                places[pid] = _place_beside(table, trees[root], root, pid)
    return places


def _pids_beside(table: ProcessTable, trees: Mapping[int, ProcessPlace], root: int) -> list[int]:
    """Return the parent of a GPU process and its other children, of one session and in no tree."""
    parent, session = trees[root].stat.ppid, trees[root].stat.session
    found = []
    for pid in (parent, *table.children(parent)[:MOST_SIBLINGS]):
        stat = table.get(pid)
        if stat is not None and pid not in trees and stat.session == session:
            found.append(pid)
    return found


def _place_beside(table: ProcessTable, place: ProcessPlace, root: int, pid: int) -> ProcessPlace:
    """Return the place of a process that feeds a GPU process from beside it."""
    stat = table.get(pid)
    assert stat is not None
    whose = "parent" if pid == place.stat.ppid else "sibling"
    why = why_words(BESIDE, f"its {whose}, connected by a pipe or a socket")
    return ProcessPlace(stat, root, place.gpu, "helper", None, why, may_feed=True, rule=BESIDE)
