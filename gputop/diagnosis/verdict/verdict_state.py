"""One GPU as it is shown: from matching rules to its diagnosis.

A screen must stay calm: a cause, a verdict and a badge give way only to something clearly stronger that lasts.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.rules import RULE_OF
from gputop.diagnosis.rules.base import Rule, RuleResult
from gputop.diagnosis.rules.busy_words import chip_share
from gputop.diagnosis.rules.device_badges import lost_badge
from gputop.diagnosis.rules.doubts import with_doubts
from gputop.diagnosis.rules.gates import COLLECTING
from gputop.diagnosis.rules.health_badges import badges_without_verdict, without_praise
from gputop.diagnosis.rules.idle_facts import attribution_of
from gputop.diagnosis.rules.remedy_words import ALL_LEFT, spares
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.thresholds import IDLE_PCT
from gputop.diagnosis.tracks import GpuTrack
from gputop.diagnosis.types import (
    NO_HOST,
    Badge,
    BadgeId,
    Change,
    Flag,
    GpuDiagnosis,
    GpuOwner,
    Means,
    Role,
    State,
    VerdictId,
)
from gputop.diagnosis.verdict.figure import (
    IDLE_STATES,
    NAMED_CAUSES,
    STARVED_IDS,
    UNDECIDED,
    Figure,
    efficiency,
    figure,
)
from gputop.diagnosis.verdict.rule_choice import SOON, candidate
from gputop.diagnosis.verdict.summary import level_of, verdict_role
from gputop.diagnosis.verdict.time_ledger import Ledger
from gputop.diagnosis.verdict.votes import FIRST_S, SOON_S, SOON_SAMPLES, BadgeBoard, Debouncer
from gputop.diagnosis.window.standstill import STANDING
from gputop.diagnosis.window.window import WINDOW_S
from gputop.model.feeders import Cause, Feeders
from gputop.model.quantity import count
from gputop.model.snapshot import GpuSample

Key = tuple[VerdictId, str]
"""A verdict, and the group of its cause."""
Meaning = tuple[Flag | None, Role | None]
"""A verdict's flag, and its role where that is not what its state means."""
_SAME: dict[str | None, str] = {
    "queued": "cpu",
    "fetch": "network",
    "lock": "",
    "sleep": "",
    "unknown": "",
}


def key_of(verdict: VerdictId, cause: Cause | None) -> Key:
    """Key of a vote.

    Causes that differ in detail alone are one: computing and queueing for it, say.
    """
    return verdict, _SAME.get(cause, cause or "")


MOST_CHANGES = 10_000
"""A verdict stands for at least ten seconds: at worst this is more than a day."""
CHANGING_S = 30.0
"""How long after a change of cause what is shown may still be the old one."""
NO_INSTANCES = (
    "MIG is on, and there is no instance: create some (nvidia-smi mig -cgi PROFILE -C) or switch MIG off "
    "(nvidia-smi -mig 0)"
)


class Candidate(Struct, frozen=True):
    """What a rule says: its id, and what it tells of the measured values."""

    verdict: VerdictId
    result: RuleResult
    flag: Flag | None
    figure: Figure | None = None
    feeders: Feeders | None = None

    @property
    def rule(self) -> Rule:
        """The rule that gives this verdict."""
        return RULE_OF[self.verdict]

    @property
    def role(self) -> Role | None:
        """Role of the result, the rule's without one; None: what the state means."""
        return self.rule.role if self.result.role is None else self.result.role

    @property
    def state(self) -> State:
        """The state to which time under this verdict counts."""
        return self.result.state or self.rule.state


class BadgeTime(Struct):
    """One badge's begin in Unix time, and the measured seconds since then."""

    since: float
    lasted_s: float = 0.0


