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

from gputop.diagnosis.types import GpuDiagnosis, Role
from gputop.diagnosis.verdict.summary import head_of
from gputop.model.sm import MEASURED
from gputop.model.snapshot import GpuSample, Snapshot
from gputop.monitor import Frame
from gputop.recording.reader import Recording
from gputop.recording.recorded_times import MOST_JUMP_S
from gputop.report.job_report import JobReport, ReportBuilder, diagnosed, with_run
from gputop.report.time_means import TimeMeans

if TYPE_CHECKING:
    from gputop.recording.decode import RecordingFilter

COLUMNS = 480


class LaneColumn(Struct, frozen=True):
    """Means of a column in percent, and its most frequent verdict.

    ``is_flagged``: busy-not-working held for most of it.
    """

    util_pct: float | None
    sm_pct: float | None
    is_flagged: bool
    role: Role
    title: str


class Pictured(Struct, frozen=True):
    """A report with its charts.

    ``lanes`` has an entry a column for each UUID, None where nothing was recorded.
    """

    report: JobReport
    column_s: float
    lanes: Mapping[str, tuple[LaneColumn | None, ...]]
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
        return LaneColumn(
            self.means["util"], self.means["sm"], 2 * self.flagged > self.frames, *verdict
        )


class _Lanes:
    """Collects columns frame by frame."""

    def __init__(self, begin: float, end: float) -> None:
        self.begin, self.end = begin, end
        self.column_s = max(1e-9, (end - begin) / COLUMNS)
        self.gpus: dict[str, dict[int, _Column]] = {}
        self.driver: str | None = None
        self.sources: dict[str, None] = {}

    def add(self, frame: Frame) -> None:
        snapshot = frame.snapshot
        if not self._is_charted(snapshot.t):
            return
        self.driver = snapshot.machine.driver or self.driver
        # A frame stands for the interval before it, which may be longer than a column.
        last = self._number(snapshot.t)
        numbers = range(
            min(last, self._number(snapshot.t - snapshot.interval_s + self.column_s)), last + 1
        )
        for gpu, d in zip(snapshot.gpus, frame.diagnoses, strict=False):
            columns = self.gpus.setdefault(gpu.static.uuid, {})
            for number in numbers:
                columns.setdefault(number, _Column()).add(gpu, d)
            if gpu.sm_source in MEASURED and gpu.sm_active_pct is not None:
                self.sources[gpu.sm_source] = None

    def _is_charted(self, t: float) -> bool:
        """Return whether a time is that of the recording's main clock, not one that was wrong by years."""
        return self.begin - MOST_JUMP_S <= t <= self.end + MOST_JUMP_S

    def _number(self, t: float) -> int:
        return min(COLUMNS - 1, max(0, int((t - self.begin) / self.column_s)))


def pictured_recording(
    path: str, *, price: float | None = None, recording_filter: RecordingFilter | None = None
) -> Pictured:
    """Report on a recording with its charts.

    It is diagnosed again by today's rules. Raises RecordingError.
    """
    with closing(Recording(path, recording_filter)) as recording:
        lanes = _Lanes(recording.begin, recording.end)
        pictured = _pictured(recording.snapshots(), lanes, price)
        return replace(pictured, report=with_run(pictured.report, recording.run))


def pictured(snapshots: Sequence[Snapshot], *, price: float | None = None) -> Pictured:
    """The same from snapshots in memory; at least one, oldest first."""
    return _pictured(snapshots, _Lanes(snapshots[0].t, snapshots[-1].t), price)


def _pictured(snapshots: Iterable[Snapshot], lanes: _Lanes, price: float | None) -> Pictured:
    builder = ReportBuilder()
    for frame in diagnosed(snapshots):
        builder.add(frame)
        lanes.add(frame)
    columns = {
        uuid: tuple(sums[i].column() if i in sums else None for i in range(COLUMNS))
        for uuid, sums in lanes.gpus.items()
    }
    return Pictured(
        builder.report(price=price), lanes.column_s, columns, lanes.driver, tuple(lanes.sources)
    )
