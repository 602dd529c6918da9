"""Which processes belong to which GPU process, and what they are: trees, Ray tasks, orphans.

Uses only the process table and the command lines passed in; opens no file itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping

from msgspec import Struct

from gputop.model.snapshot import Role
from gputop.sources.cgroup import cgroup_text
from gputop.sources.processes.absence import has_own_pids
from gputop.sources.processes.loaders import DescendantRole, identify, is_python, is_torch_worker, is_working_ray_task
from gputop.sources.processes.process_facts import JobIdentity, job_identity
from gputop.sources.procfs import Stat, parse_stat, read_small

# Who is whose child, over all of /proc, kept current cheaply. Knows neither GPUs nor loaders.
#
# One listing of /proc names the processes; only new ones, those whose parent has gone, and young ones that were
# new at the last look, are read. (Reading every ``stat`` costs 8 µs a process: it would be 40 ms on a node of 5000.)
# Walking ``task/*/children`` instead would miss no less and costs a read for each *thread* of each process.

# A pid reused between two looks would keep its old parent for ever; a full pass corrects that.
_FULL_PASS_EVERY = 20
_SETTLED_AFTER = 10 * os.sysconf("SC_CLK_TCK")
"""Clock ticks between the starts of a process and of the youngest one, after which it has its name and executable."""


class ProcessTable:
    """The processes of a /proc by pid. ``refresh`` is called whenever new processes are to be found."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._entries: dict[int, Stat] = {}
        self._young: set[int] = set()
        self._index: dict[int, list[int]] | None = None
        self._passes = 0

    def refresh(self) -> bool:
        """Bring the table up to date. Processes that vanish meanwhile, or are hidden, are left out.

        False where there was nothing to read: then it is the same as before.
        """
        try:
            present = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        except OSError:
            present = set()
        known = self._entries
        new = present - known.keys()
        gone = known.keys() - present
        again = self._young & present
        if self._passes % _FULL_PASS_EVERY == 0:
            again |= present
        elif gone:
            again |= {pid for pid, entry in known.items() if entry.ppid in gone}
        self._passes += 1
        for pid in gone:
            del known[pid]
        for pid in new | again:
            self._read(pid)
        # A name and an executable settle after birth: what was new and is young is read once more.
        self._young = set()
        if new:
            settled = max((entry.starttime for entry in known.values()), default=0) - _SETTLED_AFTER
            self._young = {pid for pid in new & known.keys() if known[pid].starttime > settled}
        if gone:
            self._index = None
        return bool(new or gone or again)

    def _read(self, pid: int) -> None:
        try:
            entry = parse_stat(read_small(f"{self._proc}/{pid}/stat"))
        except OSError:
            entry = None
        old = self._entries.get(pid)
        if entry is None:
            self._entries.pop(pid, None)
        else:
            self._entries[pid] = entry
        if entry is None or old is None or old.ppid != entry.ppid:
            self._index = None

    def get(self, pid: int) -> Stat | None:
        """The process as last read, or None."""
        return self._entries.get(pid)

    def read_again(self, pid: int) -> Stat | None:
        """The process read now, or None when it is gone."""
        self._read(pid)
        return self._entries.get(pid)

    def children(self, pid: int) -> list[int]:
        """Pids of the children, as of the last look at each."""
        if self._index is None:
            self._index = {}
            for child, entry in self._entries.items():
                self._index.setdefault(entry.ppid, []).append(child)
        return self._index.get(pid, [])

    def items(self) -> Iterator[tuple[int, Stat]]:
        """All processes."""
        return iter(self._entries.items())


CommandOf = Callable[[int, Stat], bytes]
_GPU_PROCESS = "holds a GPU context"
_LEFT_BEHIND = "left behind by a job that died"


class ProcessPlace(Struct, frozen=True):
    """A process's place. ``root`` is the pid of its nearest GPU ancestor (itself for a GPU process), or None."""

    stat: Stat
    root: int | None
    gpu: int | None
    role: Role
    loader: str | None
    why: str
    may_feed: bool = False


