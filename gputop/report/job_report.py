"""Report on a job or a recording in constant memory.

Money appears only at the user's own price.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.rules.working import NO_BOTTLENECK_SEEN
from gputop.diagnosis.signals import LEAST_SAMPLES
from gputop.diagnosis.thresholds import LEAST_GAIN
from gputop.diagnosis.verdict.gpu_owners import whose_words
from gputop.diagnosis.verdict.time_ledger import measured_span
from gputop.diagnosis.verdict.worth import NOTHING, Worth
from gputop.model.cards import card_shares
from gputop.model.durations import length
from gputop.model.quantity import count, known, which_gpus
from gputop.model.smaller_cards import LEAST_S, LEAST_UTIL_PCT, Load, SmallerCard, smaller_card
from gputop.model.snapshot import SIMULATED, Event, Snapshot
from gputop.model.step_pace import MOST_PERIODS, StepPeriod
from gputop.monitor import Frame, Monitor, stepping_on
from gputop.recording.format import RunFacts
from gputop.recording.reader import Recording
from gputop.recording.recorded_times import is_clock_set
from gputop.report.findings import FindingReport, FindingsAccount
from gputop.report.gpu_account import GpuAccount, GpuReport
from gputop.report.process_account import ProcessAccount, ProcessReport
from gputop.report.run_account import RunAccount, StepReport, run_of_recording
from gputop.report.server_account import ServerAccount, ServerReport
from gputop.report.time_account import TimeAccount, time_account

if TYPE_CHECKING:
    from gputop.recording.decode import RecordingFilter

UNSEEN = NO_BOTTLENECK_SEEN.id
_LEAST_OF_DAY_S = 600.0
"""Ten minutes: a shorter recording says nothing of a day."""
_MOST_MARKS = 256
_MOST_HOSTS = 8
_MOST_MISSING = 32


_NO_GAP = (0.0, 0.0)


class Fix(Struct, frozen=True):
    """A remedy and what it would win at most.

    ``gain_s`` is GPU time, ``share`` its share of the judged time, ``money`` its cost, ``day`` the cost for a day at
    this rate. ``whose`` names the jobs.
    """

    remedy: str
    text: str
    gpus: tuple[int, ...]
    gain_s: float
    share: float
    money: float | None
    day: float | None
    whose: str = ""
    worth: Worth = NOTHING


class JobReport(Struct, frozen=True):
    """The whole report.

    ``duration_s`` is the time from the first frame to the last. A run has ``command``, ``exit_code`` and ``run_s``, the
    command's own time. ``price`` is the user's price of a GPU-hour.
    """

    host: str
    begin: float
    end: float
    frames: int
    gpus: tuple[GpuReport, ...]
    findings: tuple[FindingReport, ...]
    marks: tuple[Event, ...]
    gaps: int
    price: float | None = None
    command: str | None = None
    exit_code: int | None = None
    run_s: float | None = None
    duration_s: float = 0.0
    notes: tuple[str, ...] = ()
    steps: tuple[StepReport, ...] = ()
    """Runs that announced steps, in the order of their begin."""
    run: str = ""
    """Identity of the run that wrote this recording; empty for another program's."""
    missing: tuple[Event, ...] = ()
    """First gaps, with their reasons."""
    is_simulated: bool = False
    servers: tuple[ServerReport, ...] = ()
    """Inference servers whose addresses were given."""
    periods: tuple[StepPeriod, ...] = ()
    """Steps that the rhythm of the GPUs showed last, where samples were close enough."""
    unrecorded_s: float = 0.0
    """GPU time in gaps."""
    other_hosts: tuple[str, ...] = ()
    """Hosts after ``host`` in a file of several."""
    processes: tuple[ProcessReport, ...] = ()
    """GPU processes, the one with the most memory first."""
    more_processes: int = 0
    """Number of GPU processes that are not listed."""
    serving: frozenset[int] = frozenset()
    """GPUs of inference servers, which fill whatever memory there is."""

    @property
    def own_steps(self) -> StepReport | None:
        """The recording's run; None where several have no owner."""
        return run_of_recording(self.steps, self.run)

    def smaller_cards(self) -> tuple[SmallerCard, ...]:
        """The smallest card for the job of each GPU that was watched for ten minutes."""
        rows = [
            smaller_card(gpu.index, gpu.name, _load(gpu))
            for gpu in self.counted
            if self._is_known(gpu)
        ]
        return tuple(known(rows))

    def _is_known(self, gpu: GpuReport) -> bool:
        """Whether the needs of a GPU's job are known well enough for another card."""
        if gpu.card_share < 1.0:
            return False
        if gpu.index in self.serving:
            return False
        if gpu.util_pct is None:
            return False
        is_long = gpu.measured_s >= LEAST_S
        return is_long and gpu.util_pct >= LEAST_UTIL_PCT

    @property
    def longest_waste(self) -> FindingReport | None:
        """The verdict that wasted time for longest without a pause."""
        # Badges waste nothing.
        wasting = [finding for finding in self.findings if finding.gain_s > 0.0]
        return max(wasting, key=lambda finding: finding.longest_s, default=None)

    @property
    def counted(self) -> tuple[GpuReport, ...]:
        """GPUs whose time counts: instances instead of a split GPU."""
        return tuple(gpu for gpu in self.gpus if gpu.card_share > 0.0)

    @property
    def where(self) -> str:
        """Names of the hosts, marked if simulated."""
        return ", ".join((self.host, *self.other_hosts)) + SIMULATED * self.is_simulated

    @property
    def time(self) -> TimeAccount:
        """GPU time by state and cause, and its cost."""
        return time_account(self.gpus, self.unrecorded_s, self.price)

    @property
    def day_factor(self) -> float | None:
        """Recordings of this length in a day.

        None below ten minutes, which say nothing of a day.
        """
        return 86400.0 / self.duration_s if self.duration_s >= _LEAST_OF_DAY_S else None

    def fixes(self) -> tuple[Fix, ...]:
        """Remedies that would win at least 5 %, the best first."""
        time, card_shares = self.time, {gpu.index: gpu.card_share for gpu in self.gpus}
        by_remedy: dict[str, list[FindingReport]] = {}
        for finding in self.findings:
            if finding.kind == "verdict" and finding.level in ("red", "yellow") and finding.remedy:
                by_remedy.setdefault(finding.remedy, []).append(finding)
        fixes = []
        for remedy, group in by_remedy.items():
            gain_s = sum(finding.gain_s * card_shares.get(finding.gpu, 1.0) for finding in group)
            if time.judged_s <= 0.0 or gain_s < LEAST_GAIN * time.judged_s:
                continue
            money = time.cost(gain_s)
            day = None if money is None or self.day_factor is None else money * self.day_factor
            gpus = tuple(sorted({finding.gpu for finding in group}))
            text = max(group, key=lambda finding: finding.gain_s).text
            whose = whose_words(finding.owner for finding in group)
            # Of several GPUs the one that wins most: a job's GPUs wait for each other.
            best = max(
                (finding.worth for finding in group), key=lambda worth: worth.speedup_at_most or 0.0
            )
            fixes.append(
                Fix(remedy, text, gpus, gain_s, gain_s / time.judged_s, money, day, whose, best)
            )
        return tuple(sorted(fixes, key=lambda fix: -fix.gain_s))

    @property
    def remedies(self) -> frozenset[str]:
        """Texts of the fixes: no finding need repeat them."""
        return frozenset(fix.remedy for fix in self.fixes())

    @property
    def too_short(self) -> str:
        """Reason why a short recording could not be judged; empty otherwise."""
        if not self.gpus or self.time.judged_s > 0.0 or self.frames >= 3 * LEAST_SAMPLES:
            return ""
        return (
            f"too short to judge: {count(self.frames, 'sample')} in {length(self.duration_s)}; record a "
            "minute of its work"
        )


