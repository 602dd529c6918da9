"""How a job tells its pretended GPU when it computes: seconds of GPU time, summed up in a shared file.

A job adds to its slot while it computes; whoever plays the machine reads the sums and turns them into utilisation. A
slot has one writer and is one aligned 8-byte store, so nobody needs a lock.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

_SLOT = struct.Struct("=d")


class BusyClock:
    """GPU seconds by slot. ``slots`` creates the file anew; without it an existing one is opened."""

    def __init__(self, path: Path, slots: int | None = None) -> None:
        self.path = path
        if slots is not None:
            path.write_bytes(bytes(_SLOT.size * slots))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    def read(self, slot: int) -> float:
        """Seconds that the GPU of this slot has computed so far."""
        return float(_SLOT.unpack_from(self._memory, slot * _SLOT.size)[0])

    def add(self, slot: int, seconds: float) -> None:
        _SLOT.pack_into(self._memory, slot * _SLOT.size, self.read(slot) + seconds)

    def close(self) -> None:
        self._memory.close()
