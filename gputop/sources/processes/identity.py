"""Whether a pid still is the process that was meant: only pid and start time together name a process."""

from __future__ import annotations

from gputop.model.inspection import Identity
from gputop.sources.procfs import parse_stat, read_small

NOT_IN_PROC = "it is not visible in /proc (another PID namespace or user): run gputop where it runs"
GONE = "it has ended"
REPLACED = "it has ended and its pid belongs to another process now"


def identity_problem(proc: str, identity: Identity) -> str | None:
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
