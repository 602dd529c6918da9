"""Reads Linux capabilities of this process and keeps them from children."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from msgspec import Struct

SYS_ADMIN, PERFMON = 21, 38
"""Numbers of linux/capability.h."""
_PR_CAP_AMBIENT, _RAISE, _CLEAR_ALL = 47, 2, 4
_VERSION_3 = 0x20080522
_CAPSET = {"x86_64": 126, "aarch64": 91}


class Capabilities(Struct, frozen=True):
    """Bit masks of the calling process, as in /proc/self/status."""

    effective: int = 0
    permitted: int = 0
    inheritable: int = 0
    ambient: int = 0

    def has(self, number: int) -> bool:
        """Whether a capability, by its number, is in effect."""
        return bool(self.effective >> number & 1)


def capabilities(proc: str = "/proc") -> Capabilities:
    """Return this thread's capabilities; none where the kernel hides them."""
    sets: dict[str, int] = {}
    try:
        with open(f"{proc}/thread-self/status", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("Cap"):
                    name, _, value = line.partition(":")
                    sets[name] = int(value, 16)
    except (OSError, ValueError):
        return Capabilities()
    return Capabilities(*(sets.get(name, 0) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")))


def clear_ambient() -> None:
    """Keep started programs from inheriting capabilities.

    A program started with an ambient capability passes it to all that it starts. gputop clears the set first and
    raises it only on the thread that starts the one helper that needs it.
    """
    if capabilities().ambient:
        _prctl(_PR_CAP_AMBIENT, _CLEAR_ALL)


@contextmanager
def ambient(number: int) -> Iterator[None]:
    """Pass a capability to programs started within the block.

    Only if this process holds it as inheritable.
    """
    capability_sets = capabilities()
    if capability_sets.permitted & capability_sets.inheritable & 1 << number:
        _prctl(_PR_CAP_AMBIENT, _RAISE, number)
    try:
        yield
    finally:
        clear_ambient()


def keep_only(numbers: Iterable[int]) -> None:
    """Drop all other capabilities of this thread for good.

    Does nothing on an unknown architecture.
    """
    import ctypes

    call = _CAPSET.get(os.uname().machine)
    if call is None:
        return
    mask = capabilities().permitted & sum(1 << number for number in numbers)
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    data = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    _prctl(_PR_CAP_AMBIENT, _CLEAR_ALL)
    if (
        ctypes.CDLL(None, use_errno=True).syscall(call, ctypes.byref(header), ctypes.byref(data))
        != 0
    ):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _prctl(option: int, argument: int, number: int = 0) -> None:
    import ctypes

    # Fails on kernels before 4.3, which have no ambient set.
    ctypes.CDLL(None).prctl(option, argument, number, 0, 0)
