"""Counters over a run, which only rise: seconds by state, Xid errors, steps."""

from __future__ import annotations

from collections import Counter

from gputop.diagnosis.types import GpuDiagnosis
from gputop.diagnosis.verdict.time_ledger import RisingSums, measured_span
from gputop.model.derived import NOT_THROTTLING, WORDS
from gputop.model.snapshot import GpuSample, GpuStatic, Snapshot
from gputop.model.steps import MOST_MFU_PCT, StepRow
from gputop.monitor import MOST_GPUS, Frame, stepping_on

REMEMBERED_S = 3600.0
"""How long a verdict that went away, and a GPU that is gone, are still exported."""
MOST_XIDS = 32
"""Kinds of Xid kept for one GPU; the rest count as ``other``."""
REASONS = {bit: word.replace(" ", "_") for bit, word in WORDS.items() if not bit & NOT_THROTTLING}
"""What holds clocks down: label by NVML's bit."""
MOST_STEPPING = 256
"""Ranks whose steps are exported."""
SILENT_S = 60.0
"""Where there are too many ranks, one silent for so long makes room for one that steps."""


class GpuCounts:
    """The counts of one GPU."""

    def __init__(self, static: GpuStatic) -> None:
        self.static = static
        self.seen_t = 0.0
        self.states = RisingSums()
        self.causes = RisingSums()
        """Seconds of busy_not_working by verdict."""
        self.lost = RisingSums()
        """Seconds wasted by verdict."""
        self.throttled: dict[str, float] | None = None
        """Seconds by reason; None until the driver has told its reasons."""
        self.xids: dict[str, int] = {}
        self.verdicts: dict[str, float] = {}
        """Verdict → Unix time at which it was last shown."""

    def take(self, t: float, dt: float, gpu: GpuSample, diagnosis: GpuDiagnosis) -> None:
        """Count ``dt`` seconds that end at ``t``."""
        self.static, self.seen_t = gpu.static, t
        self.states.take(diagnosis.seconds)
        self.causes.take(diagnosis.causes)
        self.lost.take(diagnosis.lost)
        if gpu.throttle_reasons is not None:
            if self.throttled is None:
                self.throttled = dict.fromkeys(REASONS.values(), 0.0)
            for bit, word in REASONS.items():
                if gpu.throttle_reasons & bit:
                    self.throttled[word] += dt
        self.verdicts[diagnosis.verdict] = t
        for verdict in [
            name for name, last in self.verdicts.items() if not t - REMEMBERED_S <= last <= t
        ]:
            del self.verdicts[verdict]

    def count_xid(self, number: str) -> None:
        """Count one Xid error."""
        kind = number if number in self.xids or len(self.xids) < MOST_XIDS else "other"
        self.xids[kind] = self.xids.get(kind, 0) + 1


STEP_SUMS = ("sum_s", "wait_s", "data_wait_s", "samples", "tokens")


class StepCounts:
    """The steps of one rank: sums, and the number of steps in each."""

    def __init__(self) -> None:
        self.sums = Counter[str]()
        self.counts = Counter[str]()
        self.seen_t = 0.0
        self.mfu: float | None = None

    def add(self, t: float, row: StepRow) -> None:
        """Count the steps of a row."""
        self.seen_t = t
        for key in STEP_SUMS:
            if (announced := getattr(row, key)) is not None:
                self.sums[key] += announced
                self.counts[key] += row.count
        # More than a GPU can do is no figure.
        self.mfu = (
            row.mfu_pct / 100.0 if row.mfu_pct is not None and row.mfu_pct <= MOST_MFU_PCT else None
        )


Rank = tuple[str, str, str]
"""GPU index, rank and job id, as their labels say them; empty where unknown."""


class RunCounters:
    """Counts of every GPU by UUID, and of every rank that announces its steps."""

    def __init__(self) -> None:
        self.gpus: dict[str, GpuCounts] = {}
        self.steps: dict[Rank, StepCounts] = {}
        self._last_t: float | None = None

    def take(self, frame: Frame) -> None:
        """Count one frame. One that repeats a reading counts no time, only its events."""
        snapshot = frame.snapshot
        t = snapshot.t
        if "nvml" not in snapshot.repeats:
            dt = (
                0.0
                if self._last_t is None
                else measured_span(t - self._last_t, snapshot.interval_s)
            )
            self._last_t = t
            for gpu, diagnosis in zip(snapshot.gpus, frame.diagnoses, strict=True):
                counts = self.gpus.get(gpu.static.uuid)
                if counts is None:
                    counts = self.gpus[gpu.static.uuid] = GpuCounts(gpu.static)
                counts.take(t, dt, gpu, diagnosis)
            self._forget(t, len(snapshot.gpus))
        by_index = {
            counts.static.index: counts
            for counts in self.gpus.values()
            if counts.seen_t == self._last_t
        }
        for event in snapshot.events:
            if event.xid is not None and event.gpu in by_index:
                by_index[event.gpu].count_xid(str(event.xid))
        self._count_steps(snapshot)

    def _count_steps(self, snapshot: Snapshot) -> None:
        t = snapshot.t
        for rank in [
            rank for rank, of in self.steps.items() if not t - REMEMBERED_S <= of.seen_t <= t
        ]:
            del self.steps[rank]
        jobs = {p.pid: p.static.batch_job for p in snapshot.processes} if snapshot.steps else {}
        for row in snapshot.steps:
            gpus = stepping_on(snapshot, row)
            job = jobs.get(row.pid)
            rank = (
                str(min(gpus)) if gpus else "",
                "" if row.rank is None else str(row.rank),
                job.id if job else "",
            )
            if (
                rank not in self.steps
                and len(self.steps) >= MOST_STEPPING
                and not self._make_room(t)
            ):
                continue
            self.steps.setdefault(rank, StepCounts()).add(t, row)

    def _make_room(self, t: float) -> bool:
        """Drop the rank that was silent for the longest; False where all are stepping."""
        rank = min(self.steps, key=lambda rank: self.steps[rank].seen_t)
        if t - self.steps[rank].seen_t < SILENT_S:
            return False
        del self.steps[rank]
        return True

    def _forget(self, t: float, present: int) -> None:
        gone = [
            uuid for uuid, counts in self.gpus.items() if not t - REMEMBERED_S <= counts.seen_t <= t
        ]
        oldest_first = sorted(self.gpus, key=lambda uuid: self.gpus[uuid].seen_t)
        gone += oldest_first[: max(0, len(self.gpus) - max(MOST_GPUS, present))]
        for uuid in gone:
            self.gpus.pop(uuid, None)
