"""The starved family: GPUs that work one at a time."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.diagnosis import thresholds
from gputop.diagnosis.rules.base import Rule, RuleResult
from gputop.diagnosis.rules.feeding import works
from gputop.diagnosis.rules.remedy_words import spares
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.thresholds import IDLE_PCT
from gputop.diagnosis.types import Confidence
from gputop.model.quantity import pct, share, which_gpus

ONE_PROCESS = (
    "tensor parallel (device_map runs layers in turn), a pipeline with micro-batches{gpu_memory:, "
    "or fewer GPUs}"
)
PIPELINE = (
    "more micro-batches in the pipeline (1F1B, interleaved stages), tensor parallel{gpu_memory:, "
    "or fewer GPUs}"
)
DISPATCHER = (
    "send requests to all engines at once (asynchronously, one queue for each), or run fewer "
    "engines"
)


def _take_turns(s: Signals) -> bool:
    turns = s.turns
    if turns is None or s.samples < s.min_samples or not (turns.is_seen or turns.serve):
        return False
    # Several processes may wait for their own loaders, by chance one after the other.
    return turns.is_one_process or not works(s)


def _take_fast_turns(s: Signals) -> bool:
    return (
        s.turns is not None and s.samples >= s.min_samples and s.idle >= IDLE_PCT and not works(s)
    )


def _tell(s: Signals) -> RuleResult:
    turns = s.turns
    assert turns is not None
    n = len(turns.gpus)
    who = f"process {s.tick.pid} on" if turns.is_one_process else "one job on"
    line = (
        f"1 of {n} works at a time: {who} {which_gpus(turns.gpus)}, sum of util "
        f"{pct(turns.sum_pct)}"
    )
    line += f", at most {thresholds.TURNS_SUM:.0f} % in {share(turns.share)} of the samples"
    notes = () if turns.is_seen else ("turns are shorter than a sample: only the sum tells",)
    title, remedy, short = (
        f"starved: take turns: 1 of {n} works at a time",
        ONE_PROCESS,
        "tensor parallel",
    )
    if not turns.is_one_process and turns.has_nccl and not turns.serve:
        remedy, short = PIPELINE, "micro-batches"
    elif not turns.is_one_process:
        title, remedy, short = (
            f"starved: {n - 1} of {n} engines wait for requests",
            DISPATCHER,
            "send to all at once",
        )
    sure: Confidence = "high" if turns.is_seen else "medium"
    return RuleResult(
        (line,),
        remedy.format(**spares(s)),
        short,
        sure,
        notes,
        title=title,
        cause="turns",
        short="starved: take turns",
    )


TAKE_TURNS = Rule(
    id="take_turns",
    title="starved: GPUs take turns",
    short="starved: take turns",
    condition="≥ 2 GPUs of one process or job, one after the other at work: their util adds up to ≤ "
    f"{thresholds.TURNS_SUM:.0f} % in ≥ {100 * thresholds.TURNS_SHARE:.0f} % of the samples, and to ≥ "
    f"{thresholds.TURNS_SEEN_SUM:.0f} % in the mean; if turns are shorter than a sample: ≥ "
    f"{thresholds.TURNS_FAST_SUM:.0f} % in as many samples, and no loader computes or waits for data",
    state="starved",
    matches=_take_turns,
    tell=_tell,
    remedy=f"one process: {ONE_PROCESS}; ranks: {PIPELINE}; engines: {DISPATCHER}",
    remedy_short="tensor parallel",
    checked="recordings made after public reports, and a real process with four simulated GPUs",
)
TAKE_FAST_TURNS = replace(TAKE_TURNS, matches=_take_fast_turns)
"""Asked after loaders: the sum alone is weaker evidence than workers that compute."""
