"""Names the limit that an error ran into."""

from __future__ import annotations

import errno
import os
import resource

NO_FILE = os.strerror(errno.EMFILE)
NO_MEMORY = os.strerror(errno.ENOMEM)
_STACK_BYTES = 8 << 20
"""A thread's stack where ``ulimit -s`` does not say otherwise; glibc maps it when the thread starts."""
_PROCESSES = "the limit on processes is reached (ulimit -u, or pids.max of the control group)"


def limit_reached(error: BaseException) -> str | None:
    """Return the limit that an error ran into, if any."""
    text = str(error)
    if isinstance(error, RuntimeError) and "can't start new thread" in text:
        return why_no_thread()
    if NO_FILE in text:
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"no file can be opened: the limit on open files is reached, {most} for a process (ulimit -n)"
    if isinstance(error, MemoryError) or NO_MEMORY in text:
        return f"no memory is left: {_memory_limit() or 'neither in this machine nor for this control group'}"
    return None


def why_no_thread() -> str:
    """Return why no thread can be started.

    A thread needs a process number, and memory for its stack.
    """
    stack, most = (resource.getrlimit(limit)[0] for limit in (resource.RLIMIT_STACK, resource.RLIMIT_AS))
    needed = _STACK_BYTES if stack == resource.RLIM_INFINITY else stack
    is_memory = most != resource.RLIM_INFINITY and most - address_space_bytes() < 2 * needed
    return f"no thread can be started: {_memory_limit() if is_memory else _PROCESSES}"


def _memory_limit() -> str:
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    words = f"the limit on memory is reached, {most >> 20} MiB of address space (ulimit -v)"
    return "" if most == resource.RLIM_INFINITY else words


def address_space_bytes() -> int:
    """Return the address space in bytes; 0 where /proc is missing."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0
