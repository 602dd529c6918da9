"""How a job tells its pretended GPU when it computes: seconds of GPU time, summed up in a shared file, and its pid.

A job adds to its slot while it computes; whoever plays the machine reads the sums and turns them into utilisation. A
slot has one writer and its fields are aligned 8-byte stores, so nobody needs a lock.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

_SECONDS, _PID = struct.Struct("=d"), struct.Struct("=q")
_SLOT = _SECONDS.size + _PID.size


class BusyClock:
    """GPU seconds and pid by slot. ``slots`` creates the file anew; without it an existing one is opened."""

    def __init__(self, path: Path, slots: int | None = None) -> None:
        self.path = path
        if slots is not None:
            path.write_bytes(bytes(_SLOT * slots))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    def read(self, slot: int) -> float:
        """Seconds that the GPU of this slot has computed so far."""
        return float(_SECONDS.unpack_from(self._memory, slot * _SLOT)[0])

    def add(self, slot: int, seconds: float) -> None:
        _SECONDS.pack_into(self._memory, slot * _SLOT, self.read(slot) + seconds)

    def pid(self, slot: int) -> int:
        """The process that uses this GPU; 0 before it has begun to."""
        return int(_PID.unpack_from(self._memory, slot * _SLOT + _SECONDS.size)[0])

    def use(self, slot: int, pid: int) -> None:
        """Say which process uses this GPU."""
        _PID.pack_into(self._memory, slot * _SLOT + _SECONDS.size, pid)

    def close(self) -> None:
        self._memory.close()