def _load(gpu: GpuReport) -> Load:
    held_bytes = 0.0 if gpu.memory_peak_bytes is None else gpu.memory_peak_bytes
    return Load(held_bytes, gpu.sm_pct, gpu.tensor_pct, gpu.dram_pct)


class ReportBuilder:
    """Builds a report from frames in order, at any time."""

    def __init__(self) -> None:
        self._gpus: dict[str, GpuAccount] = {}
        self._findings = FindingsAccount()
        self._marks: list[Event] = []
        self._gaps = 0
        self._missing: list[Event] = []
        self._recorded = self._frames = 0
        """Number of all frames, and of those that are not repeats."""
        self._begin = self._end = 0.0
        self._segment_begin = self._before_s = self._unrecorded_s = 0.0
        """Time at which the clock was last set back, the recorded time before, and GPU time in gaps."""
        self._last_gap = _NO_GAP
        """Begin and end of the last gap, as its clock told them."""
        self._hosts: list[str] = []
        self._is_simulated = False
        self._steps = RunAccount()
        self._servers = ServerAccount()
        self._processes = ProcessAccount()
        self._serving: set[int] = set()
        self._periods: dict[tuple[int, ...], StepPeriod] = {}
        self._unseen: dict[int, str] = {}

    def add(self, frame: Frame) -> None:
        """Count a frame.

        A frame that repeats a reading adds events and steps, and no time.
        """
        snapshot = frame.snapshot
        for event in snapshot.events:
            self.add_event(event)
        self._recorded += 1
        self._steps.add(snapshot.t, [(row, stepping_on(snapshot, row)) for row in snapshot.steps])
        self._servers.add(snapshot.servers, snapshot.interval_s)
        for period in frame.periods:
            if period.gpus in self._periods or len(self._periods) < MOST_PERIODS:
                self._periods[period.gpus] = period
        is_repeat = "nvml" in snapshot.repeats and self._frames > 0
        if is_repeat and all(gpu.static.uuid in self._gpus for gpu in snapshot.gpus):
            return
        shares = card_shares(gpu.static for gpu in snapshot.gpus)
        seconds, gap_s = self._span(snapshot)
        self._unrecorded_s += gap_s * sum(shares.values())
        self._processes.add(snapshot, seconds)
        for process in snapshot.processes:
            if process.static.server is None:
                continue
            if process.gpu is not None:
                self._serving.add(process.gpu)
        for gpu, diagnosis in zip(snapshot.gpus, frame.diagnoses, strict=False):
            account = self._gpus.get(gpu.static.uuid)
            if account is None:
                account = self._gpus[gpu.static.uuid] = GpuAccount(gpu)
            account.card_share = shares[gpu.static.uuid]
            spent_s, lost_s = account.add(gpu, diagnosis, seconds)
            account.add_owners(gpu, snapshot.t, snapshot.processes)
            if diagnosis.verdict == UNSEEN and diagnosis.remedy:
                self._unseen[diagnosis.index] = diagnosis.remedy
            self._findings.add(diagnosis, snapshot.t, spent_s, lost_s, self._passed_s)
        self._findings.next_frame()
        self._frames += 1

    def add_event(self, event: Event) -> None:
        """Count a gap or keep a mark."""
        if event.kind == "gap":
            self._gaps += 1
            if len(self._missing) < _MOST_MISSING:
                self._missing.append(event)
        elif event.kind == "mark" and len(self._marks) < _MOST_MARKS:
            self._marks.append(event)

    def _span(self, snapshot: Snapshot) -> tuple[float, float]:
        """Measured seconds since the frame before, and seconds of a gap."""
        if (host := snapshot.machine.hostname) not in self._hosts and len(
            self._hosts
        ) < _MOST_HOSTS:
            self._hosts.append(host)
        if self._frames == 0:
            self._begin = self._segment_begin = self._end = snapshot.t
            self._is_simulated = snapshot.machine.is_simulated
            return 0.0, 0.0
        span = snapshot.t - self._end
        if is_clock_set(self._end, snapshot.t):
            recorded_again_s = self._begin_segment(snapshot.t, snapshot.interval_s)
            return 0.0, -recorded_again_s
        self._end = snapshot.t
        measured_s = measured_span(span, snapshot.interval_s)
        gap_s = max(0.0, span - measured_s)
        if gap_s > 0.0:
            self._last_gap = (snapshot.t - gap_s, snapshot.t)
        return measured_s, gap_s

    def _begin_segment(self, t: float, interval_s: float) -> float:
        """Begin anew at the time to which the clock was set; return the seconds of the last gap after it.

        They are recorded after all: the clock was wrong when it seemed that they had passed.
        """
        gap_begin, gap_end = self._last_gap
        again_s = 0.0
        if gap_begin - interval_s <= t < gap_end:
            again_s = gap_end - max(gap_begin, t)
        self._last_gap = _NO_GAP
        self._before_s = self._passed_s - again_s
        self._segment_begin = self._end = t
        return again_s

    @property
    def _passed_s(self) -> float:
        """Recorded time, which a clock that is set back does not change."""
        return self._before_s + (self._end - self._segment_begin)

    def report(
        self,
        *,
        price: float | None = None,
        command: str | None = None,
        exit_code: int | None = None,
        run_s: float | None = None,
        notes: Iterable[str] = (),
    ) -> JobReport:
        """Report on the frames so far."""
        return JobReport(
            host=self._hosts[0] if self._hosts else "",
            other_hosts=tuple(self._hosts[1:]),
            is_simulated=self._is_simulated,
            begin=min(self._begin, self._segment_begin),
            end=self._end,
            frames=self._recorded,
            gpus=tuple(
                gpu.report()
                for gpu in sorted(self._gpus.values(), key=lambda gpu: gpu.static.index)
            ),
            findings=self._findings.report(),
            marks=tuple(self._marks),
            gaps=self._gaps,
            price=price,
            command=command,
            exit_code=exit_code,
            run_s=run_s,
            duration_s=self._passed_s,
            notes=(*notes, *self._unseen_notes()),
            steps=self._steps.report(),
            servers=self._servers.report(),
            periods=tuple(self._periods.values()),
            missing=tuple(self._missing),
            unrecorded_s=self._unrecorded_s,
            processes=self._processes.report(),
            more_processes=self._processes.unlisted,
            serving=frozenset(self._serving),
        )

    def _unseen_notes(self) -> list[str]:
        """Ways to measure SM activity, without which nothing is judged."""
        gpus: dict[str, list[int]] = {}
        for index, remedy in self._unseen.items():
            gpus.setdefault(remedy, []).append(index)
        return [f"{which_gpus(indices)}: {remedy}" for remedy, indices in gpus.items()]


def report_recording(
    path: str, *, price: float | None = None, recording_filter: RecordingFilter | None = None
) -> JobReport:
    """Report on a recording, diagnosed again by today's rules. Raises RecordingError."""
    with closing(Recording(path, recording_filter)) as recording:
        report = report_snapshots(recording.snapshots(), price=price)
        return with_run(report, recording.run)


def with_run(report: JobReport, ran: RunFacts | None) -> JobReport:
    """Add the command that a recording names."""
    if ran is None:
        return report
    return replace(
        report, command=ran.command, exit_code=ran.exit_code, run_s=ran.seconds, run=ran.run
    )


def report_snapshots(snapshots: Iterable[Snapshot], *, price: float | None = None) -> JobReport:
    """Diagnose snapshots and report on them."""
    builder = ReportBuilder()
    for frame in diagnosed(snapshots):
        builder.add(frame)
    return builder.report(price=price)


def diagnosed(snapshots: Iterable[Snapshot]) -> Iterator[Frame]:
    """Frames of snapshots in order, diagnosed at the interval of the first."""
    monitor: Monitor | None = None
    for snapshot in snapshots:
        monitor = monitor or Monitor(snapshot.interval_s, charts=False)
        yield monitor.feed(snapshot)
