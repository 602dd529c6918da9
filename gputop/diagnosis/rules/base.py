"""Rules and badges: a condition over signals, with its evidence and remedy."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from gputop.diagnosis.signals import Signals
from gputop.diagnosis.types import Badge, BadgeId, Confidence, Level, Role, State, VerdictId
from gputop.model.feeders import Cause


class RuleResult(Struct, frozen=True):
    """Result of a rule that holds.

    ``title``, ``short``, ``state`` and the remedy replace the rule's own if they depend on measured values. A rule says
    ``high`` only where what it claims was itself measured.
    """

    evidence: tuple[str, ...]
    remedy: str | None = None
    remedy_short: str = ""
    confidence: Confidence = "medium"
    notes: tuple[str, ...] = ()
    title: str | None = None
    state: State | None = None
    cause: Cause | None = None
    short: str | None = None
    plain_title: str | None = None
    """The title without how long it has lasted, where ``title`` says that."""
    for_s: float | None = None
    """How long it has been so, seconds, where that is longer than the verdict has been shown."""
    hole_s: float = 0.0
    """Seconds since it has been so in which nothing was recorded; in ``for_s`` they do not count."""
    about: int | None = None
    """The index of another GPU that this one waits for, where that is seen."""
    role: Role | None = None
    """What this result means, where that depends on measured values; None: the rule's role."""


class Rule(Struct, frozen=True):
    """One verdict.

    ``condition`` is the condition in words, ``remedy`` what helps where ``tell`` says nothing else: the help and
    docs/verdicts.md are made of them. ``short`` replaces a title of more than 24 characters. ``state`` is where the
    time goes, ``role`` what the verdict means, and so its level, where that is not what the state means. ``levels``
    are the levels in words, the usual one first, where results differ. ``checked`` says on which loads of real GPUs
    the rule was tried; empty where that is said for its whole family.
    """

    id: VerdictId
    title: str
    condition: str
    state: State
    matches: Callable[[Signals], bool]
    tell: Callable[[Signals], RuleResult]
    short: str = ""
    remedy: str = ""
    remedy_short: str = ""
    checked: str = ""
    role: Role | None = None
    levels: str = ""


Told = str | Badge | None
"""The evidence of a badge, a badge that is not as the rule has it, or none."""


class BadgeRule(Struct, frozen=True):
    """One badge: ``tell`` gives it for the signals and the id of the verdict that they make.

    ``levels`` are all levels in words where there are others. An ``alarm`` shows at once; the others need eight of ten
    ticks, as verdicts do. ``sticky`` ones stay until they are acknowledged.
    """

    id: BadgeId
    title: str
    level: Level
    condition: str
    tell: Callable[[Signals, VerdictId], Told]
    remedy: str = ""
    levels: str = ""
    alarm: bool = False
    sticky: bool = False
    not_beside: BadgeId | None = None
    """Id of a badge that asks for the opposite, and goes first."""

    def badge(self, evidence: str, level: Level | None = None) -> Badge:
        """The badge with this evidence."""
        return Badge(self.id, level or self.level, self.title, evidence, self.remedy, self.sticky)

    def check(self, s: Signals, verdict: VerdictId) -> Badge | None:
        """The badge, where it is due."""
        told = self.tell(s, verdict)
        return self.badge(told) if isinstance(told, str) else told
