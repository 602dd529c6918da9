"""``[[alert]]`` tables of the configuration: conditions, alerts, and examples. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert

from gputop.diagnosis.rules.gates import COLLECTING
from gputop.diagnosis.types import STATES, GpuDiagnosis
from gputop.diagnosis.verdict.catalogue import OF_TRACES, badge_rows, verdict_rows
from gputop.model.derived import gap_pct
from gputop.model.expression import (
    Expression,
    ExpressionError,
    Term,
    Vocabulary,
    nearest,
    parse_expression,
)
from gputop.model.foreign_values import quoted
from gputop.model.metrics import GPU_METRICS, Metric
from gputop.model.quantity import HOUR_S
from gputop.model.snapshot import GpuSample, value
from gputop.model.typed_number import typed_number

KINDS = ("badge", "verdict", "state")
_GAP_WORDS = "UTIL − SM in points: time in which the GPU was busy and its SMs were not"
GAP = Metric("gap_pct", "pct", "GAP", _GAP_WORDS, kind="ratio", low=0.0, high=100.0)


def holds_on(when: Expression, gpu: GpuSample, diagnosis: GpuDiagnosis) -> bool | None:
    """Evaluate a condition on a GPU; None where the result depends on an unknown value."""
    return when.is_met(lambda term: _evaluate(term, gpu, diagnosis))


def _evaluate(term: Term, gpu: GpuSample, diagnosis: GpuDiagnosis) -> bool | None:
    """Evaluate one term on a GPU; None for an unknown value."""
    if term.field == "badge":
        return term.holds_for([badge.id for badge in diagnosis.badges if badge.about is None])
    if term.field not in KINDS:
        measured = gap_pct(gpu) if term.field == GAP.key else value(gpu, term.field)
        return term.holds_for(None if measured is None else float(measured), exactly=True)
    current = diagnosis.verdict if term.field == "verdict" else diagnosis.state
    # An unjudged GPU may yet be in any of the other verdicts and states.
    unsure = current not in term.values and (
        diagnosis.verdict == COLLECTING.id or current == "unmeasured"
    )
    return term.holds_for(None if unsure else [current])


@lru_cache(maxsize=1)
def vocabulary() -> Vocabulary:
    """Return the fields of conditions: badges, verdicts, states, and numbers of a GPU."""
    ids: dict[str, tuple[str, ...]] = {
        "badge": tuple(row.id for row in badge_rows()),
        "verdict": tuple(row.id for row in verdict_rows() if row not in OF_TRACES),
        "state": STATES,
    }
    numbers = {
        key: row.unit for key, row in GPU_METRICS.items() if row.unit not in ("text", "flags")
    }
    return Vocabulary(
        "condition",
        {**dict.fromkeys(ids, "text"), **numbers, GAP.key: GAP.unit},
        "`gputop help metrics` and `gputop help verdicts` list the fields",
        ids=ids,
        hints={
            "state": "in an alert it is a GPU's, such as state:starved, in a filter a process's, such as state:D",
            "verdict": "a filter's verdict: matches words, an alert's takes an id",
        },
        not_comparable={
            key: "a bit mask: use the badges thermal, power_brake and power_capped"
            if row.unit == "flags"
            else "a text"
            for key, row in GPU_METRICS.items()
            if key not in numbers
        },
        searches=False,
    )


def parse(text: str) -> Expression:
    """Parse a condition, such as ``badge:ecc or temp_c > 85``. Raises ExpressionError."""
    return parse_expression(text, vocabulary())


LONGEST_S = 30 * 86400.0
FOR_S = 60.0
AGAIN_S = HOUR_S
MOST_TOLD = 10
"""Wrong alerts that are told one by one."""
_NAME = re.compile(r"[a-z0-9-]{1,40}")
_MUST_BE = {
    "name": "letters a-z, digits and -, at most 40",
    "run": 'a program and its arguments, such as ["logger", "-t", "gputop", "hot"]: no shell takes one apart',
    "for": "a time from 0s to 30d, such as 30s or 5m",
    "again": "a time from 1s to 30d, such as 30m or 1h",
}


class Alert(Struct, frozen=True):
    """One alert: condition, times in seconds, and command.

    Without a command it is only shown.
    """

    name: str
    when: Expression
    for_s: float
    again_s: float = AGAIN_S
    run: tuple[str, ...] = ()


class AlertError(Exception):
    """A malformed alert, in one line that quotes no argument of its command."""


class _Table(Struct, rename={"for_": "for"}):
    """One ``[[alert]]`` table as written."""

    name: Annotated[str, Meta(pattern=f"^{_NAME.pattern}$")]
    when: str
    for_: str | float | None = None
    again: str | float | None = None
    run: Annotated[tuple[str, ...], Meta(min_length=1)] | None = None


def alerts_of(tables: Iterable[Mapping[str, Any]]) -> tuple[Alert, ...]:
    """Read the configured alerts. Raises AlertError for the first mistake."""
    alerts, mistakes = _read(tables)
    if mistakes:
        raise AlertError(mistakes[0])
    return alerts


def faults(tables: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return one line for each alert that cannot be read."""
    return _read(tables)[1]


