"""Linux capabilities of this process: read, kept from every child, and given to one.

A program started with an ambient capability hands it to all that it starts. gputop clears the set first thing and
raises it again only on the thread that starts the one helper that needs it, for that moment.
"""

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
    bounding: int = 0

    def has(self, number: int) -> bool:
        """Whether a capability, by its number, is in effect."""
        return bool(self.effective >> number & 1)


def capabilities(proc: str = "/proc") -> Capabilities:
    """What this thread may do; nothing where the kernel does not say."""
    found: dict[str, int] = {}
    try:
        with open(f"{proc}/thread-self/status", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("Cap"):
                    name, _, value = line.partition(":")
                    found[name] = int(value, 16)
    except (OSError, ValueError):
        return Capabilities()
    return Capabilities(*(found.get(name, 0) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd")))


def clear_ambient() -> None:
    """Keep every program started from here from inheriting a capability. Does nothing where there is none."""
    if capabilities().ambient:
        _prctl(_PR_CAP_AMBIENT, _CLEAR_ALL)


@contextmanager
def ambient(number: int) -> Iterator[None]:
    """Pass a capability to what this thread starts within the block, if this process holds it as inheritable."""
    held = capabilities()
    if held.permitted & held.inheritable & 1 << number:
        _prctl(_PR_CAP_AMBIENT, _RAISE, number)
    try:
        yield
    finally:
        clear_ambient()


def keep_only(numbers: Iterable[int]) -> None:
    """Give up every other capability of this thread, for good. Does nothing on an unknown architecture."""
    import ctypes

    call = _CAPSET.get(os.uname().machine)
    if call is None:
        return
    mask = capabilities().permitted & sum(1 << number for number in numbers)
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    data = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    _prctl(_PR_CAP_AMBIENT, _CLEAR_ALL)
    if ctypes.CDLL(None, use_errno=True).syscall(call, ctypes.byref(header), ctypes.byref(data)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _prctl(option: int, what: int, number: int = 0) -> None:
    import ctypes

    # Fails on kernels before 4.3, which have no ambient set.
    ctypes.CDLL(None).prctl(option, what, number, 0, 0)
