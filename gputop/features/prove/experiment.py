"""Stages of the experiment and their verdict.

Pure: numbers in, a verdict out.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal

from msgspec import Struct

from gputop.model.quantity import known
from gputop.model.sm import MEASURED, SmSource

TOLERANCE_PCT = 2.0
FULL_UTIL = 95.0
"""Utilisation from which on a stage is told to have looked fully busy: its first and last sample may hold a pause."""
Kind = Literal["idle", "spin", "tiny", "copy"]


class Stage(Struct, frozen=True):
    """A load that runs for some seconds.

    ``expected_pct`` is the SM activity that it must show.
    """

    kind: Kind
    blocks: int
    title: str
    expected_pct: float | None


class Ready(Struct, frozen=True, tag_field="t", tag="ready"):
    """CUDA has started: its version and the number of multiprocessors."""

    multiprocessors: int = 0
    cuda: int | None = None


class Beat(Struct, frozen=True, tag_field="t", tag="beat"):
    """The kernels go on."""


class CudaFailed(Struct, frozen=True, tag_field="t", tag="error"):
    """CUDA has failed: one line."""

    reason: str


Message = Ready | Beat | CudaFailed


class StageSample(Struct, frozen=True):
    """A measurement during a stage: Unix seconds, percent, watts.

    None was not measured.
    """

    t: float
    util_pct: float | None
    sm_pct: float | None
    sm_source: SmSource
    dram_pct: float | None
    power_w: float | None


class Result(Struct, frozen=True):
    """A stage and its medians.

    ``ok`` is None where nothing was expected or SM activity is not measured.
    """

    stage: Stage
    util_pct: float | None
    sm_pct: float | None
    dram_pct: float | None
    power_w: float | None
    ok: bool | None
    samples: tuple[StageSample, ...]


class ProofVerdict(Struct, frozen=True):
    """The conclusion in words with its likely cause.

    ``exit_status`` is 0 for right, 1 for wrong, 3 for not measured.
    """

    exit_status: int
    words: str
    reason: str = ""


def stages(multiprocessors: int) -> list[Stage]:
    """Stages from idle to the whole chip, and two loads.

    The width of the last two is not known beforehand.
    """
    n = multiprocessors
    all_stages = [Stage("idle", 0, "nothing runs", 0.0)]
    for k in dict.fromkeys(max(1, count) for count in (1, n // 4, n // 2, n)):
        title = (
            f"{k} of {n} multiprocessors spin{'s' if k == 1 else ''}" if k == 1 else f"{k} of {n}"
        )
        all_stages.append(Stage("spin", k, title, 100.0 * k / n))
    all_stages.append(Stage("tiny", 1, "tiny kernels, one after the other", None))
    all_stages.append(Stage("copy", 0, "copying memory", None))
    return all_stages


def tolerance_pct(multiprocessors: int) -> float:
    """2 points, or one multiprocessor where that is more."""
    return max(TOLERANCE_PCT, 100.0 / multiprocessors)


def result(stage: Stage, samples: Sequence[StageSample], multiprocessors: int) -> Result:
    """Medians of a stage, and whether SM activity is right."""
    measured = [sample for sample in samples if sample.sm_source in MEASURED]
    sm_pct = _median([sample.sm_pct for sample in measured])
    ok = None
    if stage.expected_pct is not None and sm_pct is not None:
        ok = abs(sm_pct - stage.expected_pct) <= tolerance_pct(multiprocessors)
    return Result(
        stage,
        _median([sample.util_pct for sample in samples]),
        sm_pct,
        _median([sample.dram_pct for sample in measured]),
        _median([sample.power_w for sample in samples]),
        ok,
        tuple(samples),
    )


def _median(values: Sequence[float | None]) -> float | None:
    measured = known(values)
    return median(measured) if measured else None


def verdict(results: Sequence[Result], why_not: str = "") -> ProofVerdict:
    """The verdict on all stages.

    ``why_not`` is the reason why SM activity is not measured.
    """
    judged = [r for r in results if r.stage.expected_pct is not None]
    working = [r for r in results if r.stage.kind != "idle"]
    full = sum((r.util_pct or 0.0) >= FULL_UTIL for r in working)
    util_words = (
        f"Utilisation was at least {FULL_UTIL:.0f} % in {full} of {len(working)} stages with work."
    )
    if not judged or all(r.sm_pct is None for r in judged):
        bound = "Of SM activity only a bound is known here: at most the utilisation."
        return ProofVerdict(3, f"SM activity is not measured. {bound} {util_words}", why_not)
    unknown = [r for r in judged if r.sm_pct is None]
    if unknown:
        return ProofVerdict(
            1,
            f'SM activity was measured in some stages only, not at "{unknown[0].stage.title}".',
            why_not,
        )
    off = [(abs((r.sm_pct or 0.0) - (r.stage.expected_pct or 0.0)), r) for r in judged]
    worst_pct, worst = max(off, key=lambda pair: pair[0])
    if all(r.ok for r in judged):
        return ProofVerdict(0, f"SM activity is right within {worst_pct:.1f} points. {util_words}")
    words = f'SM activity is {worst_pct:.1f} points off at "{worst.stage.title}". {util_words}'
    return ProofVerdict(1, words, _likely(judged))


def _likely(judged: Sequence[Result]) -> str:
    """The likeliest reason why the counters do not show what ran."""
    idle = next((r for r in judged if r.stage.kind == "idle"), None)
    if idle is not None and idle.ok is False:
        return "something else runs on this GPU: it was not idle while gputop ran nothing on it"
    if all((r.sm_pct or 0.0) < 1.0 for r in judged):
        return (
            "the counter reads 0 at work: it may be gated or read by somebody else (ncu, nsys, "
            "DCGM)"
        )
    high = sum((r.sm_pct or 0.0) > (r.stage.expected_pct or 0.0) for r in judged if not r.ok)
    if high == sum(not r.ok for r in judged):
        return "another process works on this GPU, or the clocks of idle multiprocessors were gated"
    return "the kernels were held up (another process, throttled clocks), or the counter is wrong"
