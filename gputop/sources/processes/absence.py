"""Why /proc does not show a process that the driver lists, or hides what it does."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gputop.model.snapshot import ProcessSample
from gputop.sources.processes.watched import DENIED_IO
from gputop.sources.procfs import read_file

OTHER_NAMESPACE = (
    "not visible in /proc (another PID namespace: run gputop on the host, or in a container with its PIDs)"
)
YOUNGER = "not visible in /proc (its pid belongs to a younger process here: another PID namespace)"
HIDDEN = "not visible in /proc (mounted with hidepid: run as root)"
EXITED = "the process has exited"

_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""The first PID namespace as its link reads (PROC_PID_INIT_INO in linux/proc_ns.h)."""


def has_own_pids(proc: str) -> bool:
    """Whether this is a container's PID namespace, whose pids are not those of the host."""
    try:
        return os.readlink(f"{proc}/self/ns/pid") != _FIRST_PID_NAMESPACE
    except OSError:
        return False


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
        return self._own_pids and not holds_a_gpu(self._proc, pid)

    def reason(self) -> str:
        """The reason, found out once."""
        if self._reason is None:
            self._reason = HIDDEN if os.geteuid() != 0 and self._is_hidepid() else OTHER_NAMESPACE
        return self._reason

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
        count = sum(given == reason for given in reasons.values())
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
