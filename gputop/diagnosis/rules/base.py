"""A rule: a condition over signals with its evidence and remedy."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from gputop.diagnosis.signals import Signals
from gputop.diagnosis.types import Confidence, Role, State, VerdictId
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
