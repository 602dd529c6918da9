"""Measures gputop's own cost and handles its Linux capabilities."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import monotonic, process_time

from msgspec import Struct

from gputop.model.snapshot import OwnCost
from gputop.sources.procfs import read_small


class OwnCostMeter:
    """Measures CPU time and memory of this process between snapshots."""

    def __init__(self) -> None:
        self._cpu_s = self._at = 0.0

    def read(self, helper: tuple[float, float] | None = None) -> OwnCost:
        """Return CPU (percent of one core) since the last call, and memory.

        The first call has neither. ``helper`` is a helper's own CPU and resident bytes.
        """
        cpu_s, now = process_time(), monotonic()
        first, elapsed = not self._at, now - self._at
        share = 100.0 * (cpu_s - self._cpu_s) / elapsed if not first and elapsed > 0.0 else None
        self._cpu_s, self._at = cpu_s, now
        return OwnCost(share, None if first else _resident_bytes(), *(helper or ()))


def _resident_bytes() -> float | None:
    """Return resident memory: the second number of ``statm``, proc(5)."""
    try:
        return float(int(read_small("/proc/self/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError):
        return None


# Linux capabilities of this process: read, kept from every child, and given to one.
#
# A program started with an ambient capability hands it to all that it starts. gputop clears the set first thing and
# raises it again only on the thread that starts the one helper that needs it, for that moment.

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
    return Capabilities(*(sets.get(name, 0) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd")))


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
    if ctypes.CDLL(None, use_errno=True).syscall(call, ctypes.byref(header), ctypes.byref(data)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _prctl(option: int, argument: int, number: int = 0) -> None:
    import ctypes

    # Fails on kernels before 4.3, which have no ambient set.
    ctypes.CDLL(None).prctl(option, argument, number, 0, 0)