class GpuState:
    """Memory of one GPU: its track, its shown verdict and every change."""

    def __init__(self, t: float) -> None:
        self.track = GpuTrack()
        self.index = -1
        self._board = BadgeBoard()
        self._badges: tuple[Badge, ...] = ()
        self._badge_times: dict[BadgeId, BadgeTime] = {}
        self._verdict: Debouncer[Key] = Debouncer(key_of("collecting", None), t)
        self._meaning: Debouncer[Meaning] = Debouncer((None, None), t)
        self._shown = Candidate("collecting", RuleResult(()), None)
        self._offers: dict[Key, Candidate] = {}
        self._timeline: tuple[Change, ...] = ((t, "collecting", None),)
        self._timed: tuple[VerdictId, Flag | None] = ("collecting", None)
        self._noted: tuple[object, ...] | None = None
        self._began, self._lasted_s, self._charged_s = t, 0.0, 0.0
        """Start of what is shown, its measured time, and how much of that was wasted."""
        self._doubted = False
        """Whether the rule that holds now differs from the one shown."""

    def has_changed(self) -> bool:
        """True if verdict, flag or badges changed since the last call."""
        now = (
            self._shown.verdict,
            self._meaning.shown[0],
            tuple(badge.id for badge in self._badges),
        )
        if now == self._noted:
            return False
        self._noted = now
        return True

    @property
    def verdict(self) -> VerdictId:
        """The id of the verdict that is shown now."""
        return self._shown.verdict

    @property
    def state(self) -> State:
        """The state to which this GPU's time counts now."""
        return self._shown.state

    def charge(self, t: float, dt: float, lost_s: float) -> None:
        """Count time, and its wasted part, for the shown verdict.

        ``dt`` seconds up to Unix time ``t``.
        """
        if self._lasted_s == 0.0:
            self._began = t - dt
        self._lasted_s += dt
        self._charged_s += lost_s
        for badge_time in self._badge_times.values():
            if badge_time.since < t:
                badge_time.lasted_s += dt

    def acknowledge(self, badge_id: str) -> None:
        """Clear a sticky badge."""
        self.track.health.acknowledge(badge_id)
        self._board.clear(badge_id)

    def add_signals(
        self,
        t: float,
        interval_s: float,
        gpu: GpuSample,
        s: Signals | None,
        *,
        all_lost: bool = False,
        has_instances: bool = True,
    ) -> None:
        """Update the shown verdict and badges.

        ``all_lost``: no GPU of the machine can be read.
        """
        self.index = gpu.static.index
        if s is None:
            self._cannot_judge(t, gpu, all_lost=all_lost, has_instances=has_instances)
        else:
            rule = candidate(s)
            if self.track.first_kernels_t > self._verdict.since and self.verdict not in UNDECIDED:
                # What is shown was said of the time before this job.
                self._offers.clear()
                self._verdict.show(t, key_of("collecting", None))
                self._show(t, Candidate("collecting", COLLECTING.tell(s), None), goes_on=False)
            self._choose(t, interval_s, rule, s)
            self._badges = self._board.observe(s, rule.id, interval_s)
        self._note_badge_times(t)
        now = (self._verdict.shown[0], self._meaning.shown[0])
        if now != self._timed:
            self._timed = now
            self._timeline = (*self._timeline, (t, *now))[-MOST_CHANGES:]

    def _note_badge_times(self, t: float) -> None:
        """Remember since when each shown badge is shown."""
        times = self._badge_times
        self._badge_times = {
            badge.id: times.get(badge.id) or BadgeTime(t) for badge in self._badges
        }

    def _timed_badges(self) -> tuple[Badge, ...]:
        """Return the shown badges, each with its time."""
        timed = []
        for badge in self._badges:
            shown = self._badge_times[badge.id]
            timed.append(replace(badge, since=shown.since, lasted_s=shown.lasted_s))
        return tuple(timed)

    def diagnosis(
        self, t: float, gpu: GpuSample, s: Signals | None, ledger: Ledger, owner: GpuOwner | None
    ) -> GpuDiagnosis:
        """The diagnosis at Unix time ``t``."""
        rule, result, feeders = self._shown.rule, self._shown.result, self._shown.feeders
        flag, role = self._meaning.shown
        uuid, title, time = (
            gpu.static.uuid,
            result.title or rule.title,
            ledger.time_of(gpu.static.uuid),
        )
        remedy, remedy_short = result.remedy, result.remedy_short
        if remedy is None:
            values = ALL_LEFT if s is None else spares(s)
            remedy, remedy_short = rule.remedy.format(**values), rule.remedy_short.format(**values)
        lasted_s = max(self._lasted_s, result.for_s or 0.0)
        began = min(self._began, t - (result.for_s or 0.0) - result.hole_s)
        score, reason = (
            (None, result.evidence[0] if result.evidence else None) if s is None else efficiency(s)
        )
        notes = result.notes if s is None else _notes(s, result, rule)
        if (
            s is not None
            and s.changed_s is not None
            and s.changed_s <= CHANGING_S
            and self._doubted
        ):
            notes = (
                f"the cause has changed {s.changed_s:.0f} s ago: what is said here was before",
                *notes,
            )
        attribution = None
        if (
            s is not None
            and s.host.is_measured
            and s.util_known
            and s.idle >= IDLE_PCT
            and s.samples >= s.min_samples
        ):
            attribution = attribution_of(s)
        return GpuDiagnosis(
            index=self.index,
            uuid=uuid,
            verdict=rule.id,
            level=level_of(role, self.state, self._badges),
            title=title,
            short=result.short or rule.short or rule.title,
            busy_not_working=flag,
            efficiency_pct=score,
            efficiency_reason=reason,
            confidence=result.confidence,
            window_s=WINDOW_S,
            n=0 if s is None else s.samples,
            evidence=without_praise(result.evidence, self._badges),
            remedy=remedy,
            remedy_short=remedy_short,
            notes=notes,
            badges=self._timed_badges(),
            attribution=attribution,
            state=self.state,
            since=self._verdict.since,
            seconds=time.seconds,
            causes=time.causes,
            timeline=self._timeline,
            figure=self._shown.figure,
            cause=result.cause,
            uneven=result.cause is not None and feeders is not None and feeders.uneven,
            feeders=feeders,
            means=None if s is None else _means(s),
            plain_title=result.plain_title or title,
            host_reason=None
            if s is None or s.host.is_measured or not _asks_the_host(s)
            else s.host.reason,
            owner=owner,
            began=began,
            lasted_s=lasted_s,
            charged_s=self._charged_s,
            lost=time.lost,
            about=result.about,
            role=verdict_role(role, self.state),
        )

    def _choose(self, t: float, interval_s: float, rule: Rule, s: Signals) -> None:
        if rule.id == "collecting" and (
            s.resumed or (s.comes_and_goes and self.state in IDLE_STATES)
        ):
            # The window starts over with a burst of work, or after a hole: what is known has not changed.
            return
        result = rule.tell(s)
        state = result.state or rule.state
        result = with_doubts(result, state, s)
        # What is counted otherwise is not called busy, not working: a GPU has one state for everybody.
        flag = s.flag if state == "busy_not_working" else None
        starved = rule.id in STARVED_IDS or rule.id == "starved_unattributed"
        offered = Candidate(
            rule.id, result, flag, figure(s, rule.id, state), s.host.feeders if starved else None
        )
        key, shown = key_of(rule.id, result.cause), self._verdict.shown
        self._doubted = rule.id != shown[0]
        is_soon = (s.begins and result.cause in SOON) or (
            s.is_early and SOON_SAMPLES * interval_s <= SOON_S
        )
        first_s = SOON_S if is_soon else FIRST_S
        says_no_cause = shown[0] == "starved_unattributed" and shown[1] == ""
        gives_way = shown[0] in UNDECIDED or (says_no_cause and rule.id in NAMED_CAUSES)
        changed = self._verdict.vote(t, key, interval_s, first_s=first_s if gives_way else None)
        shown = self._verdict.shown
        if changed:
            offer = offered if key == shown else self._offers[shown]
            self._offers.clear()
            # An idle GPU that gets another name has been so since before that name.
            self._show(
                t,
                offer,
                goes_on=self._shown.result.for_s is not None and offer.result.for_s is not None,
            )
        elif key == shown:
            self._shown = offered
            self._meaning.vote(t, (flag, offered.role), interval_s)
        elif shown[0] == "collecting":
            line = f"{count(s.samples, 'sample')}: a verdict shows once it has held for {FIRST_S:.0f} s"
            self._shown = Candidate("collecting", RuleResult((line,), confidence="low"), None)
        if key != shown:
            self._offers[key] = offered
        elif rule.id in STARVED_IDS:
            # A job that was judged is not starting any more, though its steps become rare.
            self.track.mark_started()

    def _show(self, t: float, offer: Candidate, *, goes_on: bool) -> None:
        """Show another verdict.

        One that ``goes_on`` keeps the time of the verdict before it.
        """
        if not goes_on:
            self._began, self._lasted_s, self._charged_s = t, 0.0, 0.0
        self._shown = offer
        self._meaning = Debouncer((offer.flag, offer.role), t)

    def _cannot_judge(
        self, t: float, gpu: GpuSample, *, all_lost: bool, has_instances: bool
    ) -> None:
        """Show a GPU that cannot be judged at once, with the reason."""
        health = self.track.health
        badges = badges_without_verdict(health, self.track.device.signs, gpu.static.index)
        reason, title = (
            gpu.unavailable.get("util_pct") or "util is not measured on this device",
            "no util: not judged",
        )
        if gpu.lost_reason is not None:
            lost = lost_badge(gpu.lost_reason, all_at_once=all_lost)
            badges.insert(0, lost)
            reason, title = lost.evidence, "LOST"
        elif gpu.static.is_split and not has_instances:
            reason, title = NO_INSTANCES, "MIG without instances"
        elif reason.startswith(STANDING):
            title = "readings stand still: not judged"
        elif gpu.asleep:
            reason, title = gpu.sm_reason or "asleep", "asleep"
        self._badges = tuple(badges)
        goes_on = self._shown.verdict == "collecting" and self._shown.result.title == title
        if self._verdict.shown[0] != "collecting":
            self._verdict.show(t, key_of("collecting", None))
        self._verdict.forget()
        self._offers.clear()
        result = RuleResult(
            (reason,), confidence="low", title=title, state="idle" if gpu.asleep else None
        )
        self._show(t, Candidate("collecting", result, None), goes_on=goes_on)


