"""Tables of verdicts and badges for the help and docs/verdicts.md."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from gputop.diagnosis.rules import BUSY, END, GATES, IDLE_FAMILY, STARVED, UNATTRIBUTED
from gputop.diagnosis.rules.badges import BADGES
from gputop.diagnosis.rules.base import Rule
from gputop.diagnosis.rules.device_badges import LOST, LOST_CONDITION
from gputop.diagnosis.rules.remedy_words import ALL_LEFT
from gputop.diagnosis.types import NOT_WORK, Role
from gputop.diagnosis.verdict.summary import LEVEL_OF_ROLE, ROLE_OF_STATE, verdict_role


class VerdictRow(Struct, frozen=True):
    """One verdict: when it is given, at which level, what helps."""

    id: str
    family: str
    title: str
    condition: str
    level: str
    remedy: str
    checked: str = ""


class BadgeRow(Struct, frozen=True):
    """One badge: when it is given and at which level."""

    id: str
    condition: str
    level: str


DATALOADER_WAIT = VerdictRow(
    "dataloader_wait",
    "starved",
    "starved: waits for the dataloader",
    "in a trace: idle ≥ 20 % and at least half of it inside a DataLoader with workers; a trace does not contain these",
    "yellow",
    "`gputop loader` finds how many workers it takes and why; `gputop diagnose` on the running job: CPU or disk",
)
"""What a profiler's trace can say of loaders; live, the workers themselves are seen."""
STREAM_WAIT = VerdictRow(
    "stream_wait",
    "starved",
    "starved: waits on the device",
    "in a trace: idle ≥ 20 % and at least half of it before work that had been launched long before it began",
    "yellow",
    "see what its stream waits for: events of other streams or GPUs, host functions, stages of a graph; record them "
    "earlier",
)
"""Work that was launched in time and began late: live, nothing tells it from a host that is late."""
OF_TRACES = (DATALOADER_WAIT, STREAM_WAIT)
"""Verdicts that only a trace can get."""
FAMILIES = (
    ("gate", GATES),
    ("idle", IDLE_FAMILY),
    ("starved", STARVED + UNATTRIBUTED),
    ("busy", BUSY),
    ("working", END),
)


def verdict_rows() -> tuple[VerdictRow, ...]:
    """All verdicts, each once, in the order of the rules."""
    rows: dict[str, VerdictRow] = {}
    for family, rules in FAMILIES:
        for rule in rules:
            level = LEVEL_OF_ROLE[verdict_role(rule.role, rule.state)]
            row = VerdictRow(
                rule.id,
                family,
                rule.title,
                rule.condition,
                rule.levels or level,
                rule.remedy.format(**ALL_LEFT),
                rule.checked,
            )
            rows.setdefault(rule.id, row)
        rows.update((row.id, row) for row in OF_TRACES if row.family == family)
    return tuple(rows.values())


@lru_cache(maxsize=1)
def titles() -> Mapping[str, str]:
    """The title of each verdict by its id.

    An id that no rule has any more is its own.
    """
    return {row.id: row.title for row in verdict_rows()}


@lru_cache(maxsize=1)
def verdict_roles() -> Mapping[str, Role]:
    """Usual role of each verdict, by its id."""
    live: dict[str, Role] = {
        rule.id: verdict_role(rule.role, rule.state) for _, rules in FAMILIES for rule in rules
    }
    return live | {row.id: ROLE_OF_STATE["starved"] for row in OF_TRACES}


@lru_cache(maxsize=1)
def lost_roles() -> Mapping[str, Role]:
    """Role of the time wasted under each verdict, by its id."""
    return {rule.id: _lost_role(rule) for _, rules in FAMILIES for rule in rules}


def _lost_role(rule: Rule) -> Role:
    if rule.role is not None:
        return rule.role
    # Work that wastes a part of the chip or of its clock has no colour of its own.
    return ROLE_OF_STATE[rule.state] if rule.state in NOT_WORK else "waiting"


def badge_rows() -> tuple[BadgeRow, ...]:
    """Every badge, the worst first."""
    lost = BadgeRow(LOST, LOST_CONDITION, "red")
    return (
        lost,
        *(BadgeRow(rule.id, rule.condition, rule.levels or rule.level) for rule in BADGES),
    )
