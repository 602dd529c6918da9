"""What a rule is: a condition over signals with its evidence and remedy beside it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from gputop.diagnosis.signals import Signals
from gputop.diagnosis.types import Badge, Confidence, Level, State
from gputop.model.feeders import Cause


class Told(Struct, frozen=True):
    """What a rule says where it holds. ``title`` and ``state`` replace the rule's own if they depend on numbers."""

    level: Level
    evidence: tuple[str, ...]
    remedy: str = ""
    remedy_short: str = ""
    confidence: Confidence = "high"
    notes: tuple[str, ...] = ()
    title: str | None = None
    state: State | None = None
    cause: Cause | None = None


class Rule(Struct, frozen=True):
    """One verdict.

    ``condition`` is the condition in words, ``levels`` the levels in words, ``remedy`` what helps in general: the
    help and docs/verdicts.md are made of them. ``short`` has at most 24 characters. ``state`` is where the time goes.
    """

    id: str
    title: str
    short: str
    condition: str
    levels: str
    state: State
    holds: Callable[[Signals], bool]
    tell: Callable[[Signals], Told]
    remedy: str = ""


class BadgeRule(Struct, frozen=True):
    """One badge: ``check`` gives it, or None, for the signals and the id of the verdict that they make.

    An ``alarm`` shows at once; the others need eight of ten ticks, as verdicts do.
    """

    id: str
    condition: str
    levels: str
    check: Callable[[Signals, str], Badge | None]
    alarm: bool = False
