"""Pace of the job on a GPU, in the words of its title."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.diagnosis.thresholds import TOLD_SLOWER
from gputop.diagnosis.window.host_activity import serving_on
from gputop.model.durations import per_second, step_time
from gputop.model.quantity import mfu_words
from gputop.model.server_words import server_forms
from gputop.model.serving import ServerRow
from gputop.model.snapshot import GpuSample, Snapshot
from gputop.model.step_pace import (
    SOURCE_WORDS,
    StepPace,
    StepPeriod,
    comparable_s,
    phase_word,
    slowest,
)
from gputop.monitor import Frame, stepping_on


def step_words(frame: Frame, gpu: GpuSample, room: int | None = None) -> str:
    """Return a job's step time or a server's work.

    ``412 ms a step ± 3 %, 2.4 steps/s, 154 samples/s``, or as much as fits, down to ``412 ms/step``; empty where
    neither is known, or no form fits.
    """
    return longest_that_fits(useful_forms(frame, gpu), room)


def longest_that_fits(forms: Sequence[str], room: int | None) -> str:
    """Return the first form of at most ``room`` cells.

    Empty where there is no such form.
    """
    return next((form for form in forms if room is None or len(form) <= room), "")


def step_forms(snapshot: Snapshot, steps: Sequence[StepPace], gpu: GpuSample) -> tuple[str, ...]:
    """Return the slowest process's step time, longest form first.

    None where no job announces steps.
    """
    if not steps:
        return ()
    pace = slowest([pace for pace in steps if gpu.static.index in stepping_on(snapshot, pace)])
    return () if pace is None else _forms(steps, pace)


def useful_forms(frame: Frame, gpu: GpuSample) -> tuple[str, ...]:
    """Return a GPU's useful work, the longest form first.

    The steps that its job announces, else its server's work, else the step that its rhythm shows.
    """
    forms = step_forms(frame.snapshot, frame.steps, gpu)
    if forms:
        return forms
    served = server_on(frame, gpu)
    if served is not None:
        return server_forms(served)
    rhythm = next((period for period in frame.periods if gpu.static.index in period.gpus), None)
    return () if rhythm is None else period_forms(rhythm)


def period_forms(period: StepPeriod) -> tuple[str, ...]:
    """Return ``step ≈ 5.8 s (from NVLink)`` and shorter forms.

    Never to more digits than the samples allow.
    """
    about = f"step ≈ {period.period_s:.{1 if period.period_s < 99.95 else 0}f} s"
    return f"{about} (from {SOURCE_WORDS[period.source]})", about


def server_on(frame: Frame, gpu: GpuSample) -> ServerRow | None:
    """Return the server on this GPU, if it answers."""
    if not frame.snapshot.servers:
        return None
    index = gpu.static.index
    return next(
        (
            row
            for row in frame.snapshot.servers
            if row.error is None and index in serving_on(frame.snapshot, row)
        ),
        None,
    )


def _forms(steps: Sequence[StepPace], pace: StepPace) -> tuple[str, ...]:
    error = (
        ""
        if pace.error_pct is None
        else f" ± {pace.error_pct:.{0 if pace.error_pct >= 0.95 else 1}f} %"
    )
    last = ", the slowest rank" if pace is _slowest_rank(steps, pace.run) else ""
    samples = "" if pace.samples_per_s is None else f", {per_second(pace.samples_per_s)} samples/s"
    tokens = "" if pace.tokens_per_s is None else f", {per_second(pace.tokens_per_s)} tokens/s"
    mfu = "" if pace.mfu_pct is None else f", {mfu_words(pace.mfu_pct)}"
    useful = (tokens or samples) + mfu
    long, rate = f"{step_time(pace.mean_s)} a step", f", {per_second(pace.steps_per_s)} steps/s"
    short = f"{step_time(pace.mean_s)}/step"
    grew = _growth_words(pace)
    forms = (
        f"{long}{error}{rate}{samples}{tokens}{mfu}{last}{grew}", f"{long}{useful}{last}{grew}", f"{long}{last}{grew}",
        f"{long}{last}", short,
    )  # fmt: skip
    return tuple(dict.fromkeys(forms))


def _growth_words(pace: StepPace) -> str:
    """Return the phase of the step that grew.

    ``, between steps grew 4.2 → 9.8 ms``, in host time; empty where none did.
    """
    growth = pace.growth
    if growth is None:
        return ""
    return (
        f", {phase_word(growth.phase)} grew {step_time(growth.before_s)} → "
        f"{step_time(growth.after_s)}"
    )


def _slowest_rank(steps: Sequence[StepPace], run: str) -> StepPace | None:
    # Importing it takes 4 ms, for which a first picture without steps need not wait.
    from statistics import median

    ranks = [pace for pace in steps if pace.run == run]
    last = slowest(ranks)
    takes = comparable_s(ranks)
    if last is None or takes(last) <= TOLD_SLOWER * median(takes(pace) for pace in ranks):
        return None
    return last
