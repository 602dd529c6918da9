"""Words that the rules for a busy GPU share."""

from __future__ import annotations

from gputop.diagnosis import thresholds
from gputop.diagnosis.signals import Signals
from gputop.model.quantity import clamp_pct, pct, share


def chip_share(s: Signals) -> str:
    """How much of the chip kernels use while they run, in words."""
    return "n/a" if s.sm_ratio is None else pct(clamp_pct(100.0 * s.sm_ratio))


def util_words(s: Signals) -> str:
    return f"util {'' if s.util_known else '≥ '}{pct(s.util_pct)}"


def power_part(s: Signals) -> str:
    """Share of its power that the GPU draws, as a suffix; may be empty."""
    return "" if s.mean.power is None else f", power {share(s.mean.power)} of its limit"


FEW_WARPS_SM, FEW_WARPS = 50.0, 15.0


def activity_words(s: Signals) -> str:
    line = f"{util_words(s)}, SM {pct(s.mean.sm)}"
    return line if s.mean.tensor is None else f"{line}, tensor {pct(s.mean.tensor)}"


def few_warps(s: Signals) -> tuple[str, ...]:
    """Occupancy tells good loads from bad ones in neither direction, so it is no verdict."""
    if (
        s.mean.sm is None
        or s.mean.sm < FEW_WARPS_SM
        or s.mean.occ is None
        or s.mean.occ >= FEW_WARPS
    ):
        return ()
    if s.mean.tensor is None or s.mean.tensor >= thresholds.COMM_TENSOR or s.conditions.memory:
        return ()
    return (f"few warps: SM {pct(s.mean.sm)} with {pct(s.mean.occ)} of the warp slots",)


def or_stuck(s: Signals) -> tuple[str, ...]:
    """A note that small kernels may be a wait inside one."""
    if s.spin is None:
        return ()
    if s.spin.behind:
        return (
            f"or stuck inside one kernel, for {s.spin.late}; what the job did before is not known",
        )
    # Where no process is there, a kernel of one that was killed may run on.
    tells = "" if s.tick.pid is None else f": `py-spy dump --pid {s.tick.pid}` tells"
    return (f"or stuck inside one kernel{tells}",)
