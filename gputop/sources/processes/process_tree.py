"""Which processes belong to which GPU process, and what they are: trees, Ray tasks, orphans, feeders beside."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from gputop.model.feeders import BESIDE, Rule, why_words
from gputop.model.snapshot import ProcessSample, Role
from gputop.sources.cgroup import cgroup_text
from gputop.sources.processes.loaders import identify, is_python, is_torch_worker, is_working_ray_task
from gputop.sources.processes.process_facts import JobIdentity, job_identity
from gputop.sources.processes.process_sockets import HeldInodes
from gputop.sources.processes.watched import DENIED_IO
from gputop.sources.procfs import TICKS_PER_S, Stat, parse_stat, read_file, read_small

# Why /proc does not show a process that the driver lists, or hides what it does.

OTHER_NAMESPACE = (
    "not visible in /proc (another PID namespace: run gputop on the host, or in a container with its PIDs)"
)
YOUNGER = "not visible in /proc (its pid belongs to a younger process here: another PID namespace)"
HIDDEN = "not visible in /proc (mounted with hidepid: run as root)"
EXITED = "ended, the driver still holds its memory"

_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""The first PID namespace as its link reads (PROC_PID_INIT_INO in linux/proc_ns.h)."""


def has_own_pids(proc: str) -> bool | None:
    """Whether this is a container's PID namespace, whose pids are not those of the host; None where it is unknown."""
    try:
        return os.readlink(f"{proc}/self/ns/pid") != _FIRST_PID_NAMESPACE
    except OSError:
        return None


def holds_a_gpu(proc: str, pid: int) -> bool:
    """Whether a process has a device file of the NVIDIA driver open; False also where that may not be seen."""
    folder = f"{proc}/{pid}/fd"
    try:
        return any(os.readlink(f"{folder}/{name}").startswith("/dev/nvidia") for name in os.listdir(folder))
    except OSError:
        return False


