"""Process trees of GPU processes, with Ray tasks, orphans and related feeders."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from gputop.model.feeders import BESIDE, Rule, why_words
from gputop.model.snapshot import ProcessSample, Role
from gputop.sources.cgroup import cgroup_text
from gputop.sources.processes.loaders import identify, is_python, is_torch_worker, is_working_ray_task
from gputop.sources.processes.open_files import HeldInodes
from gputop.sources.processes.process_facts import JobIdentity, job_identity
from gputop.sources.processes.watched import DENIED_IO
from gputop.sources.procfs import TICKS_PER_S, Stat, parse_stat, read_file, read_small

# Reasons why /proc lacks a listed process, or hides its activity.

OTHER_NAMESPACE = (
    "not visible in /proc (another PID namespace: run gputop on the host, or in a container with its PIDs)"
)
YOUNGER = "not visible in /proc (its pid belongs to a younger process here: another PID namespace)"
HIDDEN = "not visible in /proc (mounted with hidepid: run as root)"
EXITED = "ended, the driver still holds its memory"

_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""Link text of the first PID namespace (PROC_PID_INIT_INO in linux/proc_ns.h)."""


def has_own_pids(proc: str) -> bool | None:
    """Return whether /proc belongs to a container's PID namespace.

    Its pids differ from the host's. None if unknown.
    """
    try:
        return os.readlink(f"{proc}/self/ns/pid") != _FIRST_PID_NAMESPACE
    except OSError:
        return None


def holds_a_gpu(proc: str, pid: int) -> bool:
    """Return whether a process has an NVIDIA device file open.

    False also if its open files are not readable.
    """
    folder = f"{proc}/{pid}/fd"
    try:
        return any(os.readlink(f"{folder}/{name}").startswith("/dev/nvidia") for name in os.listdir(folder))
    except OSError:
        return False


class VisibilityCheck:
    """Explains why this machine's /proc lacks processes."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._reason: str | None = None
        self._own_pids = has_own_pids(proc)

    def is_another(self, pid: int) -> bool:
        """Return whether a pid belongs to another process than the driver's.

        Call it if the driver lists a pid that was never visible. In a container this shows that the driver means the
        host's pids: a process with the same pid is another one, unless it uses a GPU itself, since some drivers give
        the container's own pids.
        """
        return bool(self._own_pids) and not holds_a_gpu(self._proc, pid)

    def reason(self, *, is_younger: bool = False) -> str:
        """Return the reason for a missing process.

        ``is_younger``: a process that began later has the pid. The host sees every process, so a missing one has ended.
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
    """Describe missing data of processes, with remedies.

    ``set_aside`` is the number of processes whose command lines block the reader.
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


# Parents and children over all of /proc, updated cheaply. This table knows neither GPUs nor loaders.
#
# One listing of /proc names the processes. Only new ones, those without their former parent, and young ones are read.
# (Reading every ``stat`` costs 8 µs a process: 40 ms on a node of 5000.) Walking ``task/*/children`` instead would miss
# no less and costs a read for each *thread* of each process.

# A pid reused between two refreshes would keep its old parent for ever; a full pass corrects that.
_FULL_PASS_EVERY = 20
_SETTLED_AFTER = 10 * TICKS_PER_S
"""A process has its name and executable once the youngest process started this many clock ticks later."""


class ProcessTable:
    """Processes of a /proc by pid.

    Call ``refresh`` to find new processes.
    """

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._entries: dict[int, Stat] = {}
        self._young: set[int] = set()
        self._index: dict[int, list[int]] | None = None
        self._passes = 0

    @property
    def pause_s(self) -> float:
        """Time between two refreshes: a listing of 10,000 processes takes some 6 ms."""
        return 0.9 + len(self._entries) / 2000.0

    def refresh(self) -> bool:
        """Update the table; return False if nothing was read.

        The table is then unchanged. Hidden processes, and those that exit during the read, are left out.
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
        # A name and an executable settle after the start: new young processes are read once more.
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
        """Return the process as last read, or None."""
        return self._entries.get(pid)

    def read_again(self, pid: int) -> Stat | None:
        """Read the process now; None when it is gone."""
        self._read(pid)
        return self._entries.get(pid)

    def children(self, pid: int) -> list[int]:
        """Return the pids of a process's children, as last read."""
        if self._index is None:
            self._index = {}
            for child, entry in self._entries.items():
                self._index.setdefault(entry.ppid, []).append(child)
        return self._index.get(pid, [])

    def items(self) -> Iterator[tuple[int, Stat]]:
        """Iterate over all processes."""
        return iter(self._entries.items())


