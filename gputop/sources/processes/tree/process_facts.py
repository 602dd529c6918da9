"""Constant facts of a process: owner, command, job, container, cgroup folders.

Only this module turns a raw command line into facts: it extracts the values that the diagnosis needs, then masks
secrets. From environments it takes only a process's rank in a run and the port where the ranks meet.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.clean_text import clean_text
from gputop.model.command_facts import server_in
from gputop.model.inspection import ProcessIdentity
from gputop.model.ranked_command import ranked_command
from gputop.model.secrets import masked_text, masked_words
from gputop.sources.cgroup import CgroupFolders, cgroup_folders, cgroup_text
from gputop.sources.patient_reader import PatientReader
from gputop.sources.processes.tree.announced_run import AnnouncedRun, announced_run
from gputop.sources.processes.tree.job_identity import JobIdentity, job_identity
from gputop.sources.procfs import read_small, stat_of

COMMAND_LIMIT = 4096
"""Limit for the length of a command line, in characters."""

MOST_USERS = 1024
"""Limit of cached user names: containers bring user numbers of their own."""

_OF_A_RANK = ("MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
"""Variables of torchrun and other launchers for ``torch.distributed``."""


class RunRank(Struct, frozen=True):
    """One rank of a run, from its environment.

    ``meets_at`` is the port where the ranks meet, ``ranks`` their number, ``number`` the process's own rank. ``first``
    is the lowest rank on its machine and ``here`` the number of ranks there; None where the environment lacks them.
    """

    meets_at: int | None
    ranks: int
    number: int | None = None
    first: int | None = None
    here: int | None = None

    def missing(self, seen: Iterable[RunRank]) -> str:
        """Name the machine's ranks without a GPU: ``3 of 4 ranks seen, rank 2 holds no GPU here``.

        Only processes that hold a GPU are read, so a rank that is not seen may run all the same. Empty if all are
        seen. If the environment does not show which ranks are on this machine: ``3 of 4 ranks seen
        here``.
        """
        numbers = {
            rank.number
            for rank in seen
            if (rank.meets_at, rank.ranks) == (self.meets_at, self.ranks)
        } - {None}
        if self.number is None or (self.first is None and len(numbers) >= self.ranks):
            return ""
        if self.first is None or self.here is None:
            return f"{len(numbers)} of {self.ranks} ranks seen here"
        absent = [
            str(number)
            for number in range(self.first, self.first + self.here)
            if number not in numbers
        ]
        if not absent:
            return ""
        named = ", ".join(absent[:MOST_ABSENT]) + (", …" if len(absent) > MOST_ABSENT else "")
        on = "" if self.here == self.ranks else " of this machine"
        hold = f"rank {named} holds" if len(absent) == 1 else f"ranks {named} hold"
        return f"{self.here - len(absent)} of {self.here} ranks{on} seen, {hold} no GPU here"


MOST_ABSENT = 4
"""Limit of ranks without a GPU that are named."""


class Facts(Struct, frozen=True):
    """Facts of one process, secrets masked.

    ``folders`` is empty when its cgroup is not visible from here.
    """

    user: str | None
    command: str
    name: str
    server: str | None
    job_key: str | None
    identity: JobIdentity
    folders: CgroupFolders


class FactsReader:
    """Reads facts and caches shared values.

    The caches hold user names, cgroups and command lines.
    """

    def __init__(self, proc: str, sys: str) -> None:
        self._proc = proc
        self._sys = sys
        self._patient = PatientReader()
        self._salt = os.urandom(16)
        self._users: dict[int, str] = {}
        self._groups: dict[str, tuple[JobIdentity, CgroupFolders]] = {}
        self._names: dict[tuple[bytes, bytes], tuple[str, str, str | None]] = {}
        """Names by command line and kernel's name: ranks and their workers share them."""

    def command(self, pid: int) -> bytes | None:
        """Return the raw text of /proc/PID/cmdline.

        The text is NUL-separated; it is empty for a zombie or when it cannot be read. None if the read blocks because a
        thread of the process holds the lock of its memory.
        """
        return self._patient.read(f"{self._proc}/{pid}/cmdline")

    def rank(self, pid: int) -> RunRank | None:
        """Return a process's rank; None unless its run has several."""
        environ = self._patient.read(f"{self._proc}/{pid}/environ") or b""
        given = dict(
            entry.partition("=")[::2] for entry in environ.decode("ascii", "replace").split("\0")
        )
        values = [
            int(text) if (text := given.get(name, "")).isdecimal() else None for name in _OF_A_RANK
        ]
        port, of, number, local, here = values
        if (of or 0) < 2 or (port is None and number is None):
            return None
        first = None if number is None or local is None else number - local
        return RunRank(port, of or 0, number, first, here)

    def announced(self, pid: int) -> AnnouncedRun:
        """Return a process's run and rank; the run's name is salted, as keys of commands are."""
        environ = self._patient.read(f"{self._proc}/{pid}/environ") or b""
        entries = environ.decode("ascii", "replace").split("\0")
        told = announced_run(dict(entry.partition("=")[::2] for entry in entries))
        if told.run is None:
            return told
        return replace(told, run=self._salted(self.user(pid), told.run.encode()))

    def set_aside(self) -> int:
        """Return the number of processes whose command line blocks a reader."""
        return len(self._patient.stuck)

    def close(self) -> None:
        """End the thread that reads command lines."""
        self._patient.close()

    def facts_of(self, pid: int, comm: bytes, command: bytes) -> Facts:
        """Return the facts of a process.

        Its name and command line have already been read.
        """
        identity, folders = self._group(pid)
        user = self.user(pid)
        names = self._names.get((command, comm))
        if names is None:
            words = b" ".join(command.split(b"\0", 8)[:8]).decode("utf-8", "replace").split()
            names = command_text(command, comm), executable_name(command, comm), server_in(words)
            self._names[command, comm] = names
        return Facts(user, *names, self._job_key(user, command), identity, folders)

    def _job_key(self, user: str | None, command: bytes) -> str | None:
        """Return a common key for processes of one user and command.

        The digits after a rank word do not count: ranks of one job have one key.

        The key is salted by each gputop process, so it cannot be reversed. Python's hash of bytes is SipHash, which is
        made for this; ``hashlib`` would load OpenSSL.
        """
        if not command:
            return None
        text = command[:COMMAND_LIMIT].replace(b"\0", b" ").decode("utf-8", "replace")
        alike = ranked_command(text).text.encode("utf-8", "replace")
        return self._salted(user, alike + command[COMMAND_LIMIT:])

    def _salted(self, user: str | None, text: bytes) -> str:
        return f"{hash(self._salt + (user or '').encode() + bytes(1) + text) & (1 << 48) - 1:012x}"

    def clear_shared(self) -> None:
        """Clear cached cgroups and command lines.

        Called at each discovery, so that the caches stay as small as the tree, and hold no raw command line of a
        process outside it.
        """
        self._groups.clear()
        self._names.clear()

    def user(self, pid: int) -> str | None:
        """Return the name of a process's owner.

        The user number replaces a missing name; None when the process is gone.
        """
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
            shown = (
                part and replace(part, id=masked_text(part.id))
                for part in (identity.job, identity.container)
            )
            self._groups[text] = JobIdentity(*shown), cgroup_folders(text, self._sys)
        return self._groups[text]


