"""System calls in which threads sleep, and the files that they name.

Reading a call takes the right to trace the process. Formats: proc(5), poll(2), select(2), futex(2); numbers: the tables
of asm/unistd.h.
"""

from __future__ import annotations

import os
import struct

from gputop.sources.procfs import link_at, read_small

MOST_POLLED = 64
"""Limit of descriptors of one poll that are resolved."""
_NUMBERS = {
    "x86_64": (
        (7, 271),
        (23, 270),
        (232, 281, 441),
        (61,),
        (202,),
        (1, 18, 20, 296, 328, 74, 75, 3, 77, 285),
    ),
    "aarch64": ((73,), (72,), (22, 441), (260,), (98,), (64, 68, 66, 70, 287, 82, 83, 57, 46, 47)),
}.get(os.uname().machine, ((),) * 6)
_POLL, _SELECT, _EPOLL, _WAIT, _FUTEX, SAVING = map(frozenset[int], _NUMBERS)
"""poll, ppoll; select, pselect6; epoll_wait, epoll_pwait, epoll_pwait2; wait4; futex; and the calls that write a file
or wait until it is written: write, pwrite64, writev, pwritev, pwritev2, fsync, fdatasync, close, ftruncate,
fallocate."""
_PRIVATE = 128
"""FUTEX_PRIVATE_FLAG: no other process can know the lock."""


def call_of(folder: str) -> tuple[int, ...] | None:
    """Return (number, six arguments) of a sleeping thread's system call.

    The source is ``folder``/syscall. None if it is not readable, or if the thread is in no system call.
    """
    try:
        fields = read_small(f"{folder}/syscall").split()
        return (
            (int(fields[0]), *(int(field, 16) for field in fields[1:7]))
            if len(fields) > 6
            else None
        )
    except (OSError, ValueError):
        return None


def waited_call(folder: str) -> tuple[int, int] | None:
    """Return (number, descriptor) of a sleeping thread's system call.

    The first argument is taken as the descriptor: call it only if the wait channel implies such a call. None if the
    argument cannot be a descriptor.
    """
    call = call_of(folder)
    return (
        (call[0], call[1]) if call is not None and call[0] >= 0 and 0 <= call[1] < 1 << 20 else None
    )


def link_of(proc: str, pid: int, descriptor: int) -> str:
    """Return the link text of a process's descriptor.

    Empty if it is not readable. The link is never followed: it may lead to a file system that does not answer.
    """
    return link_at(f"{proc}/{pid}/fd/{descriptor}")


def waited_link(proc: str, pid: int, folder: str) -> str:
    """Return the link of the descriptor in a thread's system call."""
    call = waited_call(folder)
    return "" if call is None else link_of(proc, pid, call[1])


def inode_in(link: str, kind: str) -> int | None:
    """Return the inode in ``pipe:[123]`` or ``socket:[123]``.

    None for any other link.
    """
    number = link[len(kind) + 2 : -1]
    return int(number) if link.startswith(f"{kind}:[") and number.isdigit() else None


def waited_child(folder: str) -> int | None:
    """Return the child that a thread waits for by number, or None."""
    call = call_of(folder)
    return call[1] if call is not None and call[0] in _WAIT and 0 < call[1] < 1 << 31 else None


def is_shared_lock(folder: str) -> bool:
    """Return whether the awaited lock is shared with other processes."""
    call = call_of(folder)
    return call is not None and call[0] in _FUTEX and not call[2] & _PRIVATE


def polled(proc: str, pid: int, folder: str) -> list[int] | None:
    """Return the descriptors that a thread polls for reading.

    None if they are not readable. Only the array that the call names is read from the process's memory.
    """
    call = call_of(folder)
    if call is None:
        return None
    number, first, second, *_ = call
    try:
        if number in _POLL:
            data = _memory(proc, pid, first, 8 * min(second, MOST_POLLED))
            return [
                fd
                for fd, events, _ in struct.iter_unpack("=ihh", data)
                if fd >= 0 and events & 0x41
            ]
        if number in _SELECT:
            bits = int.from_bytes(
                _memory(proc, pid, second, (min(first, 1024) + 63) // 64 * 8), "little"
            )
            return [fd for fd in range(min(first, 1024)) if bits >> fd & 1]
        if number in _EPOLL:
            lines = read_small(f"{proc}/{pid}/fdinfo/{first}").splitlines()
            return [int(line.split()[1]) for line in lines if line.startswith(b"tfd:")]
    except (OSError, ValueError, IndexError, OverflowError):
        return None
    # accept(2) waits for one descriptor.
    return [first] if number >= 0 and first < 1 << 20 else None


def _memory(proc: str, pid: int, address: int, size: int) -> bytes:
    """Read a few bytes of a process's memory. Raises OSError."""
    if not address or not size:
        return b""
    descriptor = os.open(f"{proc}/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, size, address)
    finally:
        os.close(descriptor)
