"""Measures gputop's own cost and handles its Linux capabilities."""

from __future__ import annotations

import os
from contextlib import suppress
from time import monotonic, process_time

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
        resident: float | None = None
        with suppress(OSError, ValueError, IndexError):
            # The second number of statm, proc(5).
            resident = float(
                int(read_small("/proc/self/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")
            )
        return OwnCost(share, None if first else resident, *(helper or ()))
