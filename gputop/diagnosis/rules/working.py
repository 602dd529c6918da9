"""Rules for a busy GPU with which nothing was found wrong."""

from __future__ import annotations

from gputop.diagnosis import thresholds
from gputop.diagnosis.rules.base import Rule, RuleResult
from gputop.diagnosis.rules.busy_words import activity_words, few_warps, power_part
from gputop.diagnosis.rules.health_badges import PRAISE
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.sm_remedy import DRAWS_LITTLE, SHORT, WORKS_HARD
from gputop.diagnosis.types import STATE_WORDS, Confidence
from gputop.model.quantity import pct

HEALTHY = Rule(
    id="healthy",
    title="working",
    condition=f"util ≥ {thresholds.HEALTHY_UTIL:.0f} %; SM ≥ {thresholds.HEALTHY_SM:.0f} %, or tensor ≥ "
    f"{thresholds.HEALTHY_TENSOR:.0f} %; a "
    f"second witness: tensor / SM ≥ {thresholds.WITNESS_TENSOR_RATIO:g}, DRAM / util ≥ "
    f"{thresholds.MUCH_DRAM_RATIO:g}, or FP64, FP32, "
    f"FP16 or INT ≥ {thresholds.WITNESS_PIPE:.0f} %; nothing else",
    state="working",
    matches=lambda s: s.conditions.broad and s.conditions.witness,
    tell=lambda s: RuleResult(
        (f"{PRAISE}{activity_words(s)}",), confidence="high", notes=few_warps(s)
    ),
    checked="eight real loads that are well, tuned training on an H100 (SM 88, tensor 19, DRAM 59) and FP16 products "
    "on a T4 (SM 98, tensor 88) among them",
)


UNEXPLAINED = "busy, and nothing measured explains it"
LOOKS_BUSY = "looks busy"
OTHER_PIPES = (
    "have FP32, FP64 and integer work measured: GPM where the card has it, else DCGM's "
    "DCGM_FI_PROF_PIPE_… fields"
)


def _tell_working(s: Signals) -> RuleResult:
    mean = s.mean
    if not s.conditions.shows_work:
        return _tell_unexplained(s)
    sure: Confidence = (
        "high"
        if mean.sm is not None and mean.sm >= thresholds.HEALTHY_SM and s.conditions.witness
        else "medium"
    )
    notes: tuple[str, ...] = ()
    if not s.conditions.witness:
        notes = (
            "no second witness: SM activity says that warps are resident, not that they compute",
        )
    return RuleResult((activity_words(s),), confidence=sure, notes=(*notes, *few_warps(s)))


def _tell_unexplained(s: Signals) -> RuleResult:
    """Busy SMs in which nothing was seen to work: no praise and no blame."""
    mean = s.mean
    asked = {"FP32": mean.fp32, "FP64": mean.fp64, "integer": mean.integer, "DRAM": mean.dram}
    lacks = [name for name, value in asked.items() if value is None]
    line = activity_words(s) if mean.dram is None else f"{activity_words(s)}, DRAM {pct(mean.dram)}"
    if all(value is None for value in (mean.tensor, *mean.pipes, mean.dram, mean.power)):
        note = (
            "neither the pipes nor the memory nor the power are measured here: warps are resident, "
            "no more is known"
        )
        remedy = s.measure or OTHER_PIPES
        short = "measure the pipes"
        return RuleResult((line,), remedy, short, "low", (note,), LOOKS_BUSY, role="unknown")
    note, remedy, short = f"not measured here: {', '.join(lacks)}", OTHER_PIPES, "measure the pipes"
    if not lacks:
        note, remedy, short = (
            "all that is measured rests",
            "a trace shows its kernels: `gputop trace FILE`",
            "",
        )
    return RuleResult(
        (f"{line}{power_part(s)}",),
        remedy,
        short,
        "low",
        (note,),
        UNEXPLAINED,
        role="information",
    )


WORKING = Rule(
    id="working",
    title="working",
    condition=f"util ≥ {thresholds.WORKING_UTIL:.0f} %; SM measured; nothing else; green with one witness: a tensor, "
    f"FP or "
    f"INT pipe ≥ {thresholds.SEEN_PIPE:.0f} %, DRAM ≥ {thresholds.SEEN_DRAM:.0f} %, or power ≥ "
    f"{100 * thresholds.SEEN_POWER:.0f} % of its "
    f"limit (not at SM ≥ {thresholds.UNEXPLAINED_SM:.0f} % with all that is measured below "
    f"{thresholds.UNEXPLAINED_PIPE:.0f} %); "
    f"medium confidence below SM {thresholds.HEALTHY_SM:.0f} % or without a second witness",
    state="working",
    levels=f"green; info where nothing measured explains it; grey ({LOOKS_BUSY}) where no witness is measured",
    matches=lambda s: s.util_pct >= thresholds.WORKING_UTIL and s.mean.sm is not None,
    tell=_tell_working,
    checked="SM / util of servers on GeForce and data-centre GPUs under a benchmark: 0.78 and more",
)


HELD_DOWN = 0.1
"""Share of the time with clocks held down by heat or a power brake, from which on low power has that reason."""


def _tell_unseen(s: Signals) -> RuleResult:
    why = "SM activity was not measured" if s.sm_off is None else s.sm_off.words
    evidence = f"util {pct(s.util_pct)}{power_part(s)}; {why}"
    works_hard = s.conditions.at_power_limit
    if (
        not works_hard
        and s.conditions.draws_little
        and max(s.mean.thermal, s.mean.brake) < HELD_DOWN
    ):
        return RuleResult(
            (evidence,), s.measure, SHORT, "low", (f"{DRAWS_LITTLE}: it may hardly work",)
        )
    if works_hard:
        return RuleResult(
            (evidence,),
            s.measure,
            SHORT,
            "medium",
            (f"at its power limit: {WORKS_HARD}",),
        )
    return RuleResult((evidence,), s.measure, SHORT, "low")


NO_BOTTLENECK_SEEN = Rule(
    id="no_bottleneck_seen",
    title=f"{STATE_WORDS['unmeasured']}: no bottleneck seen",
    short="no bottleneck seen",
    condition=f"util ≥ {thresholds.HEALTHY_UTIL:.0f} %; SM not measured; power is the only witness: from "
    f"{100 * thresholds.FULL_POWER:.0f} % of its limit on the GPU works hard, below {100 * thresholds.LOW_POWER:.0f} "
    f"% with util ≥ "
    f"{thresholds.LOW_POWER_UTIL:.0f} % it draws little for a busy one",
    state="unmeasured",
    matches=lambda s: s.mean.sm is None,
    tell=_tell_unseen,
    remedy="have SM measured: `--perf` with the right to read counters, dcgm-exporter, or GPM, as the card allows",
    checked="power against SM on the loads recorded: FP32 and tuned training both draw 82–85 % of an H100's limit, so "
    "power alone never makes a GPU healthy",
)