def _read(tables: Iterable[Mapping[str, Any]]) -> tuple[tuple[Alert, ...], list[str]]:
    """Return the valid alerts, and the first mistake of each other one.

    After ``MOST_TOLD`` mistakes the rest is only counted.
    """
    alerts: dict[str, Alert] = {}
    mistakes: list[str] = []
    waiting = list(tables)
    for number, table in enumerate(waiting, 1):
        if len(mistakes) == MOST_TOLD:
            mistakes.append(f"{len(waiting) - number + 1} more alerts were not read")
            break
        name = table.get("name")
        try:
            alert = _alert(table)
            if alert.name in alerts:
                raise AlertError("another alert has the same name")
            alerts[alert.name] = alert
        except AlertError as error:
            subject = name if isinstance(name, str) and _NAME.fullmatch(name) else number
            mistakes.append(f"alert {subject}: {error}")
    return tuple(alerts.values()), mistakes


def _alert(table: Mapping[str, Any]) -> Alert:
    """Read one table. Raises AlertError."""
    fields = _Table.__struct_encode_fields__
    for field in table:
        if field not in fields:
            raise AlertError(
                f"unknown field {quoted(field)}{nearest(field, fields, 'fields: ' + ', '.join(fields))}"
            )
    try:
        read = convert(dict(table), _Table)
        when = parse(read.when)
    except ExpressionError as error:
        raise AlertError(f"when: {error}") from None
    except ValidationError as error:
        # The value is not quoted: it may hold a token.
        problem, _, path = str(error).partition(" - at `$.")
        field = re.split(r"\W", path)[0]
        raise AlertError(
            f"{field}: must be {_MUST_BE.get(field, 'a text')}" if field else problem
        ) from None
    if any("\0" in word for word in read.run or ()):
        raise AlertError("run: holds a zero byte")
    if not when:
        raise AlertError("when: is empty")
    # Badges have delays of their own.
    usual_s = 0.0 if all(term.field == "badge" for term in when.terms) else FOR_S
    for_s = _seconds("for", read.for_, usual_s, 0.0)
    return Alert(
        read.name, when, for_s, _seconds("again", read.again, AGAIN_S, 1.0), read.run or ()
    )


def _seconds(field: str, given: str | float | None, default: float, least: float) -> float:
    """Return a time in seconds. Raises AlertError."""
    try:
        seconds = (
            default
            if given is None
            else typed_number(given.strip(), "s")
            if isinstance(given, str)
            else given
        )
    except ValueError:
        seconds = -1.0
    if not least <= seconds <= LONGEST_S:
        raise AlertError(f"{field}: must be {_MUST_BE[field]}, not {quoted(given)}")
    return float(seconds)


def examples() -> str:
    """Return a commented example for ``gputop config --init``."""
    return """\
# Each alert is a table of its own, below everything else. Its program gets GPUTOP_ALERT, GPUTOP_GPUS, GPUTOP_HOST and
# more in its environment, a JSON object on its stdin. `gputop alerts FILE` says what would have fired in a recording.
#[[alert]]
#name = "no-work"
#when = "state:busy_not_working or state:starved"
#for = "10m"
#run = ["sh", "-c", 'logger -t gputop "$GPUTOP_ALERT: GPUs $GPUTOP_GPUS, job $GPUTOP_JOB_ID"']
"""
