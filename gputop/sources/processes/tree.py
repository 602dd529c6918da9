"""Which processes belong to which GPU process, and what they are: trees, Ray tasks, orphans.

Uses only the process table and the command lines passed in; opens no file itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from gputop.model.snapshot import Role
from gputop.sources.processes.loaders import Finding, identify, is_python, is_torch_worker, is_working_ray_task
from gputop.sources.processes.table import ProcessTable
from gputop.sources.procfs import Stat

CommandOf = Callable[[int, Stat], bytes]
_GPU_PROCESS = "holds a GPU context"
_LEFT_BEHIND = "left behind by a job that died"


class Place(Struct, frozen=True):
    """A process's place. ``root`` is the pid of its nearest GPU ancestor (itself for a GPU process), or None."""

    stat: Stat
    root: int | None
    gpu: int | None
    role: Role
    loader: str | None
    why: str
    may_feed: bool = False


def find_trees(table: ProcessTable, roots: Mapping[int, int], command_of: CommandOf) -> dict[int, Place]:
    """Each GPU process followed by its descendants, parents before children.

    ``roots`` maps the pid of each GPU process to the index of its GPU; a GPU process below another one roots its own
    tree.
    """
    places: dict[int, Place] = {}
    for root, gpu in roots.items():
        stat = table.get(root)
        if stat is None:
            continue
        places[root] = Place(stat, root, gpu, "gpu", None, _GPU_PROCESS)
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
                found = identify(stat.comm, command_of(pid, stat), parent_command, above.role in ("gpu", "loader"))
                places[pid] = _place(stat, root, gpu, found)
                queue.append(pid)
    return places


def find_ray_tasks(table: ProcessTable, trees: Mapping[int, Place], command_of: CommandOf) -> dict[int, Place]:
    """Working Ray tasks beside GPU processes of the same raylet (its session, user and cgroup): rule R4.

    Which of several GPUs a task feeds cannot be seen from outside; ``gpu`` is then None.
    """
    users: dict[int, set[int]] = {}
    for place in trees.values():
        parent = table.get(place.stat.ppid)
        if place.role == "gpu" and parent is not None and parent.comm == b"raylet" and place.gpu is not None:
            users.setdefault(place.stat.ppid, set()).add(place.gpu)
    places: dict[int, Place] = {}
    for raylet, gpus in users.items():
        for pid in table.children(raylet):
            stat = table.get(pid)
            if stat is None or pid in trees or not is_working_ray_task(command_of(pid, stat)):
                continue
            why = "R4 ray task of the same raylet" + ("" if len(gpus) == 1 else f", which serves {len(gpus)} GPUs")
            places[pid] = Place(stat, None, min(gpus) if len(gpus) == 1 else None, "loader", "ray", why)
    return places


def find_orphans(
    table: ProcessTable, placed: Mapping[int, Place], former: Mapping[int, Place], command_of: CommandOf
) -> dict[int, Place]:
    """Loader workers whose job has died: known ones of the last look, and PyTorch workers that init has adopted."""
    places: dict[int, Place] = {}
    for pid, place in former.items():
        if pid in placed or place.role not in ("loader", "orphan"):
            continue
        stat = table.read_again(pid)
        if stat is None or stat.starttime != place.stat.starttime or stat.state == "Z":
            continue
        if place.role == "orphan" or stat.ppid != place.stat.ppid or _is_dead(table, place.root):
            places[pid] = _orphan(stat, "torch" if is_torch_worker(stat.comm) else place.loader)
    for pid, stat in list(table.items()):
        if is_torch_worker(stat.comm) and pid not in placed and pid not in places and stat.state != "Z":
            parent = table.get(stat.ppid)
            # A worker starts in its job's session; what adopts orphans (init, systemd, a container's shim) has another.
            adopted = parent is not None and (stat.ppid == 1 or parent.session != stat.session)
            if parent is not None and adopted and not is_python(command_of(stat.ppid, parent)):
                places[pid] = _orphan(stat, "torch")
    return places


def _is_dead(table: ProcessTable, pid: int | None) -> bool:
    if pid is None:
        return False
    stat = table.read_again(pid)
    return stat is None or stat.state == "Z"


def _place(stat: Stat, root: int, gpu: int, found: Finding) -> Place:
    return Place(stat, root, gpu, found.role, found.loader, found.why, found.may_feed)


def _orphan(stat: Stat, loader: str | None) -> Place:
    return Place(stat, None, None, "orphan", loader, _LEFT_BEHIND)
