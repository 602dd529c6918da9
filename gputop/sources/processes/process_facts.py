"""What does not change while a process lives: owner, command line, batch job, container, cgroup folders.

Here, and only here, a raw command line becomes facts: first what the diagnosis needs is drawn from it, then secrets are
masked. Of environments nothing is taken but which rank of a run a process is, and the port at which these meet.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.feeders import server_in
from gputop.model.inspection import ProcessIdentity
from gputop.model.quantity import clean_text
from gputop.model.secrets import masked_text, masked_words
from gputop.model.snapshot import POD, CgroupName
from gputop.sources.cgroup import CgroupFolders, cgroup_folders, cgroup_text, cpu_quota
from gputop.sources.patient_reader import PatientReader
from gputop.sources.procfs import parse_stat, read_small

# Which batch job and which container a process belongs to, from its /proc/PID/cgroup.
#
# Only the path is read: no environment (it may hold secrets, and other users' is denied), no daemon is asked.

_SHORT_ID = 12

# Slurm: v1 /slurm/uid_1000/job_8821/step_0, v2 /system.slice/[NODE_]slurmstepd.scope/job_8821/step_0/user/task_0
_SLURM = r"(?:^|/)(?:slurm[^/]*|[^/]*slurmstepd\.scope)(?:/uid_\d+)?/job_(\d+)(?:/|$)"
# PBS cgroup hook: /pbs_jobs.service/jobid/12345.server, before that /pbspro.service/jobid/… (also below a .slice)
_PBS = r"/pbs(?:_jobs|pro)\.(?:service|slice)/jobid/(\d+(?:\[\d+\])?)"
# LSF: /lsf/CLUSTER/job.1234.PID.TIME
_LSF = r"/lsf/[^/]+/job\.(\d+(?:\[\d+\])?)\."
# Kubernetes: kubepods-burstable-pod<uid with _>.slice under systemd, /kubepods/burstable/pod<uid> without it
_POD = r"(?:kubepods[^/]*[-/]|/)pod([0-9a-f]{8}[-_][0-9a-f_-]{20,})"
_CONTAINER_ID = r"(?:^|/)(?:(?P<scope>docker|libpod|crio|cri-containerd)-)?(?P<id>[0-9a-f]{64})(?:\.scope)?(?:/|$)"
_ID_LENGTH = 64
_LXC = r"/lxc(?:\.payload)?[./]([^/]+)"
_ENGINES = {"docker": "docker", "libpod": "podman", "crio": "cri-o", "cri-containerd": "containerd"}


class JobIdentity(Struct, frozen=True):
    """``job`` such as ``slurm 8821``; ``container`` such as ``docker 0123456789ab``. None: neither was recognised."""

    job: CgroupName | None = None
    container: CgroupName | None = None


def _job(text: str) -> CgroupName | None:
    for scheduler, pattern in (("slurm", _SLURM), ("pbs", _PBS), ("lsf", _LSF)):
        # The plain search first: most machines need none of these patterns, and compiling them takes a millisecond.
        if scheduler in text and (match := re.search(pattern, text)):
            return CgroupName(scheduler, match[1])
    return None


def _container(text: str) -> CgroupName | None:
    if "pod" in text and (pod := re.search(_POD, text)):
        return CgroupName(POD, pod[1].replace("_", "-"))
    if len(text) >= _ID_LENGTH and (match := re.search(_CONTAINER_ID, text)):
        short = match["id"][:_SHORT_ID]
        if match["scope"]:
            return CgroupName(_ENGINES[match["scope"]], short)
        return CgroupName("docker" if "/docker" in text else "podman" if "libpod" in text else "container", short)
    if "/lxc" in text and (lxc := re.search(_LXC, text)):
        return CgroupName("lxc", lxc[1])
    return None


def job_identity(cgroup: str) -> JobIdentity:
    """Read the text of /proc/PID/cgroup: every hierarchy's line is searched, the first match wins."""
    paths = "\n".join(line.split(":", 2)[-1] for line in cgroup.splitlines())
    job: CgroupName | None = None
    container: CgroupName | None = None
    for path in paths.split("\n"):
        job = job or _job(path)
        container = container or _container(path)
    return JobIdentity(job, container)


COMMAND_LIMIT = 4096
"""Characters of a command line that are kept."""

MOST_USERS = 1024
"""User names that are kept: containers bring user numbers of their own."""


