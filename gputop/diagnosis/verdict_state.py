"""One GPU as it is shown: from matching rules to its diagnosis.

A screen must stay calm: a cause, a verdict and a badge give way only to something clearly stronger that lasts.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from msgspec import Struct

from gputop.diagnosis.attribution import IDLE_PCT, attribute
from gputop.diagnosis.rules import CAUSES, END, GATES, IDLE_FAMILY, STARVED, UNATTRIBUTED, WORKS
from gputop.diagnosis.rules.badges import BADGES, ECC, XID, lost_badge
from gputop.diagnosis.rules.base import COLLECTING, STARTUP, Rule, RuleResult
from gputop.diagnosis.rules.busy import (
    COMMUNICATION,
    HEALTHY,
    MEMORY_BANDWIDTH,
    NO_BOTTLENECK_SEEN,
    WORKING,
    chip_share,
)
from gputop.diagnosis.rules.remedy_rows import ALL_LEFT, spares
from gputop.diagnosis.rules.starved import LOW_DEMAND, STARVED_UNATTRIBUTED
from gputop.diagnosis.signals import EFFICIENCY_UTIL, Signals
from gputop.diagnosis.thresholds import COMM_NVLINK
from gputop.diagnosis.tracks import GpuTrack
from gputop.diagnosis.types import NO_HOST, Badge, Change, Flag, GpuDiagnosis, GpuOwner, Level, Means, State
from gputop.diagnosis.verdict_log import Ledger
from gputop.diagnosis.window import WINDOW_S
from gputop.model.feeders import Cause, Feeders
from gputop.model.quantity import clamp_pct
from gputop.model.snapshot import GpuSample

Key = tuple[str, str]
"""A verdict, and the group of its cause."""
_SAME: dict[str | None, str] = {"queued": "cpu", "fetch": "network", "lock": "", "sleep": "", "unknown": ""}


def key_of(verdict: str, cause: Cause | None) -> Key:
    """Key of a vote.

    Causes that differ in detail alone are one: computing and queueing for it, say.
    """
    return verdict, _SAME.get(cause, cause or "")


# Which rule holds now, and the hysteresis that keeps a screen calm.
#
# A candidate becomes the shown one when it has won 8 of the last 10 ticks (of 1 s: the windows are in seconds) and the
# shown one has stood for 10 s. Where nothing wins so often and the shown one has won nothing, the most frequent wins,
# so that a signal on a threshold cannot keep an old verdict alive.

VOTE_S = 10.0
VOTES_NEEDED = 0.8
STANDS_S = 10.0
FIRST_S, SOON_S = 5.0, 3.0
"""The first verdict shows once it has held for so long without a break, and sooner the wait of a young job and what is
wrong with a steady load that is sampled four times a second."""
SOON_SAMPLES = 12
"""Samples in ``SOON_S`` that must agree on an early verdict."""
SOON: frozenset[Cause] = frozenset(("disk", "network", "fetch", "pipe", "lock", "sleep"))
"""What a job that has just begun to train is told to wait for as soon as its account says so. What runs may be its
warm-up, and what is not seen yet may still be."""

PROVEN_BY_SM: tuple[Rule, ...] = (*GATES, MEMORY_BANDWIDTH, HEALTHY, WORKING)
"""The rules for a MIG instance, whose util is not measured: SM and DRAM activity are lower bounds of it."""

T = TypeVar("T")


NEVER_EARLY = frozenset(rule.id for rule in (*IDLE_FAMILY, *UNATTRIBUTED, LOW_DEMAND, *END))
"""All-clears, and what is said where nothing better is known: a few seconds may lie between two pauses, or in one."""


def candidate(s: Signals) -> Rule:
    """The rule that holds now, early only where it says what is wrong."""
    rule = _candidate(s)
    return COLLECTING if s.is_early and rule.id in NEVER_EARLY and s.samples >= s.min_samples else rule


def _candidate(s: Signals) -> Rule:
    """The rule that holds now.

    Starvation without a cause that can be named yields to A/B: B lies wholly where the GPU is idle ≥ 20 %, and "low SM
    while kernels run" says more than "idle, cause not seen".
    """
    if not s.util_known:
        return next((rule for rule in PROVEN_BY_SM if rule.matches(s)), COLLECTING)
    gate = next((rule for rule in GATES if rule.matches(s)), None)
    if gate is not None and s.begins and s.idle >= IDLE_PCT:
        rule = next((rule for rule in STARVED if rule.matches(s)), STARVED_UNATTRIBUTED)
        return rule if rule.tell(s).cause in SOON else gate
    unseen = UNATTRIBUTED if s.flag is None else UNATTRIBUTED[:1]
    return gate or next((rule for rule in (*CAUSES, *unseen, *WORKS) if rule.matches(s)), NO_BOTTLENECK_SEEN)


class Debouncer(Generic[T]):
    """Votes over time for one shown value."""

    def __init__(self, shown: T, t: float) -> None:
        self.shown = shown
        self.since = t
        self._votes: deque[T] = deque()
        self._interval_s = 0.0

    def vote(self, t: float, value: T, interval_s: float, *, first_s: float | None = None) -> bool:
        """Count one tick; True if the shown value has changed.

        ``first_s``: the shown value says nothing yet, and gives way to the first value that holds for so long.
        """
        votes, most = self._votes, max(1, round(VOTE_S / interval_s))
        if votes and interval_s >= 2.0 * self._interval_s:
            # Votes come more seldom from now on: of the earlier ones as many stay as would have come.
            votes = self._votes = deque(list(votes)[:: -round(interval_s / self._interval_s)][::-1])
        self._interval_s = interval_s
        votes.append(value)
        while len(votes) > most:
            votes.popleft()
        if value == self.shown and self.is_settled():
            return False
        if first_s is not None and value != self.shown:
            first = max(1, round(first_s / interval_s))
            if len(votes) >= first and all(votes[-n] == value for n in range(1, first + 1)):
                self.show(t, value)
                return True
        if t - self.since < STANDS_S - 1e-6:
            return False
        # The most frequent; among equals the latest.
        winner = max(reversed(votes), key=votes.count)
        nothing_wins = len(votes) == most and self.shown not in votes
        if winner == self.shown or (votes.count(winner) < VOTES_NEEDED * most and not nothing_wins):
            return False
        self.show(t, winner)
        return True

    def is_settled(self) -> bool:
        """True if every tick that counts agrees with the shown value."""
        return self._votes.count(self.shown) == len(self._votes)

    def show(self, t: float, value: T) -> None:
        """Show a value at once, without a vote."""
        self.shown = value
        self.since = t
        self._votes.clear()

    def forget(self) -> None:
        """Discard all votes so far."""
        self._votes.clear()


class BadgeBoard:
    """The badges of one GPU with the same hysteresis.

    Alarms show at once.
    """

    def __init__(self) -> None:
        self._choosers: dict[str, Debouncer[bool]] = {}
        self._latest: dict[str, Badge] = {}

    def observe(self, s: Signals, verdict: str, interval_s: float) -> tuple[Badge, ...]:
        """The badges to show, in their order."""
        choosers = self._choosers
        shown: list[Badge] = []
        for rule in BADGES:
            badge = rule.check(s, verdict)
            chooser = choosers.get(rule.id)
            if badge is None and chooser is None:
                continue
            if chooser is None:
                chooser = choosers[rule.id] = Debouncer(False, s.t - STANDS_S)
            if badge is not None:
                self._latest[rule.id] = badge
            if badge is not None and rule.alarm and not chooser.shown:
                chooser.show(s.t, True)
            chooser.vote(s.t, badge is not None, interval_s)
            if chooser.shown and rule.not_beside not in [other.id for other in shown]:
                shown.append(self._latest[rule.id])
            elif not chooser.shown and chooser.is_settled():
                del choosers[rule.id]
        return tuple(shown)

    def clear(self, badge_id: str) -> None:
        """Remove a badge at once."""
        self._choosers.pop(badge_id, None)


# The one number shown beside a verdict: what the verdict is about, never one that contradicts it.

IDLE_STATES: tuple[State, ...] = ("starved", "idle", "idle_allocated")
STARVED_IDS = frozenset(rule.id for rule in STARVED)
"""Verdicts of the starved family, whatever state their time goes to."""

Figure = tuple[str, float | None]


def efficiency(s: Signals) -> tuple[float | None, str | None]:
    """SM / util x 100 of the means, or None and a reason."""
    if s.sm_off is not None:
        return None, s.sm_off.words
    if s.samples < s.min_samples:
        return None, "collecting"
    if s.mean.sm is None:
        return None, "SM activity was not measured"
    if not s.util_known:
        return None, "util is not measured on a MIG instance"
    if min(s.util_pct, s.mean.util_with_sm or 0.0) < EFFICIENCY_UTIL:
        return None, f"util below {EFFICIENCY_UTIL:.0f} %"
    return (None if s.sm_ratio is None else 100.0 * s.sm_ratio), None


def figure(s: Signals, rule: Rule, state: State) -> Figure | None:
    """Number of a verdict as (word, percent).

    Idle, DRAM or NVLink, else the efficiency, at most 100.
    """
    if s.samples < s.min_samples and rule.id in UNDECIDED:
        return None
    if rule.id == MEMORY_BANDWIDTH.id and s.mean.dram is not None:
        return "DRAM", s.mean.dram
    if rule.id == COMMUNICATION.id and s.mean.nvlink is not None and s.mean.nvlink >= COMM_NVLINK.leave:
        return "NVLink", 100.0 * s.mean.nvlink
    if s.util_known and (rule.id in STARVED_IDS or state in IDLE_STATES):
        return "idle", s.idle
    score, _ = efficiency(s)
    return "efficiency", clamp_pct(score)


# One GPU as it is shown: the verdict that stands, its level, words, notes and badges.

MOST_CHANGES = 10_000
"""A verdict stands for at least ten seconds: at worst this is more than a day."""
CHANGING_S = 30.0
"""How long after a change of cause what is shown may still be the old one."""
UNDECIDED = frozenset((COLLECTING.id, STARTUP.id))
"""What is shown before anything is known: the first verdict need not wait for it."""


NO_INSTANCES = (
    "MIG is on, and there is no instance: create some (nvidia-smi mig -cgi PROFILE -C) or switch MIG off "
    "(nvidia-smi -mig 0)"
)


class Candidate(Struct, frozen=True):
    rule: Rule
    result: RuleResult
    flag: Flag | None
    figure: Figure | None = None
    feeders: Feeders | None = None


class GpuState:
    """Memory of one GPU: its track, its shown verdict and every change."""

    def __init__(self, t: float) -> None:
        self.track = GpuTrack()
        self.index = -1
        self._board = BadgeBoard()
        self._badges: tuple[Badge, ...] = ()
        self._verdict: Debouncer[Key] = Debouncer(key_of(COLLECTING.id, None), t)
        self._paint: Debouncer[tuple[Flag | None, Level]] = Debouncer((None, "grey"), t)
        self._shown = Candidate(COLLECTING, RuleResult("grey", ()), None)
        self._offers: dict[Key, Candidate] = {}
        self._timeline: tuple[Change, ...] = ((t, COLLECTING.id, None),)
        self._timed: tuple[str, Flag | None] = (COLLECTING.id, None)
        self._noted: tuple[object, ...] | None = None
        self._began, self._lasted_s, self._charged_s = t, 0.0, 0.0
        """Start of what is shown, its measured time, and how much of that was lost."""
        self._doubted = False
        """Whether the rule that holds now differs from the one shown."""

    def has_changed(self) -> bool:
        """True if verdict, flag or badges changed since the last call."""
        now = (self._shown.rule.id, self._paint.shown[0], tuple(badge.id for badge in self._badges))
        if now == self._noted:
            return False
        self._noted = now
        return True

    @property
    def verdict(self) -> str:
        """The id of the verdict that is shown now."""
        return self._shown.rule.id

    @property
    def state(self) -> State:
        """The state to which this GPU's time counts now."""
        return self._shown.result.state or self._shown.rule.state

    def charge(self, t: float, dt: float, lost_s: float) -> None:
        """Count time, and its lost part, for the shown verdict.

        ``dt`` seconds up to Unix time ``t``.
        """
        if self._lasted_s == 0.0:
            self._began = t - dt
        self._lasted_s += dt
        self._charged_s += lost_s

    def acknowledge(self, badge_id: str) -> None:
        """Clear a sticky badge."""
        self.track.health.acknowledge(badge_id)
        self._board.clear(badge_id)

    def observe(
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
                self._verdict.show(t, key_of(COLLECTING.id, None))
                self._show(t, Candidate(COLLECTING, COLLECTING.tell(s), None), goes_on=False)
            self._choose(t, interval_s, rule, s)
            self._badges = self._board.observe(s, rule.id, interval_s)
        now = (self._verdict.shown[0], self._paint.shown[0])
        if now != self._timed:
            self._timed = now
            self._timeline = (*self._timeline, (t, *now))[-MOST_CHANGES:]

    def diagnosis(
        self, t: float, gpu: GpuSample, s: Signals | None, ledger: Ledger, owner: GpuOwner | None
    ) -> GpuDiagnosis:
        """The diagnosis at Unix time ``t``."""
        rule, result, feeders = self._shown.rule, self._shown.result, self._shown.feeders
        flag, level = self._paint.shown
        uuid, title, time = gpu.static.uuid, result.title or rule.title, ledger.time_of(gpu.static.uuid)
        remedy, remedy_short = result.remedy, result.remedy_short
        if remedy is None:
            values = ALL_LEFT if s is None else spares(s)
            remedy, remedy_short = rule.remedy.format(**values), rule.remedy_short.format(**values)
        lasted_s = max(self._lasted_s, result.for_s or 0.0)
        began = min(self._began, t - (result.for_s or 0.0))
        score, reason = (None, result.evidence[0] if result.evidence else None) if s is None else efficiency(s)
        notes = result.notes if s is None else _notes(s, result, rule)
        if s is not None and s.changed_s is not None and s.changed_s <= CHANGING_S and self._doubted:
            notes = (f"the cause has changed {s.changed_s:.0f} s ago: what is said here was before", *notes)
        attribution = None
        if s is not None and s.host.is_measured and s.util_known and s.idle >= IDLE_PCT and s.samples >= s.min_samples:
            attribution = attribute(s)
        return GpuDiagnosis(
            index=self.index,
            uuid=uuid,
            verdict=rule.id,
            level=level,
            title=title,
            short=result.short or rule.short or rule.title,
            busy_not_working=flag,
            efficiency_pct=score,
            efficiency_reason=reason,
            confidence=result.confidence,
            window_s=WINDOW_S,
            n=0 if s is None else s.samples,
            evidence=result.evidence,
            remedy=remedy,
            remedy_short=remedy_short,
            notes=notes,
            badges=self._badges,
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
            host_reason=None if s is None or s.host.is_measured or not _asks_the_host(s) else s.host.reason,
            owner=owner,
            began=began,
            lasted_s=lasted_s,
            charged_s=self._charged_s,
            lost=time.lost,
            about=result.about,
        )

    def _choose(self, t: float, interval_s: float, rule: Rule, s: Signals) -> None:
        if rule is COLLECTING and (s.resumed or (s.comes_and_goes and self.state in IDLE_STATES)):
            # The window starts over with a burst of work, or after a hole: what is known has not changed.
            return
        result = rule.tell(s)
        state = result.state or rule.state
        # What is counted otherwise is not called busy, not working: a GPU has one state for everybody.
        flag = s.flag if state == "busy_not_working" else None
        starved = rule.id in STARVED_IDS or rule.id == STARVED_UNATTRIBUTED.id
        offered = Candidate(rule, result, flag, figure(s, rule, state), s.host.feeders if starved else None)
        key, shown = key_of(rule.id, result.cause), self._verdict.shown
        self._doubted = rule.id != shown[0]
        is_soon = (s.begins and result.cause in SOON) or (s.is_early and SOON_SAMPLES * interval_s <= SOON_S)
        first_s = SOON_S if is_soon else FIRST_S
        changed = self._verdict.vote(t, key, interval_s, first_s=first_s if shown[0] in UNDECIDED else None)
        shown = self._verdict.shown
        if changed:
            offer = offered if key == shown else self._offers[shown]
            self._offers.clear()
            # An idle GPU that gets another name has been so since before that name.
            self._show(t, offer, goes_on=self._shown.result.for_s is not None and offer.result.for_s is not None)
        elif key == shown:
            self._shown = offered
            self._paint.vote(t, (flag, result.level), interval_s)
        elif shown[0] == COLLECTING.id:
            line = f"{s.samples} samples: a verdict shows once it has held for {FIRST_S:.0f} s"
            self._shown = Candidate(COLLECTING, RuleResult("grey", (line,), confidence="low"), None)
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
        self._paint = Debouncer((offer.flag, offer.result.level), t)

    def _cannot_judge(self, t: float, gpu: GpuSample, *, all_lost: bool, has_instances: bool) -> None:
        """Show a GPU that cannot be judged at once, with the reason."""
        health = self.track.health
        errors = (ECC, health.errors), (XID, health.xids)
        badges = [rule.badge("; ".join(words)) for rule, words in errors if words]
        reason, title = gpu.unavailable.get("util_pct") or "util is not measured on this device", "no util: not judged"
        if gpu.lost_reason is not None:
            lost = lost_badge(gpu.lost_reason, all_at_once=all_lost)
            badges.insert(0, lost)
            reason, title = lost.evidence, "LOST"
        elif gpu.static.is_split and not has_instances:
            reason, title = NO_INSTANCES, "MIG without instances"
        elif gpu.asleep:
            reason, title = gpu.sm_reason or "asleep", "asleep"
        self._badges = tuple(badges)
        goes_on = self._shown.rule is COLLECTING and self._shown.result.title == title
        if self._verdict.shown[0] != COLLECTING.id:
            self._verdict.show(t, key_of(COLLECTING.id, None))
        self._verdict.forget()
        self._offers.clear()
        result = RuleResult("grey", (reason,), confidence="low", title=title, state="idle" if gpu.asleep else None)
        self._show(t, Candidate(COLLECTING, result, None), goes_on=goes_on)


def _means(s: Signals) -> Means:
    util, mean = s.util_pct if s.util_known else None, s.mean
    return Means(
        s.samples, s.samples < s.min_samples, util, mean.sm, mean.occ, mean.tensor, mean.fp32, mean.fp64, mean.dram
    )


def _notes(s: Signals, result: RuleResult, rule: Rule) -> tuple[str, ...]:
    """Notes of the rule, the flag, and missing signals."""
    notes = result.notes
    if s.flag is not None and rule.id in STARVED_IDS:
        notes = (*notes, f"while kernels run they use {chip_share(s)} of the SMs")
    if s.sm_off is not None:
        # A note need not repeat what the evidence and the remedy already say.
        is_mentioned = any(s.sm_off.words in line for line in result.evidence)
        notes = (*notes, f"cannot say whether it really works: {s.sm_off.reason if is_mentioned else s.sm_off.words}")
    if not s.util_known:
        return (*notes, "util is not measured on a MIG instance: starvation and busy-not-working are not judged")
    if not _asks_the_host(s):
        return notes
    if not s.host.is_measured:
        notes = (*notes, f"{NO_HOST}: {s.host.reason}")
    if not s.host.waits_known:
        notes = (*notes, "the loaders' waits were not read: network evidence needs root")
    return notes


def _asks_the_host(s: Signals) -> bool:
    """True if host activity matters: idle enough, not for good."""
    return s.util_known and s.idle >= IDLE_PCT and not s.quiet and s.samples >= s.min_samples