def _means(s: Signals) -> Means:
    util, mean = s.util_pct if s.util_known else None, s.mean
    return Means(
        s.samples,
        s.samples < s.min_samples,
        util,
        mean.sm,
        mean.occ,
        mean.tensor,
        mean.fp32,
        mean.fp64,
        mean.dram,
    )


THINNED = "readings come faster than ten a second: one in 0.1 s is judged"


def _notes(s: Signals, result: RuleResult, rule: Rule) -> tuple[str, ...]:
    """Notes of the rule, the flag, and missing signals."""
    notes = result.notes
    if s.is_thinned:
        notes = (*notes, THINNED)
    if s.flag is not None and rule.id in STARVED_IDS:
        notes = (*notes, f"while kernels run they use {chip_share(s)} of the SMs")
    if s.sm_off is not None:
        # A note need not repeat what the evidence and the remedy already say.
        is_mentioned = any(s.sm_off.words in line for line in result.evidence)
        notes = (
            *notes,
            f"cannot say whether it really works: {s.sm_off.reason if is_mentioned else s.sm_off.words}",
        )
    if not s.util_known:
        return (
            *notes,
            "util is not measured on a MIG instance: starvation and busy-not-working are not judged",
        )
    if not _asks_the_host(s):
        return notes
    if not s.host.is_measured:
        notes = (*notes, f"{NO_HOST}: {s.host.reason}")
    if s.host.why_no_waits is not None:
        notes = (*notes, f"no proof by the loaders' waits: {s.host.why_no_waits}")
    return notes


def _asks_the_host(s: Signals) -> bool:
    """True if host activity matters: idle enough, not for good."""
    return s.util_known and s.idle >= IDLE_PCT and not s.quiet and s.samples >= s.min_samples
