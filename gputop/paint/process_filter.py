"""The filter of the process table: ``gpu:3 user:ml mem>10G !state:D name~train "two words"``."""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import lru_cache

from gputop.model.expression import Expression, Term, Vocabulary, parse_expression
from gputop.model.metrics import PROCESS_METRICS, PROCESS_STATIC, Unit
from gputop.model.snapshot import ProcessSample
from gputop.paint.process_columns import COLUMNS, NUMBERED
from gputop.paint.tree_totals import TREE_TOTALS

ALIASES = {
    "mem": "gpu_mem_bytes", "host": "rss_bytes", "cpu": "cpu_pct", "time": "gpu_time_pct", "cmd": "command",
    "read": "read_bytes_per_s", "write": "write_bytes_per_s", "age": "age_s", "run": "run_pct", "queue": "wait_pct",
    "wait": "waiting_on", "waits": "waiting_on", "pin": "pin_memory", "throttled": "throttled_pct",
    "index": "gpu",
}  # fmt: skip
"""Short names → catalogue keys, which are understood as well."""

NO_FILTER = Expression()


def passes(
    expression: Expression, process: ProcessSample, children: Sequence[ProcessSample], verdict: str
) -> bool:
    """Return whether a process passes a filter.

    ``children`` are its descendants, ``verdict`` the words of its GPU's diagnosis, in lower case.
    """
    return expression.is_met(lambda term: _answer(term, process, children, verdict)) is True


def _answer(
    term: Term, process: ProcessSample, children: Sequence[ProcessSample], verdict: str
) -> bool | None:
    if isinstance(term.values[0], str):
        return term.holds_for(_texts(term.field, process, children, verdict))
    number = _measured(term.field, process, children)
    if number is None and term.field in NUMBERED:
        # "Which GPU?" has an answer for a process that uses none: not this one.
        return term.negated != (term.operator == "!=")
    return term.holds_for(number)


def _texts(
    field: str, p: ProcessSample, children: Sequence[ProcessSample], verdict: str
) -> tuple[str, ...]:
    static = p.static
    if field == "":
        return searchable(p)
    if field == "verdict":
        return (verdict,)
    if field == "name":
        return (static.name or "", static.command or "")
    if field == "job":
        return (static.job or "", static.container or "")
    return (str(COLUMNS[field].value(p, children) or ""),)


def _measured(field: str, p: ProcessSample, children: Sequence[ProcessSample]) -> float | None:
    value = COLUMNS[field].value(p, children)
    return None if value is None or isinstance(value, str) else float(value)


def searchable(process: ProcessSample) -> tuple[str, ...]:
    """Return the texts of a process that a search covers."""
    s = process.static
    return (
        s.command or "",
        s.name or "",
        s.user or "",
        str(process.pid),
        s.job or "",
        s.container or "",
    )


@lru_cache(maxsize=64)
def parse(text: str) -> Expression:
    """Parse a filter of processes.

    Raises ExpressionError with the position of the first mistake.
    """
    return parse_expression(text, process_vocabulary())


@lru_cache(maxsize=1)
def process_vocabulary() -> Vocabulary:
    """Return the fields that a filter can use."""
    return Vocabulary(
        "filter",
        {**{field: _unit(field) for field in COLUMNS}, "verdict": "text"},
        "try gpu, user, mem, cpu, name, job, role, state or verdict",
        ALIASES,
        ids={"state": tuple(string.ascii_lowercase)},
        hints={
            "state": "a filter's state is a process's: R, S, D, Z or T; of a GPU write verdict:starved"
        },
        loose=frozenset(("verdict",)),
    )


def _unit(field: str) -> Unit:
    for metrics in (PROCESS_METRICS, PROCESS_STATIC, TREE_TOTALS):
        if field in metrics:
            return metrics[field].unit
    raise KeyError(field)


def may_become_field(text: str) -> bool:
    """Return whether the last word begins a field's name.

    Such as ``gp`` while a filter is being typed.
    """
    fields = process_vocabulary()
    word = text.rpartition(" ")[2].lstrip("!").lower()
    return bool(word) and any(name.startswith(word) for name in (*fields.aliases, *fields.units))
