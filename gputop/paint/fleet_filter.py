"""The filter of a fleet's rows, in the language of the process table: ``user:ml util<50 state:starved job~8830``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from gputop.fleet.frame import Group
from gputop.paint.process_filter import Fields, Filter, parse_for

FLEET_FIELDS = Fields(
    {
        "host": "text", "job": "text", "user": "text", "verdict": "text", "state": "text", "model": "text",
        "names": "text", "util_pct": "pct", "sm_active_pct": "pct", "gap_pct": "pct", "power_w": "W",
        "waste_gpu_h": "count", "gpus": "count", "stragglers": "count",
    },
    {
        "util": "util_pct", "sm": "sm_active_pct", "gap": "gap_pct", "power": "power_w", "waste": "waste_gpu_h",
        "gpu": "gpus", "name": "host",
    },
    "host, job, user, state, verdict, util, sm, gap, power or waste",
)  # fmt: skip
"""Of a host, a job or a user; numbers are means and sums as they are shown."""


@lru_cache(maxsize=64)
def parse(text: str) -> Filter:
    """The filter that a text means. Raises FilterError with the position of the first mistake."""
    return parse_for(text, FLEET_FIELDS)


def passes(wanted: Filter, group: Group) -> bool:
    """Whether a row passes."""
    return all(term.holds_for(_known(term.field, group)) for term in wanted.terms)


def _known(field: str, group: Group) -> float | Sequence[str] | None:
    if field == "gpus":
        return float(len(group.gpus))
    if FLEET_FIELDS.units.get(field, "text") != "text":
        number: float | None = getattr(group, field)
        return number
    texts: dict[str, Sequence[str]] = {
        "host": group.hosts or (group.name,),
        "job": group.jobs,
        "user": group.users,
        "verdict": (group.verdict.text,),
    }
    if field in texts:
        return texts[field]
    if field == "state":
        return tuple({gpu.state for gpu in group.gpus})
    if field in ("model", "names"):
        return tuple({getattr(gpu.read, field) for gpu in group.gpus})
    return (*texts["host"], *group.jobs, *group.users, group.verdict.text)
