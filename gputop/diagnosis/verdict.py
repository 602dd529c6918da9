"""From rules to what is shown: which rule holds now, and the hysteresis that keeps a screen calm.

A candidate becomes the shown one when it has won 8 of the last 10 ticks (of 1 s: the windows are in seconds) and the
shown one has stood for 10 s. Where nothing wins so often and the shown one has won nothing, the most frequent wins, so
that a signal on a threshold cannot keep an old verdict alive.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from gputop.diagnosis.rules import BADGES, CAUSES, GATES, UNATTRIBUTED, WORKS
from gputop.diagnosis.rules.base import Rule
from gputop.diagnosis.rules.busy import MEMORY_BANDWIDTH
from gputop.diagnosis.rules.end import HEALTHY, NO_BOTTLENECK_SEEN, WORKING
from gputop.diagnosis.rules.gates import COLLECTING
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.types import Badge

VOTE_S = 10.0
VOTES_NEEDED = 0.8
STANDS_S = 10.0

PROVEN_BY_SM: tuple[Rule, ...] = (*GATES, MEMORY_BANDWIDTH, HEALTHY, WORKING)
"""The rules for a MIG instance, whose util is not measured: SM and DRAM activity are lower bounds of it."""

T = TypeVar("T")


def candidate(s: Signals) -> Rule:
    """The rule that holds now.

    Starvation without a cause that can be named yields to A/B: B lies wholly where the GPU is idle ≥ 20 %, and "low SM
    while kernels run" says more than "idle, cause not seen".
    """
    if not s.util_known:
        return next((rule for rule in PROVEN_BY_SM if rule.holds(s)), COLLECTING)
    for rule in CAUSES:
        if rule.holds(s):
            return rule
    if s.flag is None:
        for rule in UNATTRIBUTED:
            if rule.holds(s):
                return rule
    for rule in WORKS:
        if rule.holds(s):
            return rule
    return NO_BOTTLENECK_SEEN


class Chooser(Generic[T]):
    """Votes over time for one shown value."""

    __slots__ = ("_agreed", "_votes", "shown", "since")

    def __init__(self, shown: T, t: float) -> None:
        self.shown = shown
        self.since = t
        self._votes: deque[T] = deque()
        self._agreed = False

    def vote(self, t: float, value: T, interval_s: float) -> bool:
        """Count one tick; True when the shown value has changed."""
        if self._agreed and value == self.shown:
            return False
        votes = self._votes
        votes.append(value)
        most = max(1, round(VOTE_S / interval_s))
        while len(votes) > most:
            votes.popleft()
        self._agreed = len(votes) == most and votes.count(self.shown) == most
        if value == self.shown and self.is_settled():
            return False
        if t - self.since < STANDS_S - 1e-6:
            return False
        # The most frequent; among equals the latest.
        winner = max(reversed(votes), key=votes.count)
        if winner == self.shown:
            return False
        wins = votes.count(winner)
        if wins < VOTES_NEEDED * most and not (len(votes) == most and self.shown not in votes):
            return False
        self.show(t, winner)
        return True

    def is_settled(self) -> bool:
        """Whether every tick that counts agrees with what is shown."""
        return self._votes.count(self.shown) == len(self._votes)

    def show(self, t: float, value: T) -> None:
        """Show a value at once, without a vote."""
        self.shown = value
        self.since = t
        self.forget()

    def forget(self) -> None:
        """Discard all votes so far."""
        self._votes.clear()
        self._agreed = False


class BadgeBoard:
    """The badges of one GPU with the same hysteresis; alarms show at once."""

    __slots__ = ("_choosers", "_latest")

    def __init__(self) -> None:
        self._choosers: dict[str, Chooser[bool]] = {}
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
                chooser = choosers[rule.id] = Chooser(False, s.t - STANDS_S)
            if badge is not None:
                self._latest[rule.id] = badge
            if badge is not None and rule.alarm and not chooser.shown:
                chooser.show(s.t, True)
            chooser.vote(s.t, badge is not None, interval_s)
            if chooser.shown:
                shown.append(self._latest[rule.id])
            elif chooser.is_settled():
                del choosers[rule.id]
        return tuple(shown)

    def clear(self, badge_id: str) -> None:
        """Remove a badge at once."""
        self._choosers.pop(badge_id, None)
