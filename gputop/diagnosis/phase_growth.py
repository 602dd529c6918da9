"""Growth of a step's phases over a run: host time in the last part against the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputop.model.step_pace import PhaseGrowth
from gputop.model.steps import Phase

LEAST_STEPS = 30
"""Steps that were looked at, some one a second, without the warm-up: with fewer a third of them says nothing."""
WARM_UP_STEPS = 3
PHASE_GROWN = 1.2
"""From this ratio of the last third's median step to the first third's on, a step has grown."""
REMEDIES: Mapping[Phase, str] = {
    "forward": "longer inputs, or more work on the host (shapes that change, a busy machine)",
    "backward": "longer inputs or outputs, more gradients to clip or gather, or values read from the GPU in the loop",
    "optimizer": "more parameters that train, or an optimizer that works on them one by one (foreach=, fused=)",
    "between": "loader, logging and checkpoints lie there: step(data_wait_s=…) or a callback tells the loader's part",
}


def growth_remedy(growth: PhaseGrowth) -> str:
    """Contents of the phase that has grown, and the remedy."""
    return REMEDIES[growth.phase]


def grown(steps: Sequence[Mapping[Phase, float]]) -> PhaseGrowth | None:
    """The phase of these steps, in order, that grew most.

    None where a step takes no longer than in the beginning. Steps with other phases than the last one are left out. In
    seconds.
    """
    alike = steps[-1].keys() if steps else ()
    alike_steps = [step for step in steps[WARM_UP_STEPS:] if step.keys() == alike]
    if not alike or len(alike_steps) < LEAST_STEPS:
        return None
    # Importing it takes 4 ms, for which a start need not wait.
    from statistics import median

    third = len(alike_steps) // 3
    first, last = alike_steps[:third], alike_steps[-third:]
    if median(sum(step.values()) for step in last) < PHASE_GROWN * median(
        sum(step.values()) for step in first
    ):
        return None
    medians = {
        phase: (median(step[phase] for step in first), median(step[phase] for step in last))
        for phase in alike_steps[0]
    }
    phase_grown = max(medians, key=lambda phase: medians[phase][1] - medians[phase][0])
    return PhaseGrowth(phase_grown, *medians[phase_grown])