class Absence:
    """Why this machine's /proc lacks processes."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._reason: str | None = None
        self._own_pids = has_own_pids(proc)

    def is_another(self, pid: int) -> bool:
        """Whether the process with that pid here is not the driver's, where the driver lists one that was never here.

        In a container that shows that the driver means the host's pids: a process with the same pid here is another
        one, unless it uses a GPU itself, since some drivers give the container's own pids.
        """
        return bool(self._own_pids) and not holds_a_gpu(self._proc, pid)

    def reason(self, *, is_younger: bool = False) -> str:
        """The reason; ``is_younger`` where a process that began later has the pid here.

        The host sees every process: what is not there has ended.
        """
        if self._reason is None:
            is_hidden = os.geteuid() != 0 and self._is_hidepid()
            self._reason = HIDDEN if is_hidden else EXITED if self._own_pids is False else OTHER_NAMESPACE
        return YOUNGER if is_younger and self._reason != EXITED else self._reason

    def _is_hidepid(self) -> bool:
        try:
            lines = read_file(f"{self._proc}/mounts").decode("utf-8", "replace").splitlines()
        except OSError:
            return False
        mounts = (line.split() for line in lines)
        return any(
            len(mount) > 3 and mount[2] == "proc" and "hidepid=" in mount[3] and "hidepid=0" not in mount[3]
            for mount in mounts
        )


def notices_of(samples: Sequence[ProcessSample], set_aside: int = 0) -> tuple[str, ...]:
    """What is missing of all processes of the machine, and what would help.

    ``set_aside`` processes do not give their command lines.
    """
    reasons = {sample.pid: sample.unavailable.get("state") for sample in samples if sample.state is None}
    notices = []
    for reason in (HIDDEN, OTHER_NAMESPACE, YOUNGER):
        count = sum(why == reason for why in reasons.values())
        if count:
            notices.append(f"{count} GPU process{'es' if count > 1 else ''} {reason}: host signals unavailable")
    denied = {s.pid for s in samples if s.unavailable.get("read_bytes_per_s") == DENIED_IO}
    if denied:
        subject = "1 process is" if len(denied) == 1 else f"{len(denied)} processes are"
        notices.append(f"{subject} closed to this user: run as root for disk and wait evidence")
    if set_aside:
        whose = "a process hangs" if set_aside == 1 else f"{set_aside} processes hang"
        notices.append(f"{whose} with its memory locked: the command line is not known, or that of before is shown")
    return tuple(notices)


# Which process is whose child, over all of /proc, kept current cheaply. Knows neither GPUs nor loaders.
#
# One listing of /proc names the processes; only new ones, those whose parent has gone, and young ones that were
# new at the last look, are read. (Reading every ``stat`` costs 8 µs a process: it would be 40 ms on a node of 5000.)
# Walking ``task/*/children`` instead would miss no less and costs a read for each *thread* of each process.

# A pid reused between two looks would keep its old parent for ever; a full pass corrects that.
_FULL_PASS_EVERY = 20
_SETTLED_AFTER = 10 * TICKS_PER_S
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
        """Bring the table up to date. Processes that vanish while they are read, or are hidden, are left out.

        False where there was nothing to read: then it is the same as before.
        """
        try:
            present = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        except OSError:
            present = set()
        entries = self._entries
        new = present - entries.keys()
        gone = entries.keys() - present
        reread = self._young & present
        if self._passes % _FULL_PASS_EVERY == 0:
            reread |= present
        elif gone:
            reread |= {pid for pid, entry in entries.items() if entry.ppid in gone}
        self._passes += 1
        for pid in gone:
            del entries[pid]
        for pid in new | reread:
            self._read(pid)
        # A name and an executable settle after birth: what was new and is young is read once more.
        self._young = set()
        if new:
            settled = max((entry.starttime for entry in entries.values()), default=0) - _SETTLED_AFTER
            self._young = {pid for pid in new & entries.keys() if entries[pid].starttime > settled}
        if gone:
            self._index = None
        return bool(new or gone or reread)

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


# The places of processes, by the table and the command lines that are passed in.

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
    rule: Rule | None = None


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
                places[pid] = ProcessPlace(
                    stat, root, gpu, found.role, found.loader, found.why, found.may_feed, found.rule
                )
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
            several = "" if len(gpus) == 1 else f", which serves {len(gpus)} GPUs"
            why = why_words("R4", f"ray task of the same raylet{several}")
            gpu = min(gpus) if len(gpus) == 1 else None
            places[pid] = ProcessPlace(stat, None, gpu, "loader", "ray", why, rule="R4")
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


def _orphan(stat: Stat, loader: str | None) -> ProcessPlace:
    return ProcessPlace(stat, None, None, "orphan", loader, _LEFT_BEHIND)


# Which batch job or container each process runs in, as one text that those of the same have in common.
#
# A container starts its programs in sessions of their own (a supervisor, `docker exec`), so a helper and the GPU
# process that it feeds often share nothing else that can be seen.

MOST_READ = 512
"""Files that one look at the machine may read for this; further processes wait their turn."""
_NOTHING = JobIdentity()


class Groups:
    """Remembers what it has read, by pid and start time."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._group_of_pid: dict[int, tuple[int, str | None]] = {}
        self._reads_left = MOST_READ
        self._own_pid = os.getpid()
        self._inside = has_own_pids(proc)

    def begin(self, present: Collection[int]) -> None:
        """Begin a new look at the machine: forget processes that are gone."""
        self._reads_left = MOST_READ
        self._group_of_pid = {pid: group for pid, group in self._group_of_pid.items() if pid in present}

    def of(self, pid: int, stat: Stat) -> str | None:
        """The job and container of a process; None where it is in neither, or not known yet."""
        cached = self._group_of_pid.get(pid)
        if cached is None or cached[0] != stat.starttime:
            if self._reads_left <= 0 or pid == self._own_pid:
                return None
            self._reads_left -= 1
            cached = self._group_of_pid[pid] = stat.starttime, self._read(pid)
        return cached[1]

    def _read(self, pid: int) -> str | None:
        try:
            identity = job_identity(cgroup_text(f"{self._proc}/{pid}"))
        except OSError:
            return None
        if identity != _NOTHING:
            return f"{identity.job and identity.job.words} {identity.container and identity.container.words}"
        # Within a container its own group has no name; all processes visible there belong to it.
        return "this container" if self._inside else None


