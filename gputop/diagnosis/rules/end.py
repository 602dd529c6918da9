"""End states: busy, with nothing found wrong."""

from __future__ import annotations

from gputop.diagnosis.rules.base import Rule, Told
from gputop.diagnosis.signals import Signals
from gputop.model.quantity import pct, share

HEALTHY_UTIL, HEALTHY_SM, HEALTHY_TENSOR = 80.0, 80.0, 40.0
"""SM ≥ 80 % is necessary, not sufficient, for good use (NVIDIA DCGM)."""
WORKING_UTIL = 50.0


def _healthy(s: Signals) -> bool:
    return (
        s.u >= HEALTHY_UTIL
        and s.sm is not None
        and (s.sm >= HEALTHY_SM or (s.tensor is not None and s.tensor >= HEALTHY_TENSOR))
    )


def _numbers(s: Signals) -> str:
    line = f"util {'' if s.util_known else '≥ '}{pct(s.u)}, SM {pct(s.sm)}"
    return line if s.tensor is None else f"{line}, tensor {pct(s.tensor)}"


HEALTHY = Rule(
    id="healthy",
    title="working",
    short="working",
    condition="util ≥ 80 %, SM ≥ 80 % (or tensor ≥ 40 %), nothing else",
    levels="green",
    state="working",
    holds=_healthy,
    tell=lambda s: Told("green", (f"healthy: {_numbers(s)}",)),
)

WORKING = Rule(
    id="working",
    title="working",
    short="working",
    condition="util ≥ 50 %, SM measured, nothing else",
    levels="green",
    state="working",
    holds=lambda s: s.u >= WORKING_UTIL and s.sm is not None,
    tell=lambda s: Told("green", (_numbers(s),)),
)


def _tell_unseen(s: Signals) -> Told:
    line = f"util {pct(s.u)}"
    if s.power is not None:
        line += f", power {share(s.power)}"
    return Told("grey-green", (f"{line}; {s.sm_off or 'SM activity was not measured'}",), confidence="low")


NO_BOTTLENECK_SEEN = Rule(
    id="no_bottleneck_seen",
    title="no bottleneck seen",
    short="no bottleneck seen",
    condition="util ≥ 80 %, SM not measured",
    levels="grey-green",
    state="unmeasured",
    holds=lambda s: s.sm is None,
    tell=_tell_unseen,
)
