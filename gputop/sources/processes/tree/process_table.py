"""Processes of /proc by pid, and reasons why some are missing. This table knows neither GPUs nor loaders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from gputop.model.snapshot import ProcessSample
from gputop.sources.processes.tree.watched import DENIED_IO
from gputop.sources.procfs import Stat, link_at, names_in, read_file, stat_of

OTHER_NAMESPACE = (
    "not visible in /proc (another PID namespace: run gputop on the host, or in a container with "
    "its PIDs)"
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
    link = link_at(f"{proc}/self/ns/pid")
    return link != _FIRST_PID_NAMESPACE if link else None


def holds_a_gpu(proc: str, pid: int) -> bool:
    """Return whether a process has an NVIDIA device file open.

    False also if its open files are not readable.
    """
    folder = f"{proc}/{pid}/fd"
    return any(link_at(f"{folder}/{name}").startswith("/dev/nvidia") for name in names_in(folder))


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
            self._reason = (
                HIDDEN if is_hidden else EXITED if self._own_pids is False else OTHER_NAMESPACE
            )
        return YOUNGER if is_younger and self._reason != EXITED else self._reason

    def _is_hidepid(self) -> bool:
        try:
            lines = read_file(f"{self._proc}/mounts").decode("utf-8", "replace").splitlines()
        except OSError:
            return False
        mounts = (line.split() for line in lines)
        return any(
            len(mount) > 3
            and mount[2] == "proc"
            and "hidepid=" in mount[3]
            and "hidepid=0" not in mount[3]
            for mount in mounts
        )


def notices_of(
    samples: Sequence[ProcessSample], set_aside: int = 0, error: Exception | None = None
) -> tuple[str, ...]:
    """Describe missing data of processes, with remedies.

    ``set_aside`` is the number of processes whose command lines block the reader, ``error`` what the sampler raised.
    """
    reasons = {
        sample.pid: sample.unavailable.get("state") for sample in samples if sample.state is None
    }
    notices = []
    for reason in (HIDDEN, OTHER_NAMESPACE, YOUNGER):
        count = sum(why == reason for why in reasons.values())
        if count:
            notices.append(
                f"{count} GPU process{'es' if count > 1 else ''} {reason}: host signals unavailable"
            )
    denied = {s.pid for s in samples if s.unavailable.get("read_bytes_per_s") == DENIED_IO}
    if denied:
        subject = "1 process is" if len(denied) == 1 else f"{len(denied)} processes are"
        notices.append(f"{subject} closed to this user: run as root for disk and wait evidence")
    if set_aside:
        whose = "a process hangs" if set_aside == 1 else f"{set_aside} processes hang"
        notices.append(
            f"{whose} with its memory locked: the command line is not known, or that of before is shown"
        )
    if error is not None:
        notices.append(f"sampling waits failed: {type(error).__name__}: {error}")
    return tuple(notices)


# A pid reused between two refreshes would keep its old parent for ever; a full pass corrects that.
_FULL_PASS_S = 180.0


class ProcessTable:
    """Processes of a /proc by pid, with parents and children.

    Call ``refresh`` to find new processes. One listing of /proc names them. Only new ones, and those without their
    former parent, are read. (Reading every ``stat`` costs 8 µs a process: 40 ms on a node of 5000.) Walking
    ``task/*/children`` instead would miss no less and costs a read for each *thread* of each process.
    """

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._entries: dict[int, Stat] = {}
        self._index: dict[int, list[int]] | None = None
        self._full_at = float("-inf")

    @property
    def pause_s(self) -> float:
        """Time between two refreshes: a listing of 10,000 processes takes some 6 ms."""
        return 0.9 + len(self._entries) / 2000.0

    def refresh(self, now: float) -> set[int]:
        """Update the table; return the processes that are new, gone or were read again.

        Hidden processes, and those that exit during the read, are left out.
        """
        try:
            present = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        except OSError:
            present = set()
        entries = self._entries
        new = present - entries.keys()
        gone = entries.keys() - present
        reread: set[int] = set()
        if not 0.0 <= now - self._full_at < _FULL_PASS_S:
            self._full_at = now
            reread = present
        elif gone:
            reread = {pid for pid, entry in entries.items() if entry.ppid in gone}
        for pid in gone:
            del entries[pid]
        for pid in new | reread:
            self._read(pid)
        if gone:
            self._index = None
        return new | gone | reread

    def _read(self, pid: int) -> None:
        entry = stat_of(f"{self._proc}/{pid}")
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
