"""What does not change while a process lives: owner, command line, batch job, container, cgroup folders.

Environments are never read.
"""

from __future__ import annotations

import os
import pwd

from msgspec import Struct

from gputop.sources.cgroup import CgroupFolders, cgroup_folders, cgroup_text
from gputop.sources.processes.job import JobIdentity, job_identity
from gputop.sources.procfs import read_file

COMMAND_LIMIT = 4096
"""Characters of a command line that are kept."""

MOST_USERS = 1024
"""User names that are kept: containers bring user numbers of their own."""


class Facts(Struct, frozen=True):
    """Facts of one process. ``folders`` is empty when its cgroup is not visible from here."""

    user: str | None
    command: str
    name: str
    identity: JobIdentity
    folders: CgroupFolders


class FactsReader:
    """Reads facts, and keeps what many processes share: user names and cgroups."""

    def __init__(self, proc: str, sys: str) -> None:
        self._proc = proc
        self._sys = sys
        self._users: dict[int, str] = {}
        self._groups: dict[str, tuple[JobIdentity, CgroupFolders]] = {}

    def command(self, pid: int) -> bytes:
        """/proc/PID/cmdline as it is: NUL-separated, empty for a zombie or when it cannot be read."""
        try:
            return read_file(f"{self._proc}/{pid}/cmdline")
        except OSError:
            return b""

    def read(self, pid: int, comm: bytes, command: bytes) -> Facts:
        """The facts of a process whose name and command line were read already."""
        identity, folders = self._group(pid)
        return Facts(self._user(pid), command_text(command, comm), executable_name(command, comm), identity, folders)

    def forget(self) -> None:
        """Drop cached cgroups: called when the tree is rediscovered, so that the cache stays as small as the tree."""
        self._groups.clear()

    def _user(self, pid: int) -> str | None:
        try:
            uid = os.stat(f"{self._proc}/{pid}").st_uid
        except OSError:
            return None
        if uid not in self._users:
            if len(self._users) >= MOST_USERS:
                self._users.clear()
            try:
                self._users[uid] = printable(pwd.getpwuid(uid).pw_name)
            except KeyError:
                self._users[uid] = str(uid)
        return self._users[uid]

    def _group(self, pid: int) -> tuple[JobIdentity, CgroupFolders]:
        try:
            text = cgroup_text(f"{self._proc}/{pid}")
        except OSError:
            return JobIdentity(), CgroupFolders()
        if text not in self._groups:
            self._groups[text] = job_identity(text), cgroup_folders(text, self._sys)
        return self._groups[text]


def printable(text: str) -> str:
    """Text without control characters: a command line must not be able to move the cursor of who looks at it."""
    return "".join(c if c.isprintable() else "?" for c in text)


def command_text(command: bytes, comm: bytes) -> str:
    """A command line to show; ``[name]`` when the kernel has none (zombies). At most COMMAND_LIMIT characters."""
    words = command[: 4 * COMMAND_LIMIT].rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")
    text = " ".join(words.split())
    return printable(text)[:COMMAND_LIMIT] if text else f"[{printable(comm.decode('utf-8', 'replace'))}]"


def executable_name(command: bytes, comm: bytes) -> str:
    """The file name of argv[0], or the kernel's name (15 bytes at most) when there is no command line."""
    first = command.split(b"\0", 1)[0].split(b" ", 1)[0].rsplit(b"/", 1)[-1]
    return printable((first or comm).decode("utf-8", "replace"))[:COMMAND_LIMIT]
