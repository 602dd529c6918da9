"""What a loader's processes do while they are measured, by the collector that the screen uses, and what they hold."""

from __future__ import annotations

import time
from collections.abc import Iterable

from gputop.features.loader_bench.bench_report import Shares
from gputop.model.snapshot import ProcessSample
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.processes.collector import ProcessCollector
from gputop.sources.procfs import read_file

WEIGHED_APART = 20.0
"""Measuring memory takes at most a twentieth of a measurement's time."""


class ProcessTreeMeter:
    """Looks at a process and its descendants; ``begin`` forgets what was before the measurement."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._collector = ProcessCollector(clock=time.monotonic)
        self._looks = 0
        self._sums = [0.0, 0.0, 0.0, 0.0]
        self._samples = 0
        self._read = 0.0
        self.memory_bytes: float | None = None
        """The most memory that the whole tree was seen to hold: PSS, which counts shared pages once."""
        self._weigh_next = 0.0

    def begin(self) -> None:
        self._looks = self._samples = 0
        self._sums, self._read = [0.0, 0.0, 0.0, 0.0], 0.0
        self._collect()

    def look(self, alarm_bytes: float | None) -> None:
        """One look: processes and their states; memory only where all resident pages together, the shared ones counted
        in each process, come to more than ``alarm_bytes``."""
        samples = self._collect()
        if (
            alarm_bytes is not None
            and time.monotonic() >= self._weigh_next
            and sum(sample.rss_bytes or 0.0 for sample in samples) > alarm_bytes
        ):
            self._weigh(samples)
        workers = [s for s in samples if s.pid != self._pid and s.run_pct is not None] or [
            s for s in samples if s.run_pct is not None
        ]
        for sample in workers:
            run, queued = ((share or 0.0) / 100.0 for share in (sample.run_pct, sample.wait_pct))
            shares = (run, queued, float(sample.state == "D"), float(sample.waiting_on == "network"))
            self._sums = [total + min(1.0, share) for total, share in zip(self._sums, shares, strict=True)]
        if workers:
            self._samples += len(workers)
            self._looks += 1
            self._read += sum(s.read_bytes_per_s or 0.0 for s in workers)

    def weigh(self) -> None:
        """Measure the tree's memory. Takes several ms per process, during which their page faults wait."""
        self._weigh(self._collect())

    def shares(self) -> Shares | None:
        """The workers' means; None where nothing was seen."""
        return None if not self._samples else Shares(*(total / self._samples for total in self._sums))

    @property
    def read_bytes_per_s(self) -> float | None:
        """What all workers read from storage together."""
        return None if not self._looks else self._read / self._looks

    def close(self) -> None:
        self._collector.close()

    def _weigh(self, samples: Iterable[ProcessSample]) -> None:
        begun = time.monotonic()
        sizes = [size for sample in samples if (size := _pss(sample.pid)) is not None]
        if sizes:
            self.memory_bytes = max(self.memory_bytes or 0.0, sum(sizes))
        ended = time.monotonic()
        self._weigh_next = ended + WEIGHED_APART * (ended - begun)

    def _collect(self) -> tuple[ProcessSample, ...]:
        return self._collector.read(time.monotonic(), [GpuProcess(0, self._pid)])


def _pss(pid: int) -> float | None:
    """Proportional set size in bytes, from /proc/PID/smaps_rollup (proc(5)); None where it cannot be read."""
    try:
        lines = read_file(f"/proc/{pid}/smaps_rollup").splitlines()
    except OSError:
        return None
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith(b"Pss:")), None)
