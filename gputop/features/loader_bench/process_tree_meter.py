"""Activity and memory of a loader's processes, read by the collector that the screen uses."""

from __future__ import annotations

import time
from collections.abc import Iterable

from gputop.features.loader_bench.bench_report import Shares
from gputop.model.snapshot import ProcessSample
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.processes.collector import ProcessCollector
from gputop.sources.procfs import read_file

MEMORY_PAUSE = 20.0
"""Pause after each reading of memory, as a multiple of its duration: at most a twentieth of the time."""


class ProcessTreeMeter:
    """Sample a process and its descendants: what the workers do, and how much memory the tree holds."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._collector = ProcessCollector(clock=time.monotonic)
        self._count = 0
        self._sums = [0.0, 0.0, 0.0, 0.0]
        self._samples = 0
        self._read = 0.0
        self.memory_bytes: float | None = None
        """Largest PSS of the whole tree, which counts shared pages once."""
        self._next_memory_s = 0.0

    def begin(self) -> None:
        """Start a measurement: drop earlier samples."""
        self._count = self._samples = 0
        self._sums, self._read = [0.0, 0.0, 0.0, 0.0], 0.0
        self._collect()

    def sample(self, alarm_bytes: float | None) -> None:
        """Take one sample; measure memory if the sum of resident sizes exceeds ``alarm_bytes``."""
        samples = self._collect()
        if (
            alarm_bytes is not None
            and time.monotonic() >= self._next_memory_s
            and sum(sample.rss_bytes or 0.0 for sample in samples) > alarm_bytes
        ):
            self.measure_memory(samples)
        measured = [sample for sample in samples if sample.run_pct is not None]
        workers = [sample for sample in measured if sample.pid != self._pid] or measured
        for sample in workers:
            run, queued = ((share or 0.0) / 100.0 for share in (sample.run_pct, sample.wait_pct))
            shares = (
                run,
                queued,
                float(sample.state == "D"),
                float(sample.waiting_on == "network"),
            )
            self._sums = [
                total + min(1.0, share) for total, share in zip(self._sums, shares, strict=True)
            ]
        if workers:
            self._samples += len(workers)
            self._count += 1
            self._read += sum(s.read_bytes_per_s or 0.0 for s in workers)

    def measure_memory(self, samples: Iterable[ProcessSample] | None = None) -> None:
        """Measure the memory of the tree, or of these samples.

        That takes several ms per process, during which their page faults wait.
        """
        begun = time.monotonic()
        pids = [sample.pid for sample in (self._collect() if samples is None else samples)]
        sizes = [size for pid in pids if (size := _pss(pid)) is not None]
        if sizes:
            self.memory_bytes = max(self.memory_bytes or 0.0, sum(sizes))
        ended = time.monotonic()
        self._next_memory_s = ended + MEMORY_PAUSE * (ended - begun)

    def shares(self) -> Shares | None:
        """Return the workers' means; None without samples."""
        return (
            None if not self._samples else Shares(*(total / self._samples for total in self._sums))
        )

    @property
    def read_bytes_per_s(self) -> float | None:
        """Bytes per second that all workers read from storage together."""
        return None if not self._count else self._read / self._count

    def close(self) -> None:
        self._collector.close()

    def _collect(self) -> tuple[ProcessSample, ...]:
        return self._collector.read(time.monotonic(), [GpuProcess(0, self._pid)])


def _pss(pid: int) -> float | None:
    """Return the proportional set size in bytes, from /proc/PID/smaps_rollup (proc(5)); None if unreadable."""
    try:
        lines = read_file(f"/proc/{pid}/smaps_rollup").splitlines()
    except OSError:
        return None
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith(b"Pss:")), None)
