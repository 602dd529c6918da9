"""Hysteresis that keeps a screen calm: votes over time."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from gputop.diagnosis.rules.badges import BADGES
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.types import Badge, BadgeId, VerdictId

VOTE_S = 10.0
VOTES_NEEDED = 0.8
STANDS_S = 10.0
FIRST_S, SOON_S = 5.0, 3.0
"""The first verdict shows once it has held for so long without a break, and sooner the wait of a young job and what is
wrong with a steady load that is sampled four times a second."""
SOON_SAMPLES = 12
"""Samples in ``SOON_S`` that must agree on an early verdict."""

T = TypeVar("T")


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
        self._latest: dict[BadgeId, Badge] = {}

    def observe(self, s: Signals, verdict: VerdictId, interval_s: float) -> tuple[Badge, ...]:
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
