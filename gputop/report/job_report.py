"""What became of the GPUs' time: a report over frames, for ``gputop run`` and ``gputop report``.

Built frame by frame in constant memory. Money appears only at the reader's own price. ``report_text.py`` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.rules.busy import NO_BOTTLENECK_SEEN
from gputop.diagnosis.signals import LEAST_SAMPLES
from gputop.diagnosis.summary import ROLE_OF_LEVEL, Number, summarize, time_words, whose_words
from gputop.diagnosis.thresholds import LEAST_GAIN, LEAST_USED_PCT
from gputop.diagnosis.types import Badge, GpuDiagnosis, GpuOwner, Level, Role
from gputop.diagnosis.verdict_log import measured_span
from gputop.model.cards import LEAST_S, SmallerCard, card_shares, smaller_card
from gputop.model.quantity import length, which_gpus
from gputop.model.snapshot import SIMULATED, Event, Snapshot
from gputop.model.steps import MOST_PERIODS, StepPeriod
from gputop.monitor import Frame, Monitor, stepping_on
from gputop.recording.format import RunFacts
from gputop.recording.reader import Recording
from gputop.report.accounts import (
    GpuAccount,
    GpuReport,
    ServerAccount,
    ServerReport,
)
from gputop.report.run_account import RunAccount, StepReport, own_run
from gputop.report.time_account import TimeAccount, time_account

if TYPE_CHECKING:
    from gputop.recording.decode import RecordingFilter

UNSEEN = NO_BOTTLENECK_SEEN.id
_MOST_MARKS = 256
_MOST_HOSTS = 8
_MOST_MISSING = 32
_TOLD: tuple[Level, ...] = ("red", "yellow", "info")


class FindingReport(Struct, frozen=True):
    """A verdict or badge worth telling: how long in all, in how many spells, first when; evidence of the last one.

    ``first_after_s`` is the time that had passed since the beginning, which a clock that is set back does not change.
    """

    gpu: int
    kind: Literal["verdict", "badge"]
    id: str
    level: Level
    text: str
    first_t: float
    first_after_s: float
    seconds: float
    spells: int
    evidence: str
    remedy: str
    gain_s: float = 0.0
    """GPU time that curing this alone would win at most, seconds: what the GPU lost while it stood."""
    role: Role = "unknown"
    number: Number | None = None
    """The number that the verdict stood on at last."""
    owner: GpuOwner | None = None
    """The process that it was about at last."""

    @property
    def when(self) -> str:
        """``since 23:25 UTC, 8 of 13 min``; of several spells from the first one on."""
        spells = "" if self.spells == 1 else f" in {self.spells} spells"
        return time_words(self.first_t, None if self.kind == "badge" else self.gain_s, self.seconds) + spells


class Fix(Struct, frozen=True):
    """What to do, and what it would win at most: over which GPUs, seconds of GPU time, their share of the judged time,
    and money where a price is known. ``day`` is the money of a day at this rate."""

    remedy: str
    text: str
    gpus: tuple[int, ...]
    gain_s: float
    share: float
    money: float | None
    day: float | None
    whose: str = ""
    """The jobs that it is about, in words."""


class JobReport(Struct, frozen=True):
    """The whole report.

    ``duration_s`` is the time from the first frame to the last. ``command``, ``exit_code`` and ``run_s``, the command's
    own time, are those of a run. ``price`` is the user's price of a GPU-hour.
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
    """The runs that announced steps, in the order in which they began."""
    run: str = ""
    """The identity of the run that wrote this recording; empty where it is another program's."""
    missing: tuple[Event, ...] = ()
    """The first gaps, with their reasons."""
    is_simulated: bool = False
    servers: tuple[ServerReport, ...] = ()
    """What inference servers said of themselves, where their addresses were given."""
    periods: tuple[StepPeriod, ...] = ()
    """The steps that the GPUs' rhythm showed last, where samples were close enough."""
    unrecorded_s: float = 0.0
    """GPU time in gaps."""
    other_hosts: tuple[str, ...] = ()
    """Those that ``host`` is followed by in a file of several, as far as they are listed."""

    @property
    def own_steps(self) -> StepReport | None:
        """The run that the recording is of; None where it holds several and names none."""
        return own_run(self.steps, self.run)

    @property
    def counted(self) -> tuple[GpuReport, ...]:
        """The GPUs whose time is counted: of one that MIG has split its instances."""
        return tuple(gpu for gpu in self.gpus if gpu.card_share > 0.0)

    @property
    def where(self) -> str:
        """The host, or all of them, marked where it is simulated."""
        return ", ".join((self.host, *self.other_hosts)) + SIMULATED * self.is_simulated

    @property
    def time(self) -> TimeAccount:
        """The GPU time by state and cause, and its money."""
        return time_account(self.gpus, self.unrecorded_s, self.price)

    @property
    def day_factor(self) -> float | None:
        """How many times this recording goes into a day; None below ten minutes, which say nothing of a day."""
        return 86400.0 / self.duration_s if self.duration_s >= LEAST_S else None

    def fixes(self) -> tuple[Fix, ...]:
        """Remedies that would win at least 5 % of the judged GPU time, the most first."""
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
            fixes.append(Fix(remedy, text, gpus, gain_s, gain_s / time.judged_s, money, day, whose))
        return tuple(sorted(fixes, key=lambda fix: -fix.gain_s))

    @property
    def remedies(self) -> frozenset[str]:
        """The remedies that are proposed as changes: no finding need repeat them."""
        return frozenset(fix.remedy for fix in self.fixes())

    def smaller_cards(self) -> tuple[SmallerCard, ...]:
        """For each GPU that was watched for ten minutes, the smallest card that would hold its job."""
        rows = (
            smaller_card(gpu.index, gpu.name, gpu.memory_peak_bytes or 0.0, gpu.dram_pct, gpu.tensor_pct)
            for gpu in self.gpus
            if gpu.measured_s >= LEAST_S and not gpu.served and (gpu.util_pct or 0.0) >= LEAST_USED_PCT
        )
        return tuple(row for row in rows if row is not None)

    @property
    def too_short(self) -> str:
        """Why nothing could be judged, where the recording is too short for that; empty otherwise."""
        if not self.gpus or self.time.judged_s > 0.0 or self.frames >= 3 * LEAST_SAMPLES:
            return ""
        return f"too short to judge: {self.frames} samples in {length(self.duration_s)}; record a minute of its work"