_OF_A_RANK = ("MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
"""As torchrun sets them, and whoever starts ranks for ``torch.distributed`` does."""


class RunRank(Struct, frozen=True):
    """One of the ranks of a run, by the environment that it was started with: who meet at a port, and how many.

    ``number`` is its own; ``first`` and ``here`` are the lowest of its machine and how many that has, None where its
    environment does not say.
    """

    meets_at: int | None
    of: int
    number: int | None = None
    first: int | None = None
    here: int | None = None

    def missing(self, seen: Iterable[RunRank]) -> str:
        """Which ranks of its machine are not among those seen: ``3 of 4 ranks seen, rank 2 missing``.

        Empty where none is. Where its run does not say which ranks are on this machine, ``3 of 4 ranks seen here``.
        """
        numbers = {rank.number for rank in seen if (rank.meets_at, rank.of) == (self.meets_at, self.of)} - {None}
        if self.number is None or (self.first is None and len(numbers) >= self.of):
            return ""
        if self.first is None or self.here is None:
            return f"{len(numbers)} of {self.of} ranks seen here"
        absent = [str(number) for number in range(self.first, self.first + self.here) if number not in numbers]
        if not absent:
            return ""
        named = ", ".join(absent[:MOST_ABSENT]) + (", …" if len(absent) > MOST_ABSENT else "")
        on = "" if self.here == self.of else " of this machine"
        ranks = "rank" if len(absent) == 1 else "ranks"
        return f"{self.here - len(absent)} of {self.here} ranks{on} seen, {ranks} {named} missing"


MOST_ABSENT = 4
"""Ranks that are named; of more the first."""


class Facts(Struct, frozen=True):
    """Facts of one process, secrets masked. ``folders`` is empty when its cgroup is not visible from here."""

    user: str | None
    command: str
    name: str
    server: str | None
    job_key: str | None
    identity: JobIdentity
    folders: CgroupFolders


class FactsReader:
    """Reads facts, and keeps what many processes share: user names, cgroups and command lines."""

    def __init__(self, proc: str, sys: str) -> None:
        self._proc = proc
        self._sys = sys
        self._patient = PatientReader()
        self._salt = os.urandom(16)
        self._users: dict[int, str] = {}
        self._groups: dict[str, tuple[JobIdentity, CgroupFolders]] = {}
        self._names: dict[tuple[bytes, bytes], tuple[str, str, str | None]] = {}
        """By command line and kernel's name what both say: ranks and their workers have the same ones."""

    def command(self, pid: int) -> bytes | None:
        """/proc/PID/cmdline as it is: NUL-separated, empty for a zombie or when it cannot be read.

        None where it does not come: a thread of that process holds the lock of its memory and waits.
        """
        return self._patient.read(f"{self._proc}/{pid}/cmdline")

    def rank(self, pid: int) -> RunRank | None:
        """Which rank of a run a process is; None where it is the only one, or of none."""
        environ = self._patient.read(f"{self._proc}/{pid}/environ") or b""
        given = dict(entry.partition("=")[::2] for entry in environ.decode("ascii", "replace").split("\0"))
        values = [int(text) if (text := given.get(name, "")).isdecimal() else None for name in _OF_A_RANK]
        port, of, number, local, here = values
        if (of or 0) < 2 or (port is None and number is None):
            return None
        first = None if number is None or local is None else number - local
        return RunRank(port, of or 0, number, first, here)

    def set_aside(self) -> int:
        """How many processes have not given their command line, and hold a reader until they do."""
        return len(self._patient.stuck)

    def close(self) -> None:
        """End the thread that reads command lines."""
        self._patient.close()

    def read(self, pid: int, comm: bytes, command: bytes) -> Facts:
        """The facts of a process whose name and command line were read already."""
        identity, folders = self._group(pid)
        user = self.user(pid)
        names = self._names.get((command, comm))
        if names is None:
            words = b" ".join(command.split(b"\0", 8)[:8]).decode("utf-8", "replace").split()
            names = command_text(command, comm), executable_name(command, comm), server_in(words)
            self._names[command, comm] = names
        return Facts(user, *names, self._job_key(user, command), identity, folders)

    def _job_key(self, user: str | None, command: bytes) -> str | None:
        """The same for processes of one user and command line. Salted by each gputop process, so it cannot be reversed.

        Python's hash of bytes is SipHash, which is made for this; ``hashlib`` would load OpenSSL.
        """
        if not command:
            return None
        return f"{hash(self._salt + (user or '').encode() + bytes(1) + command) & (1 << 48) - 1:012x}"

    def forget(self) -> None:
        """Drop cached cgroups and command lines: called when the tree is rediscovered, so that the caches stay as small
        as the tree, and hold no raw command line that is no longer in it."""
        self._groups.clear()
        self._names.clear()

    def user(self, pid: int) -> str | None:
        """The name of a process's owner, the number where it has none; None when the process is gone."""
        try:
            uid = os.stat(f"{self._proc}/{pid}").st_uid
        except OSError:
            return None
        if uid not in self._users:
            if len(self._users) >= MOST_USERS:
                self._users.clear()
            try:
                self._users[uid] = clean_text(pwd.getpwuid(uid).pw_name)
            except KeyError:
                self._users[uid] = str(uid)
        return self._users[uid]

    def _group(self, pid: int) -> tuple[JobIdentity, CgroupFolders]:
        try:
            text = cgroup_text(f"{self._proc}/{pid}")
        except OSError:
            return JobIdentity(), CgroupFolders()
        if text not in self._groups:
            identity = job_identity(text)
            shown = (part and replace(part, id=masked_text(part.id)) for part in (identity.job, identity.container))
            self._groups[text] = JobIdentity(*shown), cgroup_folders(text, self._sys)
        return self._groups[text]


def allowed_cpus(proc: str, pid: int) -> frozenset[int] | None:
    """The CPUs that a process's mask leaves to it; None where that cannot be read."""
    try:
        status = read_small(f"{proc}/{pid}/status")
        text = status[status.index(b"Cpus_allowed_list:") + 18 :].split(None, 1)[0]
        ranges = [part.split(b"-") for part in text.split(b",")]
        return frozenset(cpu for ends in ranges for cpu in range(int(ends[0]), int(ends[-1]) + 1))
    except (OSError, ValueError, IndexError):
        return None


def allowed_cores(proc: str, pid: int, folders: CgroupFolders) -> float | None:
    """How many cores a process may use: its CPU mask, and the limit of its cgroup where that leaves less."""
    cpus = allowed_cpus(proc, pid)
    if cpus is None:
        return None
    cores = float(len(cpus))
    quota = cpu_quota(folders)
    return cores if quota is None else min(cores, quota)


def command_text(command: bytes, comm: bytes, *, mask: bool = True) -> str:
    """A command line to show; ``[name]`` when the kernel has none (zombies). At most COMMAND_LIMIT characters.

    Secrets are masked before the end is cut off, and in the separate arguments: once joined, it is unclear where one
    with blanks ends.
    """
    words = _decoded(command[: 2 * COMMAND_LIMIT].rstrip(b"\0")).split("\0")
    text = " ".join(" ".join(masked_words(words) if mask else words).split())
    if not text:
        name = _decoded(comm)
        return f"[{clean_text(masked_text(name) if mask else name)}]"
    return clean_text(text)[:COMMAND_LIMIT]


def executable_name(command: bytes, comm: bytes) -> str:
    """The file name of argv[0], secrets masked; the kernel's name (15 bytes at most) where there is no command line."""
    first = masked_text(_decoded(command[: 2 * COMMAND_LIMIT].split(b"\0", 1)[0]))
    name = first.split(" ", 1)[0].rsplit("/", 1)[-1]
    return clean_text(name or masked_text(_decoded(comm)))[:COMMAND_LIMIT]


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


# Whether a pid still is the process that was meant: only pid and start time together name a process.

NOT_IN_PROC = "it is not visible in /proc (another PID namespace or user): run gputop where it runs"
GONE = "it has ended"
REPLACED = "it has ended and its pid belongs to another process now"


def identity_problem(proc: str, identity: ProcessIdentity) -> str | None:
    """Why a pid is not the process that was meant; None when it is. ``proc`` is where /proc is mounted."""
    if identity.starttime is None:
        return NOT_IN_PROC
    try:
        stat = parse_stat(read_small(f"{proc}/{identity.pid}/stat"))
    except OSError:
        return GONE
    if stat is None:
        return GONE
    if stat.starttime != identity.starttime:
        return REPLACED
    return f"{GONE}; its parent has not taken its exit status yet" if stat.state in "ZX" else None
