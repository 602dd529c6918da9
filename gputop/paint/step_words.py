"""How fast the job on a GPU steps, in the words of its title."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.model.quantity import per_second, step_time
from gputop.model.snapshot import GpuSample
from gputop.model.step_history import StepPace, comparable_s, slowest
from gputop.monitor import Frame, stepping_on

TOLD_SLOWER = 1.02
"""A rank counts as the slowest where its steps take 2 % longer than the median's: steps of one job end together."""


def step_words(frame: Frame, gpu: GpuSample, room: int | None = None) -> str:
    """``412 ms a step ± 3 %, 2.4 steps/s, 154 samples/s``, or as much of it as there is room for, down to
    ``412 ms/step``; empty where no process on this GPU announces its steps, or no form fits."""
    return longest_that_fits(step_forms(frame, gpu), room)


def longest_that_fits(forms: Sequence[str], room: int | None) -> str:
    """The first of these forms with at most ``room`` cells; empty where none has."""
    return next((form for form in forms if room is None or len(form) <= room), "")


def step_forms(frame: Frame, gpu: GpuSample) -> tuple[str, ...]:
    """The step time of the slowest process on this GPU, the longest form first; none where nobody announces steps."""
    if not frame.steps:
        return ()
    pace = slowest([pace for pace in frame.steps if gpu.static.index in stepping_on(frame.snapshot, pace)])
    return () if pace is None else _forms(frame, pace)


def _forms(frame: Frame, pace: StepPace) -> tuple[str, ...]:
    error = "" if pace.error_pct is None else f" ± {pace.error_pct:.{0 if pace.error_pct >= 0.95 else 1}f} %"
    last = ", the slowest rank" if pace is _slowest_rank(frame, pace.name) else ""
    samples = "" if pace.samples_per_s is None else f", {per_second(pace.samples_per_s)} samples/s"
    long, rate = f"{step_time(pace.mean_s)} a step", f", {per_second(pace.steps_per_s)} steps/s"
    short = f"{step_time(pace.mean_s)}/step"
    return (
        f"{long}{error}{rate}{samples}{last}", f"{long}{error}{rate}{last}", f"{long}{error}{last}", f"{long}{last}",
        f"{short}{last}", short,
    )  # fmt: skip


def _slowest_rank(frame: Frame, name: str) -> StepPace | None:
    # Importing it takes 4 ms, for which a first picture without steps need not wait.
    from statistics import median

    ranks = [pace for pace in frame.steps if pace.name == name]
    last = slowest(ranks)
    takes = comparable_s(ranks)
    if last is None or takes(last) <= TOLD_SLOWER * median(takes(pace) for pace in ranks):
        return None
    return last
