"""Polls the host around the GPUs: CPU, memory, disks, network and fabric."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.model.metrics import HOST_METRICS
from gputop.model.snapshot import FabricPort, HostSample

if TYPE_CHECKING:
    from gputop.sources.host import HostCollector

LEAST_HOST_S = 0.1
"""The least time between two readings of the host and its processes: CPU time is counted in steps of 10 ms, and over
less its rates are noise (psutil advises as much for its ``cpu_percent``)."""
_NOT_YET = HostSample(
    unavailable=dict.fromkeys(HOST_METRICS, "the host is read from the second picture on")
)


class HostPoller:
    """Reads the host, on the thread that reads its processes: /proc hangs as a whole.

    The first picture waits for none of it, and its code is imported on that thread.
    """

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._collector: HostCollector | None = None
        self._sample, self._read_at = _NOT_YET, float("-inf")

    def read(self, now: float, *, is_wanted: bool) -> HostSample:
        """Return the newest sample at monotonic ``now``, after a new reading where one is due."""
        if self._collector is None and is_wanted:
            from gputop.sources.host import HostCollector

            self._collector = HostCollector(self._proc)
        if self._collector is not None and now - self._read_at >= LEAST_HOST_S:
            self._sample, self._read_at = self._collector.read(now), now
        return self._sample

    @property
    def ports(self) -> tuple[FabricPort, ...]:
        """Return the ports of the fabric, as last read."""
        return () if self._collector is None else self._collector.ports

    def close(self) -> None:
        """Close the open files; on the reading thread."""
        if self._collector is not None:
            self._collector.close()