class _Spell:
    """One kind of finding on one GPU."""

    def __init__(self, t: float, after_s: float) -> None:
        self.first_t, self.after_s = t, after_s
        self.seconds = 0.0
        self.spells = 0
        self.last_frame = -1
        self.gain_s = 0.0
        self.latest: GpuDiagnosis | Badge | None = None
        """What was said last: worded once, at the end."""

    def report(self, gpu: int, name: str) -> FindingReport:
        """The finding of the GPU with that index."""
        said, times = self.latest, (self.first_t, self.after_s, self.seconds, self.spells)
        if isinstance(said, GpuDiagnosis):
            told = summarize(said)
            return FindingReport(gpu, "verdict", name, told.level, told.words, *times, "".join(told.evidence[:1]),
                                 told.remedy, self.gain_s, told.role, told.number, told.owner)  # fmt: skip
        assert said is not None
        return FindingReport(gpu, "badge", name, said.level, said.title, *times, said.evidence, said.remedy,
                             role=ROLE_OF_LEVEL[said.level])  # fmt: skip


class ReportBuilder:
    """Takes frames in order; ``report`` may be asked at any time."""

    def __init__(self) -> None:
        self._gpus: dict[str, GpuAccount] = {}
        self._spells: dict[tuple[int, str, str], _Spell] = {}
        self._marks: list[Event] = []
        self._gaps = 0
        self._missing: list[Event] = []
        self._recorded = self._frames = 0
        """All frames, and those that are not repeats."""
        self._begin = self._end = 0.0
        self._segment_begin = self._before_s = self._unrecorded_s = 0.0
        """When the clock was last set back, and the time that had passed by then."""
        self._hosts: list[str] = []
        self._is_simulated = False
        self._steps = RunAccount()
        self._servers = ServerAccount()
        self._periods: dict[tuple[int, ...], StepPeriod] = {}
        self._unseen: dict[int, str] = {}

    def add(self, frame: Frame) -> None:
        """Count a frame. One that only repeats a reading brings its events and steps, and no time."""
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
        serving = {process.gpu for process in snapshot.processes if process.static.server is not None}
        for gpu, diagnosis in zip(snapshot.gpus, frame.diagnoses, strict=False):
            account = self._gpus.get(gpu.static.uuid)
            if account is None:
                account = self._gpus[gpu.static.uuid] = GpuAccount(gpu)
            account.card_share = shares[gpu.static.uuid]
            account.served = account.served or gpu.static.index in serving
            spent_s, lost_s = account.add(gpu, diagnosis, snapshot.t, seconds)
            if diagnosis.verdict == UNSEEN and diagnosis.remedy:
                self._unseen[diagnosis.index] = diagnosis.remedy
            self._add_findings(diagnosis, snapshot.t, spent_s, lost_s)
        self._frames += 1

    def add_event(self, event: Event) -> None:
        """Count a gap, keep a mark."""
        if event.kind == "gap":
            self._gaps += 1
            if len(self._missing) < _MOST_MISSING:
                self._missing.append(event)
        elif event.kind == "mark" and len(self._marks) < _MOST_MARKS:
            self._marks.append(event)

    def _span(self, snapshot: Snapshot) -> tuple[float, float]:
        """Seconds since the frame before, and those of a gap between them."""
        if (host := snapshot.machine.hostname) not in self._hosts and len(self._hosts) < _MOST_HOSTS:
            self._hosts.append(host)
        if self._frames == 0:
            self._begin = self._segment_begin = self._end = snapshot.t
            self._is_simulated = snapshot.machine.is_simulated
            return 0.0, 0.0
        span = snapshot.t - self._end
        if span < 0.0:
            self._before_s = self._passed_s
            self._segment_begin = snapshot.t
        self._end = snapshot.t
        measured_s = measured_span(span, snapshot.interval_s)
        return measured_s, max(0.0, span - measured_s)

    @property
    def _passed_s(self) -> float:
        """From the first frame to the last; a clock that is set back takes none away and adds none."""
        return self._before_s + (self._end - self._segment_begin)

    def _add_findings(self, d: GpuDiagnosis, t: float, seconds: float, lost_s: float) -> None:
        """Count a sample's time and loss for the verdict and the badges that are shown."""
        if d.level in _TOLD:
            name = d.verdict if d.busy_not_working is None else f"{d.verdict} {d.busy_not_working}"
            before = self._spells.get((d.index, "verdict", name))
            if before is None or before.last_frame < self._frames - 1:
                # An idle GPU waits for its verdict, whose time began before the verdict was shown.
                earlier_s = max(0.0, min(d.lasted_s, self._passed_s) - seconds)
                self._take_back(d.index, earlier_s)
                seconds += earlier_s
                lost_s = min(max(lost_s, d.charged_s), seconds)
            spell = self._spell(d.index, "verdict", name, t - seconds, seconds)
            # A straggler's victim has its badge's words; what is wrong with a card is a finding of its own.
            spell.latest = replace(d, badges=tuple(badge for badge in d.badges if badge.about is not None))
            spell.gain_s += lost_s
        for badge in d.badges:
            if badge.about is None:
                self._spell(d.index, "badge", badge.id, t, seconds).latest = badge

    def _take_back(self, gpu: int, seconds: float) -> None:
        """Take time from the verdict that was shown before: it belonged to the one that is shown now."""
        for key, spell in list(self._spells.items()):
            if key[:2] == (gpu, "verdict") and spell.last_frame == self._frames - 1 and seconds > 0.0:
                spell.seconds -= min(seconds, spell.seconds)
                spell.gain_s = min(spell.gain_s, spell.seconds)
                if spell.seconds <= 0.0:
                    del self._spells[key]

    def _spell(self, gpu: int, kind: str, name: str, t: float, seconds: float) -> _Spell:
        spell = self._spells.get((gpu, kind, name))
        if spell is None:
            spell = self._spells[(gpu, kind, name)] = _Spell(t, self._passed_s)
        if spell.last_frame != self._frames - 1:
            spell.spells += 1
        spell.last_frame = self._frames
        spell.seconds += seconds
        return spell

    def report(
        self,
        *,
        price: float | None = None,
        command: str | None = None,
        exit_code: int | None = None,
        run_s: float | None = None,
        notes: Iterable[str] = (),
    ) -> JobReport:
        """The report so far."""
        order = {level: rank for rank, level in enumerate(_TOLD)}
        findings = [spell.report(gpu, name) for (gpu, _, name), spell in self._spells.items()]
        findings.sort(key=lambda f: (-f.gain_s, order.get(f.level, len(order)), -f.seconds, f.gpu))
        return JobReport(
            host=self._hosts[0] if self._hosts else "",
            other_hosts=tuple(self._hosts[1:]),
            is_simulated=self._is_simulated,
            begin=self._begin,
            end=self._end,
            frames=self._recorded,
            gpus=tuple(gpu.report() for gpu in sorted(self._gpus.values(), key=lambda gpu: gpu.static.index)),
            findings=tuple(findings),
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
        )

    def _unseen_notes(self) -> list[str]:
        """How SM activity could be measured where it was not: without it nothing can be judged."""
        gpus: dict[str, list[int]] = {}
        for index, remedy in self._unseen.items():
            gpus.setdefault(remedy, []).append(index)
        return [f"{which_gpus(indices)}: {remedy}" for remedy, indices in gpus.items()]


