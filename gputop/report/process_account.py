"""Sum up the GPU processes of a recording."""

from __future__ import annotations

from msgspec import Struct

from gputop.model.snapshot import ProcessSample, Snapshot

MOST_PROCESSES = 256
"""Processes that are listed; those that come later are counted."""


class ProcessReport(Struct, frozen=True):
    """A process on one GPU: owner, peak memory, time and command.

    ``seconds`` is the recorded time in which it was seen. A process on several GPUs has a row for each.
    """

    pid: int
    gpu: int | None
    user: str | None
    command: str | None
    memory_peak_bytes: float | None
    seconds: float


class _Process:
    """Sums of one process on one GPU."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.peak_bytes: float | None = None
        self.sample: ProcessSample | None = None

    def add(self, process: ProcessSample, seconds: float) -> None:
        self.sample = process
        self.seconds += seconds
        held_bytes = process.gpu_mem_bytes
        if held_bytes is None:
            return
        known_bytes = 0.0 if self.peak_bytes is None else self.peak_bytes
        self.peak_bytes = max(known_bytes, held_bytes)

    def report(self) -> ProcessReport:
        process = self.sample
        assert process is not None, "a process is made where it is seen"
        static = process.static
        command = static.command or static.name
        return ProcessReport(
            process.pid, process.gpu, static.user, command, self.peak_bytes, self.seconds
        )


_Key = tuple[str, int, int | None, int | None]
"""Host, pid, start time and GPU."""


class ProcessAccount:
    """Sums of all GPU processes, in constant memory."""

    def __init__(self) -> None:
        self._processes: dict[_Key, _Process] = {}
        self._unlisted: set[int] = set()

    def add(self, snapshot: Snapshot, seconds: float) -> None:
        """Count a snapshot that covers ``seconds``."""
        host = snapshot.machine.hostname
        for process in snapshot.processes:
            if process.role != "gpu":
                continue
            key = (host, process.pid, process.starttime, process.gpu)
            known = self._processes.get(key)
            if known is None:
                if len(self._processes) >= MOST_PROCESSES:
                    self._count_unlisted(key)
                    continue
                known = self._processes[key] = _Process()
            known.add(process, seconds)

    def _count_unlisted(self, key: _Key) -> None:
        """Count a process that has no row, up to a hundred times the rows."""
        if len(self._unlisted) < 100 * MOST_PROCESSES:
            self._unlisted.add(hash(key))

    def report(self) -> tuple[ProcessReport, ...]:
        """Report each process, the one with the most memory first."""
        rows = [process.report() for process in self._processes.values()]
        return tuple(
            sorted(rows, key=lambda row: (-(row.memory_peak_bytes or 0.0), -row.seconds, row.pid))
        )

    @property
    def unlisted(self) -> int:
        """Number of processes without a row."""
        return len(self._unlisted)
