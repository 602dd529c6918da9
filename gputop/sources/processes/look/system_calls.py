"""System calls in which threads sleep, and the files that they name.

Reading a call takes the right to trace the process. Formats: proc(5), poll(2), select(2), futex(2); numbers: the tables
of asm/unistd.h.
"""

from __future__ import annotations

import os
import struct

from msgspec import Struct

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
_POLL_INPUT = 0x41
"""POLLIN and POLLRDNORM."""
MOST_SELECTED = 1024
"""FD_SETSIZE: a select has no more descriptors."""
MOST_DESCRIPTOR, MOST_PID = 1 << 20, 1 << 31
"""A larger argument is an address, and neither a descriptor nor a pid."""
LEAST_FIELDS_AFTER = 4
"""Fields of a thread in a system call, after the number and two arguments."""
_PRIVATE = 128
"""FUTEX_PRIVATE_FLAG: no other process can know the lock."""


class SystemCall(Struct, frozen=True):
    """The system call of a sleeping thread: its number and its first arguments."""

    number: int
    first: int
    second: int


class FileCall(Struct, frozen=True):
    """A system call on a file: its number and the descriptor."""

    number: int
    descriptor: int


def call_of(folder: str) -> SystemCall | None:
    """Return a sleeping thread's system call.

    The source is ``folder``/syscall. None if it is not readable, or if the thread is in no system call.
    """
    try:
        number, first, second, *rest = read_small(f"{folder}/syscall").split()
        if len(rest) < LEAST_FIELDS_AFTER:
            return None
        return SystemCall(int(number), int(first, 16), int(second, 16))
    except (OSError, ValueError):
        return None


def waited_call(folder: str) -> FileCall | None:
    """Return a sleeping thread's system call on a file.

    The first argument is taken as the descriptor: call it only if the wait channel implies such a call. None if the
    argument cannot be a descriptor.
    """
    call = call_of(folder)
    if call is None or call.number < 0:
        return None
    if not 0 <= call.first < MOST_DESCRIPTOR:
        return None
    return FileCall(call.number, call.first)


def link_of(proc: str, pid: int, descriptor: int) -> str:
    """Return the link text of a process's descriptor.

    Empty if it is not readable. The link is never followed: it may lead to a file system that does not answer.
    """
    return link_at(f"{proc}/{pid}/fd/{descriptor}")


def waited_link(proc: str, pid: int, folder: str) -> str:
    """Return the link of the descriptor in a thread's system call."""
    call = waited_call(folder)
    return "" if call is None else link_of(proc, pid, call.descriptor)


def inode_in(link: str, kind: str) -> int | None:
    """Return the inode in ``pipe:[123]`` or ``socket:[123]``.

    None for any other link.
    """
    number = link[len(kind) + 2 : -1]
    return int(number) if link.startswith(f"{kind}:[") and number.isdigit() else None


def waited_child(folder: str) -> int | None:
    """Return the child that a thread waits for by number, or None."""
    call = call_of(folder)
    if call is None or call.number not in _WAIT:
        return None
    return call.first if 0 < call.first < MOST_PID else None


def is_shared_lock(folder: str) -> bool:
    """Return whether the awaited lock is shared with other processes."""
    call = call_of(folder)
    if call is None or call.number not in _FUTEX:
        return False
    return not call.second & _PRIVATE


def polled(proc: str, pid: int, folder: str) -> list[int] | None:
    """Return the descriptors that a thread polls for reading.

    None if they are not readable. Only the array that the call names is read from the process's memory.
    """
    call = call_of(folder)
    if call is None:
        return None
    try:
        if call.number in _POLL:
            return _in_poll(proc, pid, call)
        if call.number in _SELECT:
            return _in_select(proc, pid, call)
        if call.number in _EPOLL:
            return _in_epoll(proc, pid, call)
    except (OSError, ValueError, IndexError, OverflowError):
        return None
    if call.number < 0 or call.first >= MOST_DESCRIPTOR:
        return None
    # accept(2) waits for one descriptor.
    return [call.first]


def _in_poll(proc: str, pid: int, call: SystemCall) -> list[int]:
    """Return the descriptors of a poll that wait for input."""
    data = _memory(proc, pid, call.first, 8 * min(call.second, MOST_POLLED))
    descriptors: list[int] = []
    for descriptor, events, _ in struct.iter_unpack("=ihh", data):
        if descriptor >= 0 and events & _POLL_INPUT:
            descriptors.append(descriptor)
    return descriptors


def _in_select(proc: str, pid: int, call: SystemCall) -> list[int]:
    """Return the descriptors of a select that wait for input."""
    count = min(call.first, MOST_SELECTED)
    data = _memory(proc, pid, call.second, (count + 63) // 64 * 8)
    bits = int.from_bytes(data, "little")
    return [descriptor for descriptor in range(count) if bits >> descriptor & 1]


def _in_epoll(proc: str, pid: int, call: SystemCall) -> list[int]:
    """Return the descriptors of an epoll."""
    descriptors: list[int] = []
    for line in read_small(f"{proc}/{pid}/fdinfo/{call.first}").splitlines():
        if line.startswith(b"tfd:"):
            _, descriptor, *_ = line.split()
            descriptors.append(int(descriptor))
    return descriptors


def _memory(proc: str, pid: int, address: int, size: int) -> bytes:
    """Read a few bytes of a process's memory. Raises OSError."""
    if not address or not size:
        return b""
    descriptor = os.open(f"{proc}/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, size, address)
    finally:
        os.close(descriptor)