def alike(findings: Iterable[FindingReport]) -> list[list[FindingReport]]:
    """Findings that say the same of several GPUs together, the longest first in each; the order stays."""
    groups: dict[tuple[str, str, str, str], list[FindingReport]] = {}
    for finding in findings:
        groups.setdefault((finding.kind, finding.id, finding.level, finding.remedy), []).append(finding)
    return [sorted(group, key=lambda finding: -finding.seconds) for group in groups.values()]


def report_recording(
    path: str, *, price: float | None = None, recording_filter: RecordingFilter | None = None
) -> JobReport:
    """The report of a recording, diagnosed again with today's rules. Raises RecordingError."""
    with closing(Recording(path, recording_filter)) as recording:
        report = report_snapshots(recording.snapshots(), interval_s=recording.interval_s, price=price)
        return with_run(report, recording.run)


def with_run(report: JobReport, ran: RunFacts | None) -> JobReport:
    """The report with what ran, as its recording says."""
    if ran is None:
        return report
    return replace(report, command=ran.command, exit_code=ran.exit_code, run_s=ran.seconds, run=ran.run)


def report_snapshots(
    snapshots: Iterable[Snapshot], *, interval_s: float = 1.0, price: float | None = None
) -> JobReport:
    """The report of what was measured, diagnosed here."""
    monitor, builder = Monitor(interval_s, charts=False), ReportBuilder()
    for snapshot in snapshots:
        builder.add(monitor.feed(snapshot))
    return builder.report(price=price)
