"""Sum up the verdicts and badges of a recording."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.rules.gates import COLLECTING, STARTUP
from gputop.diagnosis.rules.idle import IDLE
from gputop.diagnosis.types import Badge, GpuDiagnosis, GpuOwner, Level, Role
from gputop.diagnosis.verdict.summary import (
    LEVEL_OF_ROLE,
    ROLE_OF_LEVEL,
    Number,
    role_of,
    summarize,
    time_words,
)
from gputop.diagnosis.verdict.worth import NOTHING, Worth, worth

TOLD: tuple[Level, ...] = ("red", "yellow", "info")
"""Levels of the verdicts that are reported, the worst first."""
_NO_FINDING = frozenset((COLLECTING.id, STARTUP.id, IDLE.id))
"""Verdicts that accuse nobody, whatever their level."""


class FindingReport(Struct, frozen=True):
    """A verdict or badge of one GPU in its last words.

    ``first_after_s`` is the recorded time before it, which a clock that is set back does not change. ``gain_s`` is the
    GPU time that was wasted by it: curing it alone would win at most that.
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
    role: Role = "unknown"
    number: Number | None = None
    owner: GpuOwner | None = None
    worth: Worth = NOTHING
    longest_t: float = 0.0
    """Begin of the longest spell, Unix time."""
    longest_s: float = 0.0
    """Length of the longest spell."""

    @property
    def when(self) -> str:
        """Begin, wasted time and duration: ``since 23:25 UTC, 8 of 13 min``.

        With several spells the begin is the first one's.
        """
        spells = "" if self.spells == 1 else f" in {self.spells} spells"
        return (
            time_words(self.first_t, None if self.kind == "badge" else self.gain_s, self.seconds)
            + spells
        )


def is_told(d: GpuDiagnosis) -> bool:
    """Whether a report names this verdict."""
    if d.verdict in _NO_FINDING or d.state == "idle":
        return False
    return LEVEL_OF_ROLE[role_of(d)] in TOLD


class _Finding:
    """Sums of one verdict or badge of one GPU."""

    def __init__(self, first_t: float, after_s: float) -> None:
        self.first_t, self.after_s = first_t, after_s
        self.seconds = self.gain_s = 0.0
        self.spells = 0
        self.last_frame = -2
        self._spell_t = self._spell_s = 0.0
        self.longest_t, self.longest_s = first_t, 0.0
        self.latest: GpuDiagnosis | Badge | None = None

    def add_time(self, t: float, seconds: float, *, begins: bool) -> None:
        """Count ``seconds`` up to Unix time ``t``, of a new spell or of the last one."""
        if begins:
            self.spells += 1
            self._spell_t, self._spell_s = t - seconds, 0.0
        self.seconds += seconds
        self._spell_s += seconds
        if self._spell_s > self.longest_s:
            self.longest_t, self.longest_s = self._spell_t, self._spell_s

    def report(self, gpu: int, name: str) -> FindingReport:
        """Report the sums in the words of the last sample."""
        latest, times = self.latest, (self.first_t, self.after_s, self.seconds, self.spells)
        if isinstance(latest, GpuDiagnosis):
            said = summarize(latest)
            return FindingReport(
                gpu,
                "verdict",
                name,
                said.level,
                said.words,
                *times,
                "".join(said.evidence[:1]),
                said.remedy,
                self.gain_s,
                said.role,
                said.number,
                said.owner,
                worth(latest.state, self.gain_s / (self.seconds or 1.0)),
                self.longest_t,
                self.longest_s,
            )
        assert latest is not None
        return FindingReport(
            gpu,
            "badge",
            name,
            latest.level,
            latest.title,
            *times,
            latest.evidence,
            latest.remedy,
            role=ROLE_OF_LEVEL[latest.level],
            longest_t=self.longest_t,
            longest_s=self.longest_s,
        )


class FindingsAccount:
    """Sums of all findings, frame by frame."""

    def __init__(self) -> None:
        self._findings: dict[tuple[int, str, str], _Finding] = {}
        self._frame = 0

    def next_frame(self) -> None:
        """End a frame: findings absent from the next one have ended."""
        self._frame += 1

    def add(
        self, d: GpuDiagnosis, t: float, seconds: float, lost_s: float, passed_s: float
    ) -> None:
        """Count a GPU's sample for its verdict and its badges.

        The sample covers ``seconds`` up to Unix time ``t`` and recorded time ``passed_s``, of which ``lost_s`` were
        lost.
        """
        if is_told(d):
            name = d.verdict if d.busy_not_working is None else f"{d.verdict} {d.busy_not_working}"
            before = self._findings.get((d.index, "verdict", name))
            earlier_s = 0.0
            if before is None or before.last_frame < self._frame - 1:
                # An idle GPU waits for its verdict, whose time began before the verdict was shown.
                earlier_s = max(0.0, min(d.lasted_s, passed_s) - seconds)
                self._take_back(d.index, earlier_s)
                lost_s = min(max(lost_s, d.charged_s), seconds + earlier_s)
            finding = self._count((d.index, "verdict", name), t, seconds + earlier_s, passed_s)
            finding.gain_s += lost_s
            # A straggler's victim has its badge's words; what is wrong with a card is a finding of its own.
            finding.latest = replace(
                d, badges=tuple(badge for badge in d.badges if badge.about is not None)
            )
        for badge in d.badges:
            if badge.about is None and badge.id != d.verdict:
                self._count((d.index, "badge", badge.id), t, seconds, passed_s).latest = badge

    def _count(
        self, key: tuple[int, str, str], t: float, seconds: float, passed_s: float
    ) -> _Finding:
        finding = self._findings.get(key)
        if finding is None:
            finding = self._findings[key] = _Finding(t - seconds, passed_s - seconds)
        finding.add_time(t, seconds, begins=finding.last_frame != self._frame - 1)
        finding.last_frame = self._frame
        return finding

    def _take_back(self, gpu: int, seconds: float) -> None:
        """Move time from the verdict before to the present one."""
        for key, finding in list(self._findings.items()):
            if (
                seconds > 0.0
                and key[:2] == (gpu, "verdict")
                and finding.last_frame == self._frame - 1
            ):
                finding.seconds -= min(seconds, finding.seconds)
                finding.gain_s = min(finding.gain_s, finding.seconds)
                finding.longest_s = min(finding.longest_s, finding.seconds)
                if finding.seconds <= 0.0:
                    del self._findings[key]

    def report(self) -> tuple[FindingReport, ...]:
        """Report all findings, those with the most wasted time first."""
        order = {level: rank for rank, level in enumerate(TOLD)}
        findings = [finding.report(gpu, name) for (gpu, _, name), finding in self._findings.items()]
        return tuple(
            sorted(
                findings,
                key=lambda f: (-f.gain_s, order.get(f.level, len(order)), -f.seconds, f.gpu),
            )
        )


def alike(findings: Iterable[FindingReport]) -> list[list[FindingReport]]:
    """Group equal findings of several GPUs, the longest first.

    The order of the groups stays.
    """
    groups: dict[tuple[str, str, str, str], list[FindingReport]] = {}
    for finding in findings:
        groups.setdefault((finding.kind, finding.id, finding.level, finding.remedy), []).append(
            finding
        )
    return [sorted(group, key=lambda finding: -finding.seconds) for group in groups.values()]
