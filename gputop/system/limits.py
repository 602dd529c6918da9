"""Names the limit that an error ran into."""

from __future__ import annotations

import errno
import os
import resource

NO_FILE = os.strerror(errno.EMFILE)
NO_MEMORY = os.strerror(errno.ENOMEM)
NO_THREAD = (
    "no thread can be started: the limit on processes is reached (ulimit -u, or pids.max of the control group), "
    "or that on memory (ulimit -v)"
)


def limit_reached(error: BaseException) -> str | None:
    """Return the limit that an error ran into, if any."""
    text = str(error)
    if isinstance(error, RuntimeError) and "can't start new thread" in text:
        return NO_THREAD
    if NO_FILE in text:
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return (
            f"no file can be opened: the limit on open files is reached, {most} for a process "
            "(ulimit -n)"
        )
    if isinstance(error, MemoryError) or NO_MEMORY in text:
        return (
            "no memory is left in this machine, for this control group or for a process (ulimit -v)"
        )
    return None
