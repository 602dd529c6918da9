"""A recording as columns of equal length for charts.

Constant memory, whatever the recording's length: a column keeps sums, never samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.summary import head_of
from gputop.diagnosis.types import GpuDiagnosis, Role
from gputop.model.sm import MEASURED
from gputop.model.snapshot import GpuSample, ProcessSample, Snapshot
from gputop.monitor import Frame, Monitor
from gputop.recording.reader import Recording
from gputop.report.job_report import JobReport, ReportBuilder, with_run
from gputop.report.time_means import TimeMeans

if TYPE_CHECKING:
    from gputop.recording.decode import RecordingFilter

COLUMNS = 480
MOST_PROCESSES = 200
"""Processes listed; those that come later are counted."""


class LaneColumn(Struct, frozen=True):
    """Means of a column in percent, and its most frequent verdict.

    ``is_flagged``: busy-not-working held for most of it.
    """

    util_pct: float | None
    sm_pct: float | None
    is_flagged: bool
    role: Role
    title: str


class ProcessRow(Struct, frozen=True):
    """A GPU process: command, seconds and most memory in bytes."""

    pid: int
    gpu: int | None
    user: str | None
    command: str
    seconds: float
    memory_bytes: float | None
    job: str | None = None


class Pictured(Struct, frozen=True):
    """A report with its charts.

    ``lanes`` has an entry a column for each UUID, None where nothing was recorded.
    """

    report: JobReport
    column_s: float
    lanes: Mapping[str, tuple[LaneColumn | None, ...]]
    processes: tuple[ProcessRow, ...]
    more_processes: int
    driver: str | None
    sm_sources: tuple[str, ...]


class _Column:
    """One column of one GPU."""

    def __init__(self) -> None:
        self.means = TimeMeans()
        self.frames = self.flagged = 0
        self.verdicts: Counter[tuple[Role, str]] = Counter()

    def add(self, gpu: GpuSample, d: GpuDiagnosis) -> None:
        head = head_of(d)
        self.frames += 1
        self.flagged += d.busy_not_working is not None
        self.verdicts[head.role, head.words] += 1
        self.means.add("util", gpu.util_pct, 1.0)
        if gpu.sm_source in MEASURED:
            self.means.add("sm", gpu.sm_active_pct, 1.0)

    def column(self) -> LaneColumn:
        ((verdict, _),) = self.verdicts.most_common(1)
        return LaneColumn(self.means["util"], self.means["sm"], 2 * self.flagged > self.frames, *verdict)


class _Lanes:
    """Collects columns and processes frame by frame."""

    def __init__(self, begin: float, end: float) -> None:
        self.begin = begin
        self.column_s = max(1e-9, (end - begin) / COLUMNS)
        self.gpus: dict[str, dict[int, _Column]] = {}
        self.processes: dict[tuple[int, int | None, int | None], tuple[ProcessSample, float, float | None]] = {}
        self.missed: set[tuple[int, int | None]] = set()
        self.driver: str | None = None
        self.sources: dict[str, None] = {}

    def add(self, frame: Frame) -> None:
        snapshot = frame.snapshot
        self.driver = snapshot.machine.driver or self.driver
        # A frame stands for the interval before it, which may be longer than a column.
        last = self._number(snapshot.t)
        numbers = range(min(last, self._number(snapshot.t - snapshot.interval_s + self.column_s)), last + 1)
        for gpu, d in zip(snapshot.gpus, frame.diagnoses, strict=False):
            columns = self.gpus.setdefault(gpu.static.uuid, {})
            for number in numbers:
                columns.setdefault(number, _Column()).add(gpu, d)
            if gpu.sm_source in MEASURED and gpu.sm_active_pct is not None:
                self.sources[gpu.sm_source] = None
        for process in snapshot.processes:
            if process.role == "gpu":
                self._add_process(process, snapshot.interval_s)

    def _number(self, t: float) -> int:
        return min(COLUMNS - 1, max(0, int((t - self.begin) / self.column_s)))

    def _add_process(self, process: ProcessSample, seconds: float) -> None:
        key = (process.pid, process.starttime, process.gpu)
        entry = self.processes.get(key)
        if entry is None and len(self.processes) >= MOST_PROCESSES:
            self.missed.add(key[:2])
            return
        _, before, peak_bytes = entry or (process, 0.0, None)
        memory = process.gpu_mem_bytes
        peak_bytes = memory if peak_bytes is None else max(peak_bytes, memory or 0.0)
        self.processes[key] = (process, before + seconds, peak_bytes)

    def rows(self) -> tuple[ProcessRow, ...]:
        """The processes, those that were seen longest first."""
        rows = [
            ProcessRow(
                p.pid, p.gpu, p.static.user, p.static.command or p.static.name or "", seconds, peak_bytes, p.static.job
            )
            for p, seconds, peak_bytes in self.processes.values()
        ]
        return tuple(sorted(rows, key=lambda row: (-row.seconds, row.pid)))


def pictured_recording(
    path: str, *, price: float | None = None, recording_filter: RecordingFilter | None = None
) -> Pictured:
    """Report on a recording with its charts.

    It is diagnosed again by today's rules. Raises RecordingError.
    """
    with closing(Recording(path, recording_filter)) as recording:
        lanes = _Lanes(recording.begin, recording.end)
        pictured = _pictured(recording.snapshots(), lanes, recording.interval_s, price)
        return replace(pictured, report=with_run(pictured.report, recording.run))


def pictured(snapshots: Sequence[Snapshot], *, interval_s: float = 1.0, price: float | None = None) -> Pictured:
    """The same from snapshots in memory; at least one, oldest first."""
    return _pictured(snapshots, _Lanes(snapshots[0].t, snapshots[-1].t), interval_s, price)


def _pictured(snapshots: Iterable[Snapshot], lanes: _Lanes, interval_s: float, price: float | None) -> Pictured:
    monitor, builder = Monitor(interval_s, charts=False), ReportBuilder()
    for snapshot in snapshots:
        frame = monitor.feed(snapshot)
        builder.add(frame)
        lanes.add(frame)
    columns = {
        uuid: tuple(sums[i].column() if i in sums else None for i in range(COLUMNS))
        for uuid, sums in lanes.gpus.items()
    }
    return Pictured(
        builder.report(price=price), lanes.column_s, columns, lanes.rows(), len(lanes.missed), lanes.driver,
        tuple(lanes.sources),
    )  # fmt: skip
