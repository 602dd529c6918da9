"""Definition of a badge, and when it is due."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from gputop.diagnosis.signals import Signals
from gputop.diagnosis.types import Badge, BadgeId, Level, VerdictId

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