# Places of processes, by the table and the command lines that are passed in.

CommandOf = Callable[[int, Stat], bytes]
_GPU_PROCESS = "holds a GPU context"
_LEFT_BEHIND = "left behind by a job that died"


class ProcessPlace(Struct, frozen=True):
    """Place of a process in a tree.

    ``root`` is the pid of its nearest GPU ancestor (itself for a GPU process), or None.
    """

    stat: Stat
    root: int | None
    gpu: int | None
    role: Role
    loader: str | None
    why: str
    may_feed: bool = False
    rule: Rule | None = None


def find_trees(table: ProcessTable, roots: Mapping[int, int], command_of: CommandOf) -> dict[int, ProcessPlace]:
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
                found = identify(stat.comm, command_of(pid, stat), parent_command, above.role in ("gpu", "loader"))
                places[pid] = ProcessPlace(
                    stat, root, gpu, found.role, found.loader, found.why, found.may_feed, found.rule
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
    """Return loader workers whose job has died.

    They are former workers of a tree, and PyTorch workers that init has adopted.
    """
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
            # A worker starts in its job's session; the adopter of orphans (init, systemd, a container's shim) has
            # another.
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


# Batch job or container of each process, as a text that its processes share.
#
# A container starts its programs in sessions of their own (a supervisor, `docker exec`), so a helper and the GPU
# process that it feeds often share nothing else that is visible.

MOST_READ = 512
"""Limit of files that one discovery reads for groups; further processes wait their turn."""
_NOTHING = JobIdentity()


class CgroupCache:
    """Cache of jobs and containers, by pid and start time."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._group_of_pid: dict[int, tuple[int, str | None]] = {}
        self._reads_left = MOST_READ
        self._own_pid = os.getpid()
        self._inside = has_own_pids(proc)

    def begin(self, present: Collection[int]) -> None:
        """Begin a new discovery and forget exited processes."""
        self._reads_left = MOST_READ
        self._group_of_pid = {pid: group for pid, group in self._group_of_pid.items() if pid in present}

    def group_of(self, pid: int, stat: Stat) -> str | None:
        """Return the job and container of a process.

        None if it has neither, or was not read yet.
        """
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
        # Inside a container its own group has no name; all visible processes belong to it.
        return "this container" if self._inside else None


# Related feeders outside a GPU process's tree: actors, data servers, the launcher itself.
#
# A shared session, batch job or container is not enough, or any other program of a terminal would be blamed: a pipe or
# a socket must connect them. Pure except for the functions that are passed in.

MOST_CANDIDATES = 24
"""Limit of relatives of one GPU process whose open files are read."""
MOST_GENERATIONS = 8
_SHELLS = (b"bash", b"zsh", b"fish", b"sh", b"dash", b"ksh", b"tcsh")
HeldBy = Callable[[int], HeldInodes | None]
GroupOf = Callable[[int, Stat], str | None]
OtherEnd = Callable[[int], int | None]
"""The inode of the other end of a socket."""


def connected(feeder: HeldInodes, root: HeldInodes, other_end: OtherEnd) -> bool:
    """Return whether data can pass from a feeder to a root.

    Their open pipes and sockets decide.
    """
    pipes = feeder.writes & root.reads
    # Children of one parent share both ends of a queue; a pipeline connects stdout and stdin. A single end is no
    # evidence: multiprocessing leaves one with every child, to detect the parent's death.
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
    """Return processes outside all trees that feed one of ``roots``.

    Each is connected to its root and shares a session, job or container with it. ``group_of`` returns a text that
    processes of one job or container share, and None for all others.
    """
    places: dict[int, ProcessPlace] = {}
    families: dict[tuple[int, int], list[tuple[int, Stat]]] = {}
    members: dict[str, list[tuple[int, Stat]]] = {}
    for root in roots:
        place, mine = trees.get(root), holds(root)
        if place is None or mine is None or not (mine.reads or mine.sockets):
            continue
        # Ranks of one launcher have the same relatives.
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
    """Return processes of a group that are in no tree.

    Of very many, those with the most CPU time.
    """
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
    """Return whether a process is an interactive shell.

    The children of such a shell have nothing in common.
    """
    words = command.rstrip(b"\0").split(b"\0")
    name = words[0].rsplit(b"/", 1)[-1].lstrip(b"-") or stat.comm
    return name in _SHELLS and all(word.startswith(b"-") and b"c" not in word for word in words[1:])