def find_trees(table: ProcessTable, roots: Mapping[int, int], command_of: CommandOf) -> dict[int, ProcessPlace]:
    """Each GPU process followed by its descendants, parents before children.

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
                found = identify(stat.comm, command_of(pid, stat), parent_command, above.role in ("gpu", "loader"))
                places[pid] = _place(stat, root, gpu, found)
                queue.append(pid)
    return places


def find_ray_tasks(
    table: ProcessTable, trees: Mapping[int, ProcessPlace], command_of: CommandOf
) -> dict[int, ProcessPlace]:
    """Working Ray tasks beside GPU processes of the same raylet (its session, user and cgroup): rule R4.

    Which of several GPUs a task feeds cannot be seen from outside; ``gpu`` is then None.
    """
    users: dict[int, set[int]] = {}
    for place in trees.values():
        parent = table.get(place.stat.ppid)
        if place.role == "gpu" and parent is not None and parent.comm == b"raylet" and place.gpu is not None:
            users.setdefault(place.stat.ppid, set()).add(place.gpu)
    places: dict[int, ProcessPlace] = {}
    for raylet, gpus in users.items():
        for pid in table.children(raylet):
            stat = table.get(pid)
            if stat is None or pid in trees or not is_working_ray_task(command_of(pid, stat)):
                continue
            why = "R4 ray task of the same raylet" + ("" if len(gpus) == 1 else f", which serves {len(gpus)} GPUs")
            places[pid] = ProcessPlace(stat, None, min(gpus) if len(gpus) == 1 else None, "loader", "ray", why)
    return places


def find_orphans(
    table: ProcessTable, placed: Mapping[int, ProcessPlace], former: Mapping[int, ProcessPlace], command_of: CommandOf
) -> dict[int, ProcessPlace]:
    """Loader workers whose job has died: known ones of the last look, and PyTorch workers that init has adopted."""
    places: dict[int, ProcessPlace] = {}
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


def _place(stat: Stat, root: int, gpu: int, found: DescendantRole) -> ProcessPlace:
    return ProcessPlace(stat, root, gpu, found.role, found.loader, found.why, found.may_feed)


def _orphan(stat: Stat, loader: str | None) -> ProcessPlace:
    return ProcessPlace(stat, None, None, "orphan", loader, _LEFT_BEHIND)


# Which batch job or container each process runs in, as one text that those of the same have in common.
#
# A container starts its programs in sessions of their own (a supervisor, `docker exec`), so a helper and the GPU
# process
# that it feeds often share nothing else that can be seen.

MOST_READ = 512
"""Files that one look at the machine may read for this; further processes wait their turn."""
_NOTHING = JobIdentity()


class Groups:
    """Remembers what it has read, by pid and start time."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._known: dict[int, tuple[int, str | None]] = {}
        self._left = MOST_READ
        self._own = os.getpid()
        self._inside = has_own_pids(proc)

    def begin(self, present: Collection[int]) -> None:
        """Begin a new look at the machine: forget processes that are gone."""
        self._left = MOST_READ
        self._known = {pid: known for pid, known in self._known.items() if pid in present}

    def of(self, pid: int, stat: Stat) -> str | None:
        """The job and container of a process; None where it is in neither, or not known yet."""
        known = self._known.get(pid)
        if known is None or known[0] != stat.starttime:
            if self._left <= 0 or pid == self._own:
                return None
            self._left -= 1
            known = self._known[pid] = stat.starttime, self._read(pid)
        return known[1]

    def _read(self, pid: int) -> str | None:
        try:
            found = job_identity(cgroup_text(f"{self._proc}/{pid}"))
        except OSError:
            return None
        if found != _NOTHING:
            return f"{found.job} {found.container}"
        # Within a container its own group has no name; all processes visible there belong to it.
        return "this container" if self._inside else None