# Feeders that run beside a GPU process, not below it: actors, data servers, the launcher itself.
#
# Sharing a session, batch job or container is not enough, or whatever else a terminal runs would be blamed: a pipe or
# a socket must connect them. Pure but for what is handed in.

MOST_CANDIDATES = 24
"""The most relatives of one GPU process whose open files are read."""
MOST_GENERATIONS = 8
_SHELLS = (b"bash", b"zsh", b"fish", b"sh", b"dash", b"ksh", b"tcsh")
HeldBy = Callable[[int], HeldInodes | None]
GroupOf = Callable[[int, Stat], str | None]
OtherEnd = Callable[[int], int | None]
"""The inode of the other end of a socket."""


def connected(feeder: HeldInodes, root: HeldInodes, other_end: OtherEnd) -> bool:
    """Whether data can go from one process to another, by what both hold."""
    pipes = feeder.writes & root.reads
    # Forked by one parent, they share both ends of a queue; a pipeline is stdout and stdin. An end by itself is what
    # multiprocessing leaves with every child, to learn of its parent's death.
    if pipes & feeder.reads - feeder.standard or pipes & feeder.standard & root.standard:
        return True
    return bool(root.sockets) and any(other_end(inode) in root.sockets for inode in feeder.sockets)


def find_related(
    table: ProcessTable,
    trees: Mapping[int, ProcessPlace],
    roots: Iterable[int],
    holds: HeldBy,
    other_end: OtherEnd,
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
        place, mine = trees.get(root), holds(root)
        if place is None or mine is None or not (mine.reads or mine.sockets):
            continue
        # The ranks of one launcher have the same relatives.
        family = place.stat.ppid, place.stat.session
        if family not in families:
            families[family] = list(_relatives(table, trees, place, command_of))
        group = group_of(root, place.stat)
        if group is not None and group not in members:
            members[group] = _members(table, trees, group, group_of)
        for shared, candidates in (("session", families[family]), ("job or container", members.get(group or "", []))):
            for pid, stat in candidates:
                theirs = None if pid in places else holds(pid)
                if theirs is not None and connected(theirs, mine, other_end):
                    why = why_words(BESIDE, f"same {shared}, connected by a pipe or a socket")
                    places[pid] = ProcessPlace(stat, root, place.gpu, "helper", None, why, may_feed=True, rule=BESIDE)
    return places


def _members(
    table: ProcessTable, trees: Mapping[int, ProcessPlace], group: str, group_of: GroupOf
) -> list[tuple[int, Stat]]:
    """Processes of a group that are in no tree; if there are very many, those with the most CPU time."""
    candidates = [(pid, stat) for pid, stat in table.items() if pid not in trees and group_of(pid, stat) == group]
    return sorted(candidates, key=lambda member: -member[1].cpu_ticks)[:MOST_CANDIDATES]


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
    queue, count = [ancestor], 0
    for pid in queue:
        stat = table.get(pid)
        if stat is None or pid in trees:
            continue
        queue.extend(table.children(pid))
        yield pid, stat
        count += 1
        if count >= MOST_CANDIDATES:
            return


def _is_interactive(stat: Stat, command: bytes) -> bool:
    """Whether a process is an interactive shell: its children have nothing in common."""
    words = command.rstrip(b"\0").split(b"\0")
    name = words[0].rsplit(b"/", 1)[-1].lstrip(b"-") or stat.comm
    return name in _SHELLS and all(word.startswith(b"-") and b"c" not in word for word in words[1:])
