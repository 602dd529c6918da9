"""Upper bounds of the gain from curing a verdict.

A starved GPU runs no kernel for a share of the time. Without that time the same kernels would end 1 / (1 − share) times
sooner: no remedy for it can win more. A GPU that is busy and does not work leaves a share of the chip unused, which
says nothing of time: how much faster other kernels would be is not known.
"""

from __future__ import annotations

from msgspec import Struct

from gputop.diagnosis.types import GpuDiagnosis, State

MOST_SPEEDUP = 20.0
"""A larger bound is not told as a number: the rest of the time is too short to be measured [judged]."""


class Worth(Struct, frozen=True):
    """Bounds of a verdict's cure.

    None where the verdict has none.
    """

    speedup_at_most: float | None = None
    unused_pct: float | None = None

    def words(self, price: float | None = None) -> str:
        """The bound in words: ``up to 2.6 × faster``.

        With its worth an hour at a price of a GPU-hour.
        """
        if self.speedup_at_most is not None:
            share, bound = (
                1.0 - 1.0 / self.speedup_at_most,
                f"up to {self.speedup_at_most:.1f} × faster",
            )
            if self.speedup_at_most > MOST_SPEEDUP:
                bound = f"over {MOST_SPEEDUP:.0f} × faster at best"
        elif self.unused_pct is not None:
            share, bound = self.unused_pct / 100.0, f"{self.unused_pct:.0f} % of the chip is unused"
        else:
            return ""
        return bound if price is None else f"{bound}, worth {price * share:.2f} an hour at most"


NOTHING = Worth()


def worth(state: State, lost_share: float | None) -> Worth:
    """Bounds for a state in which ``lost_share`` of the time was wasted, 0 to 1."""
    if lost_share is None or lost_share <= 0.0:
        return NOTHING
    if state == "starved":
        return Worth(speedup_at_most=1.0 / (1.0 - min(lost_share, 1.0 - 1e-3)))
    return (
        Worth(unused_pct=100.0 * min(lost_share, 1.0)) if state == "busy_not_working" else NOTHING
    )


def worth_of(d: GpuDiagnosis) -> Worth:
    """Bounds for a diagnosis, by the means of its window."""
    if d.state == "starved" and d.figure is not None and d.figure[0] == "idle":
        return worth(d.state, None if d.figure[1] is None else d.figure[1] / 100.0)
    sm_pct = None if d.means is None else d.means.sm_active_pct
    return worth(d.state, None if sm_pct is None else 1.0 - min(100.0, sm_pct) / 100.0)