def allowed_cpus(proc: str, pid: int) -> frozenset[int] | None:
    """Return the CPUs in a process's mask; None if unreadable."""
    try:
        status = read_small(f"{proc}/{pid}/status")
        text = status[status.index(b"Cpus_allowed_list:") + 18 :].split(None, 1)[0]
        ranges = [part.split(b"-") for part in text.split(b",")]
        return frozenset(cpu for ends in ranges for cpu in range(int(ends[0]), int(ends[-1]) + 1))
    except (OSError, ValueError, IndexError):
        return None


def allowed_cores(proc: str, pid: int, quota: float | None) -> float | None:
    """Return how many cores a process may use, by its CPU mask and its cgroup's quota.

    None if the mask is unreadable.
    """
    cpus = allowed_cpus(proc, pid)
    return None if cpus is None else min(float(len(cpus)), quota or inf)


def command_text(command: bytes, comm: bytes, *, mask: bool = True) -> str:
    """Return a command line to show, at most COMMAND_LIMIT characters.

    ``[name]`` when the kernel has none (zombies). Secrets are masked in the separate arguments and before the text is
    cut: once joined, the end of an argument with blanks is unclear.
    """
    words = _decoded(command[: 2 * COMMAND_LIMIT].rstrip(b"\0")).split("\0")
    text = " ".join(" ".join(masked_words(words) if mask else words).split())
    if not text:
        name = _decoded(comm)
        return f"[{clean_text(masked_text(name) if mask else name)}]"
    return clean_text(text)[:COMMAND_LIMIT]


def executable_name(command: bytes, comm: bytes) -> str:
    """Return the file name of argv[0], secrets masked.

    The kernel's name (15 bytes at most) replaces a missing command line.
    """
    first = masked_text(_decoded(command[: 2 * COMMAND_LIMIT].split(b"\0", 1)[0]))
    name = first.split(" ", 1)[0].rsplit("/", 1)[-1]
    return clean_text(name or masked_text(_decoded(comm)))[:COMMAND_LIMIT]


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


NOT_IN_PROC = "it is not visible in /proc (another PID namespace or user): run gputop where it runs"
GONE = "it has ended"
REPLACED = "it has ended and its pid belongs to another process now"


def identity_problem(proc: str, identity: ProcessIdentity) -> str | None:
    """Return why a pid is another process; None if identical.

    A process that has ended is a problem too. ``proc`` is the mount point of /proc.
    """
    if identity.starttime is None:
        return NOT_IN_PROC
    stat = stat_of(f"{proc}/{identity.pid}")
    if stat is None:
        return GONE
    if stat.starttime != identity.starttime:
        return REPLACED
    return f"{GONE}; its parent has not taken its exit status yet" if stat.state in "ZX" else None
